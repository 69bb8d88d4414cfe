"""`dpal allow`: the list of what runs from Prefect may use on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel

from dpal.config.runtime import RunConfig
from dpal.config.watch import WatchConfig
from dpal.errors import ConfigError
from flows.cli.read_settings import Settings
from flows.cli.terminal import out

if TYPE_CHECKING:
    from dpal.config.guarded_settings import Guarded, GuardedSetting
    from dpal.config.owner_allow_list import AllowList

EXAMPLE = "Examples: dpal allow clinic.yaml | dpal allow --to stack/allow.yaml watch.yaml"


def allow(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="[FILE.yaml]...", help="Configurations; none shows the list."),
    ] = [],  # noqa: B006
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="LIST", help="The list; usually DPAL_ALLOW, or ~/.config/dpal/allow.yaml."
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006
) -> None:
    """Allow runs from Prefect what configurations need: their files, folders and servers.

    On a worker's machine only what stands in this list may be read, and only there may results
    go. What one configuration needs is allowed together: its files with its folders, and what it
    says of them. A run in a terminal (dpal run) is not limited by it.
    """
    from flows.cli.any_settings import load_any
    from tasks.allow_list import allow_file, read_allow_list, write_allow_list

    if settings and len(files) != 1:
        raise ConfigError("--set changes one configuration; name one FILE.yaml with it")
    place = to.absolute() if to else allow_file()
    before, configs = read_allow_list(place), [load_any(file, settings) for file in files]
    allowed = extended_for(before, configs)
    if allowed != before:
        write_allow_list(place, allowed)
    if allowed.is_empty:
        out.print(f"{place}: nothing is allowed; add what a configuration needs: dpal allow FILE")
    there, shown = set(before.lines()), ""
    for line in allowed.lines():
        group, key, value = line
        if group != shown:
            shown = group
            out.print(f"together, as {group}:", markup=False)
        new = "  (new)" if line not in there else ""
        indent = "  " if group else ""
        out.print(f"{indent}{key}: {'null' if value is None else value}{new}", markup=False)
    for mistake in faults_of(allowed):
        out.print(f"allows nothing: {mistake}", style="red", markup=False)
    for config in configs:
        if keys := allowed.left_open(settings_to_allow([config])):
            out.print(
                f"{config.name} may also run without its {', '.join(keys)}: another group allows "
                "its files so; take them out of there",
                style="red",
                markup=False,
            )
    if not allowed.is_empty:
        out.print(f"that is what runs from Prefect may use here, by {place}", markup=False)


def extended_for(allowed: AllowList, configs: Sequence[RunConfig | WatchConfig]) -> AllowList:
    """A list in which each configuration fits a group: one that is there, or a new one."""
    for config in configs:
        allowed = allowed.extended(settings_to_allow([config]), name=config.name)
    return allowed


def settings_to_allow(configs: Sequence[RunConfig | WatchConfig]) -> list[GuardedSetting]:
    """The guarded settings of configurations, and of the campaigns that they start themselves."""
    from dpal.config.guarded_settings import GuardedSetting, guarded_settings
    from dpal.data.inbox.state import WATCHES, WatchFolder

    wanted = [setting for config in configs for setting in guarded_settings(config)]
    for config in configs:
        if isinstance(config, WatchConfig):  # lays the pools of its campaigns out in its folder
            folder = config.campaign.runtime.artifacts.absolute() / WATCHES / config.name
            pools = WatchFolder(folder).pools
            wanted.append(GuardedSetting("data.pool", f"{pools}/", _known()["data.pool"]))
        else:
            wanted += [
                GuardedSetting(key, place.absolute(), _known()[key])
                for key, place in config.files_for_called_flows().items()
            ]
    return wanted


def faults_of(allowed: AllowList) -> list[str]:
    """What stands in a list by mistake, and allows nothing."""
    from dpal.config.owner_allow_list import mistakes

    return mistakes(allowed, _known())


def _known() -> dict[str, Guarded]:
    """All settings that a list may hold."""
    from dpal.config.capc_retraining import RetrainingConfig
    from dpal.config.guarded_settings import Guarded, guarded_keys
    from dpal.config.owner_allow_list import WORKDIR
    from dpal.runs.kinds import KINDS

    own = (kind.settings for kind in KINDS.values())
    schemas: list[type[BaseModel]] = [*own, WatchConfig, RetrainingConfig]
    return {**guarded_keys(*schemas), WORKDIR: Guarded()}
