"""The list by which the data's owner limits runs from Prefect on this machine: found and applied.

Whoever may start a run chooses its settings. Those that decide who sees records or where they
go are compared with the owner's list before anything is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import yaml
from prefect.context import FlowRunContext
from pydantic import BaseModel

from dpal.config.guarded_settings import Guarded, GuardedSetting, guarded_settings, unmarked_paths
from dpal.config.owner_allow_list import WORKDIR, AllowList, listed_value, parse_allow_list
from dpal.errors import AllowListError, ConfigError, NotAllowed
from dpal.files.atomic_writes import write_text

ALLOW = "DPAL_ALLOW"  # in a worker's environment: where the list is
ASKED_FOLDER = "DPAL_ASKED_FOLDER"  # set by a worker that was asked to work in another folder

_PLACE = Guarded()


def allow_file() -> Path:
    """Where this machine's list is: as DPAL_ALLOW says, else in this user's settings."""
    if named := os.environ.get(ALLOW):
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "dpal" / "allow.yaml"


def read_allow_list(file: Path) -> AllowList:
    """Reads a list; one that is not there allows nothing.

    Raises:
      AllowListError: others could have written it, or it is no list.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            _require_owners_own(file, os.fstat(opened.fileno()))
            _require_owners_own(file, file.resolve().parent.stat())
            text = opened.read()
    except FileNotFoundError:
        return AllowList()
    except (OSError, UnicodeDecodeError) as error:
        raise AllowListError(str(file), f"cannot be read ({type(error).__name__})") from error
    return parse_allow_list(text, file)


def write_allow_list(file: Path, allowed: AllowList) -> None:
    """Writes a list for its owner alone, in one step."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(file, allowed.as_text())
    file.chmod(0o600)


def require_allowed(*configs: BaseModel, artifacts: Path | None = None) -> None:
    """Refuses settings that the owner has not allowed, in a run that comes from Prefect.

    A run that a person started in a terminal or from Python is not limited.

    Args:
      configs: configurations that the run was given.
      artifacts: folder of campaigns, of a run that is given no more than that.

    Raises:
      ConfigError: a path among the settings is none that a list speaks of. Nothing was read.
      NotAllowed: the list does not allow one of them. Nothing was read.
      AllowListError: the list cannot be relied on.
    """
    if comes_from_prefect():
        require_listed(*configs, artifacts=artifacts)


def require_listed(*configs: BaseModel, artifacts: Path | None = None) -> None:
    """Refuses settings that the owner has not allowed, wherever this process was started.

    For settings that were read from Prefect's server.

    Raises:
      ConfigError, NotAllowed, AllowListError: as `require_allowed`. Nothing was read.
    """
    for config in configs:
        if unmarked := unmarked_paths(type(config)):
            raise ConfigError.before_release(
                f"{', '.join(unmarked)} of {type(config).__name__} may name any file, and no list "
                "of the owner speaks of it; mark it with dpal.config.guarded_settings.Guarded"
            )
    wanted = [setting for config in configs for setting in guarded_settings(config)]
    if artifacts is not None:
        wanted.append(GuardedSetting("runtime.artifacts", artifacts, _PLACE))
    if folder := os.environ.get(ASKED_FOLDER):
        wanted.insert(0, GuardedSetting(WORKDIR, folder, _PLACE))
    file = allow_file()
    group, refused = read_allow_list(file).nearest(wanted)
    if refused:
        raise _refusal(refused, file, group)


def comes_from_prefect() -> bool:
    """Whether a worker started this flow run: for a page, a schedule or a call of the API.

    Or one that called it: which flows it calls within its own process depends on the server.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return False
    return context.flow_run.deployment_id is not None or "PREFECT__FLOW_RUN_ID" in os.environ


def _refusal(refused: list[GuardedSetting], file: Path, group: str) -> NotAllowed:
    first = refused[0]
    value = listed_value(first)
    said = "null" if value is None else str(value).lower() if value is True else str(value)
    line = yaml.safe_dump({first.key: [value]}, default_flow_style=True, width=10_000)
    others = {setting.key for setting in refused} - {first.key}
    return NotAllowed(first.key, said, line.strip()[1:-1], str(file), len(others), group)


def _require_owners_own(file: Path, about: os.stat_result) -> None:
    """Requires that nobody but this user and root can write a list, or put another in its place."""
    shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if about.st_uid not in (0, os.geteuid()) or (shared and not about.st_mode & stat.S_ISVTX):
        raise AllowListError(
            str(file), "can be written or replaced by others; chmod 600 it and go-w its folder"
        )
