"""Configurations with absolute paths, so that they mean the same from any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpal.config.campaign import CampaignConfig
from dpal.config.data import DataConfig
from dpal.config.runtime import RuntimeConfig


def with_absolute_paths(config: CampaignConfig) -> CampaignConfig:
    """The configuration with absolute paths, so that it means the same from any folder."""
    weights = config.model.weights and config.model.weights.resolve()
    return config.model_copy(
        update={
            "data": absolute_paths(config.data),
            "model": config.model.model_copy(update={"weights": weights}),
            "runtime": absolute_remote(config.runtime),
        }
    )


def absolute_remote(runtime: RuntimeConfig) -> RuntimeConfig:
    """The runtime section with an absolute path to DVC's remote; a URL stays as it is."""
    remote = runtime.dvc_remote
    if remote and "://" not in remote:
        remote = str(Path(remote).resolve())
    return runtime.model_copy(update={"dvc_remote": remote})


def absolute_paths(data: DataConfig) -> DataConfig:
    """The data section with absolute paths."""
    pool, backbone = data.pool, data.backbone
    places: dict[str, Any] = {
        "pool": [one.resolve() for one in pool] if isinstance(pool, list) else pool.resolve(),
        "validation": data.validation.resolve(),
    }
    if backbone is not None:
        places["backbone"] = backbone.model_copy(update={"weights": backbone.weights.resolve()})
    return data.model_copy(update=places)
