"""Configurations with absolute paths, so that they mean the same from any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from dpal.config.runtime import RunConfig, RuntimeConfig

Config = TypeVar("Config", bound=RunConfig)
_Section = TypeVar("_Section", bound=BaseModel)


def with_absolute_paths(config: Config) -> Config:
    """The configuration with every path absolute, whatever kind of run it is of.

    Of the runtime section only DVC's remote is: a record lies in the artifacts folder and is found
    by that, and the ledger and the anchors are of the machine.
    """
    resolved = {name: _absolute(value) for name, value in config if name != "runtime"}
    return config.model_copy(update=resolved | {"runtime": _with_absolute_remote(config.runtime)})


def _resolved(section: _Section) -> _Section:
    return section.model_copy(update={name: _absolute(value) for name, value in section})


def _absolute(value: Any) -> Any:
    if isinstance(value, Path):
        return value.resolve()
    if isinstance(value, BaseModel):
        return _resolved(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_absolute, value))
    if isinstance(value, dict):
        return {key: _absolute(each) for key, each in value.items()}
    return value


def _with_absolute_remote(runtime: RuntimeConfig) -> RuntimeConfig:
    """A URL stays as it is."""
    remote = runtime.dvc_remote
    if remote and "://" not in remote:
        remote = str(Path(remote).resolve())
    return runtime.model_copy(update={"dvc_remote": remote})
