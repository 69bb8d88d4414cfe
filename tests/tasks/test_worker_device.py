"""Which device a training on a pool takes."""

from __future__ import annotations

import pytest
import torch

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from tasks.training_pool.worker_device import DEVICE, on_worker_device
from tests.conftest import nothing_released, small_values


@pytest.mark.parametrize(
    ("worker", "settings", "taken"),
    [
        (None, "cuda:1", "cuda:1"),
        ("", "cuda:1", "cuda:1"),
        ("cpu", "cuda", "cpu"),
        ("cuda:3", "cpu", "cuda:3"),
        ("auto", "cuda:7", "cuda" if torch.cuda.is_available() else "cpu"),
    ],
)
def test_a_worker_started_for_a_device_trains_on_it(monkeypatch, worker, settings, taken):
    monkeypatch.delenv(DEVICE, raising=False)
    if worker is not None:
        monkeypatch.setenv(DEVICE, worker)
    config = parse_config(small_values(runtime__device=settings))
    moved = on_worker_device(config)
    assert moved.runtime.device == taken
    same = {"device": settings}
    assert moved.runtime.model_copy(update=same) == config.runtime
    assert moved.model_copy(update={"runtime": config.runtime}) == config


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:0 "])
def test_a_device_that_there_cannot_be_is_refused(monkeypatch, name):
    monkeypatch.setenv(DEVICE, name)
    with pytest.raises(ConfigError, check=nothing_released):
        on_worker_device(parse_config(small_values()))
