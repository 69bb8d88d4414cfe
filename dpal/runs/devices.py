"""Where models run: what settings name, or the CPU of a machine that only leads."""

from __future__ import annotations

import torch

from dpal.config.runtime import RuntimeConfig
from dpal.errors import ParameterError


def device_of(runtime: RuntimeConfig, *, leads: bool = True) -> str:
    """Where models run here; who leaves training to a work pool may have no such device.

    Args:
      runtime: names the device.
      leads: whether this process leads the run, and is no worker that trains for it.
    """
    elsewhere = leads and runtime.training_pool is not None
    return "cpu" if elsewhere and not torch.cuda.is_available() else runtime.device


def device_here(runtime: RuntimeConfig) -> str:
    """The device that settings name if this machine has it, and the CPU if not.

    For rehearsals and references, which may be made on another machine than the campaign.
    """
    return "cpu" if _is_missing(runtime) else runtime.device


def require_device(runtime: RuntimeConfig, *, leads: bool = True) -> None:
    """Requires that this machine has the device that settings name, where it trains.

    Raises:
      ParameterError: it has none.
    """
    if _is_missing(runtime) and not (leads and runtime.training_pool is not None):
        raise ParameterError.before_release(
            f"runtime.device is {runtime.device} and no such device is here; use cpu"
        ).about("runtime.device")


def _is_missing(runtime: RuntimeConfig) -> bool:
    number = int(runtime.device.partition(":")[2] or 0)
    return runtime.device.startswith("cuda") and number >= torch.cuda.device_count()
