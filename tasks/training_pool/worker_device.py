"""The device of a worker's machine, for the trainings that it does."""

from __future__ import annotations

import os
import re
from typing import TypeVar

from dpal.config.runtime import RunConfig
from dpal.errors import ConfigError

DEVICE = "DPAL_DEVICE"  # in a worker's environment; dpal worker --device sets it

Config = TypeVar("Config", bound=RunConfig)


def on_worker_device(config: Config) -> Config:
    """The same settings, with the device that this machine's worker was started for, if any.

    It moves speed and no promise: the plan does not know it.

    Raises:
      ConfigError: the worker's environment names none that there can be.
    """
    device = os.environ.get(DEVICE)
    if not device:
        return config
    require_device_name(device)
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    runtime = config.runtime.model_copy(update={"device": device})
    return config.model_copy(update={"runtime": runtime})


def require_device_name(device: str) -> None:
    """Requires a device that there can be on some machine.

    Raises:
      ConfigError: it is none.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ConfigError.before_release(
            f"the device of this worker is {device!r}; it can be auto, cpu, cuda or cuda:NUMBER"
        )
