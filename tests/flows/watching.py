"""A small watch, and its steps without a flow around them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpal.config.campaign import RuntimeConfig
from dpal.config.watch import WatchConfig, parse_watch
from dpal.data.inbox.state import Stage, WatchedCampaign, WatchFolder, WatchState
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import DataSet
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs import manage_data_sets
from dpal.runs.open_ledger import open_ledger
from dpal.runs.prepare_campaign import prepare
from tasks.campaign import hold_budget
from tasks.watch import (
    follow_campaign,
    look_into_folder,
    plan_campaign,
    register_files,
    start_campaign,
    watch_folder,
)
from tasks.watched_runs import settings_of
from tests.conftest import small_values

PRIVACY = {"selection": "visible", "epsilon": 5.0, "delta": 1e-4}
SCHEDULE = {"initial": 100, "queries": [], "batch_size": 50, "epochs_per_phase": 2}


def watch_values(**changes: Any) -> dict[str, Any]:
    """Settings of a watch on `inbox`; changes have dotted keys with __."""
    campaign = small_values(privacy=dict(PRIVACY), schedule=dict(SCHEDULE), acquisition="random")
    campaign["data"].pop("pool")
    campaign.pop("name")
    values: dict[str, Any] = {
        "name": "clinic",
        "folder": "inbox",
        "dataset": "clinic",
        "settle_seconds": 0,
        "unfinished_seconds": 0,
        "campaign": campaign,
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        section = values
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value
    return values


def small_watch(**changes: Any) -> WatchConfig:
    """The same, checked."""
    return parse_watch(watch_values(**changes))


def register(*files: Path, epsilon: float = 8.0) -> None:
    """Registers the data set clinic, as its owner."""
    from dpal.accounting.renyi_filter import RenyiFilter
    from dpal.ledger.data_set_accounts import Limit
    from dpal.privacy import Adjacency, Unit

    limit = Limit(
        filter=RenyiFilter.fitted(epsilon, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    manage_data_sets.register_data_set("clinic", limit, list(files), RuntimeConfig())


def known() -> DataSet:
    """What the ledger knows of it."""
    return manage_data_sets.registered(RuntimeConfig())["clinic"]


def look(config: WatchConfig) -> WatchState:
    """One look, up to the start of a campaign, which nobody runs here."""
    for step in (look_into_folder, register_files, follow_campaign, plan_campaign, start_campaign):
        step.fn(config)
    return remembered(config)


def gather(config: WatchConfig) -> WatchState:
    """The first part of a look: files are accepted and registered, and nothing is planned."""
    look_into_folder.fn(config)
    register_files.fn(config)
    return remembered(config)


def remembered(config: WatchConfig) -> WatchState:
    """What the watch remembers."""
    folder: WatchFolder = watch_folder(config)
    return folder.read()


def last_run(state: WatchState) -> WatchedCampaign:
    """The campaign that was planned last."""
    assert state.last is not None
    return state.last


def spend(config: WatchConfig, state: WatchState) -> None:
    """Lets the last campaign be one that took all it had planned, without training anything."""
    run, folder = last_run(state), watch_folder(config)
    campaign = prepare(settings_of(folder, run))
    root = campaign.folder.root
    with lock_folder(root):
        hold_budget.fn(campaign)
    folder.write(remembered(config).with_run(replace(run, stage=Stage.ENDED)))
    assert CampaignFolder(root).read_record()
    with closing(open_ledger(campaign.config.runtime)) as store:
        assert CampaignLedger(store, run.name, root).identity


def end_early(config: WatchConfig, state: WatchState, said: Mapping[str, Any]) -> None:
    """Ends the last campaign before any of its phases, with what an END says of why."""
    campaign = prepare(settings_of(watch_folder(config), last_run(state)))
    with lock_folder(campaign.folder.root):
        hold_budget.fn(campaign)
        with campaign.ledger() as ledger:
            ledger.end(said)
