"""A watch, step by step: look, register, plan, start, tell. Each can be done again."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from prefect.cache_policies import NO_CACHE

from dpal.config.campaign import CampaignConfig
from dpal.config.validation import require_public
from dpal.config.watch import WatchConfig
from dpal.data.inbox.folder import Inbox
from dpal.data.inbox.state import WATCHES, Stage, WatchFolder, WatchState
from dpal.errors import LedgerError, LedgerMissing
from dpal.files.atomic_writes import sweep
from dpal.ledger.data_set_accounts import DataSet, data_sets
from dpal.reports.ledger_tables import blocks_table, limit_in_words
from dpal.reports.ledger_words import left_of_limit
from dpal.reports.render.markdown import block_in_markdown, literal
from dpal.reports.watch_tables import watch_tables
from dpal.runs.count_past_campaigns import earlier_on
from dpal.runs.inbox_scan import InboxScan, missing_files
from dpal.runs.open_ledger import open_ledger
from dpal.runs.open_sources import open_sources
from dpal.runs.plan_new_campaign import registry_of
from dpal.runs.progress_logging import notify
from tasks import watched_runs
from tasks.boundary import task
from tasks.flow_run_page import publish_story


def watch_folder(config: WatchConfig) -> WatchFolder:
    """Where a watch keeps what it remembers."""
    return WatchFolder(config.campaign.runtime.artifacts.resolve() / WATCHES / config.name)


def registered_data_set(config: WatchConfig) -> DataSet:
    """The data set that new files are added to, as the ledger knows it.

    Raises:
      LedgerError: it is not registered; a watch never sets a limit.
    """
    registered: dict[str, DataSet] = {}
    try:
        with closing(open_ledger(config.campaign.runtime, create=False)) as store:
            registered = data_sets(store.verified())
    except LedgerMissing:
        pass  # nothing was ever registered
    if config.dataset not in registered:
        raise LedgerError(
            f"data set {config.dataset} is not registered, and a watch never sets a limit; its "
            f"owner does so once: dpal data register {config.dataset} POOL.parquet --epsilon 8 "
            "(nothing was read or moved)"
        )
    return registered[config.dataset]


@task(cache_policy=NO_CACHE)
def look_into_folder(config: WatchConfig) -> None:
    """Checks the files that are new and have settled, and puts away what cannot be used."""
    require_public(config.campaign)
    folder, dataset = watch_folder(config), registered_data_set(config)
    sweep(folder.root)
    look = InboxScan(config, folder, dataset, Inbox.at(config.folder), folder.read())
    look.finish_quarantine()
    look.at_all(look.inbox.listing(), now=time.time())


@task(cache_policy=NO_CACHE)
def register_files(config: WatchConfig) -> None:
    """Makes the records of newly accepted files a block of the data set."""
    folder = watch_folder(config)
    state = folder.read()
    new = [file for file in state.accepted if not file.registered]
    if not new:
        return
    runtime = config.campaign.runtime
    files = [Path(file.path) for file in new]
    source, _ = open_sources(config.campaign_on("to-register-files", files))
    with closing(open_ledger(runtime, create=False)) as store:
        registry = registry_of(runtime.artifacts, store)
        earlier = earlier_on(source, store, runtime.artifacts, name=config.dataset)
        added = registry.add(config.dataset, source, earlier=earlier)
        block = added.block
        if block is None:  # all was known; or a crash came between the ledger and our state
            block = max(registry.locate(config.dataset, source).sizes(), default=None)
    digests = {file.digest for file in new}
    accepted = tuple(
        replace(file, registered=True, block=block) if file.digest in digests else file
        for file in state.accepted
    )
    folder.write(replace(state, accepted=accepted))
    overlap_note = f"{added.known:,} records of {len(new)} new files were known to it"
    if added.block is None:
        notify(f"data set {config.dataset}: all {overlap_note}")
        return
    notify(
        f"data set {config.dataset}: block {added.block} has {added.new:,} new records with "
        + left_of_limit(added.earlier)
        + (f"; {overlap_note}" if added.known else "")
    )


@task(cache_policy=NO_CACHE)
def follow_campaign(config: WatchConfig) -> None:
    """Finds out how far the last campaign is."""
    folder = watch_folder(config)
    state = folder.read()
    last = state.last
    if last is None or last.stage not in (Stage.STARTED, Stage.STOPPED):
        return
    now = watched_runs.follow_flow_run(config, folder, last)
    if now != last:
        folder.write(state.with_run(now))
        notify(f"campaign {now.name} is {now.stage}" + (f": {now.said}" if now.said else ""))


@task(cache_policy=NO_CACHE)
def plan_campaign(config: WatchConfig) -> None:
    """Plans a campaign on all accepted files, if some are new, within what is left."""
    folder = watch_folder(config)
    state, dataset = folder.read(), registered_data_set(config)
    waits = _nothing_to_plan(config, state, dataset)
    if waits is not None:
        if waits:
            notify(waits)
        return
    run = watched_runs.next_run(config, folder, state, dataset)
    folder.write(state.with_run(run))
    word = f"refused, {run.said}" if run.stage is Stage.REFUSED else f"planned, {run.plan}"
    notify(f"campaign {run.name} on {run.files} files: {word}")


@task(cache_policy=NO_CACHE)
def start_campaign(config: WatchConfig) -> CampaignConfig | None:
    """Starts what is planned: gives it to the workers, where there are any.

    Returns:
      A campaign that this process has to run itself; None where there is none.
    """
    folder = watch_folder(config)
    state = folder.read()
    last = state.last
    if (
        last is None
        or last.stage not in (Stage.PLANNED, Stage.STARTED)
        or (last.stage is Stage.STARTED and last.flow_run)
    ):
        return None
    campaign = watched_runs.current_settings(config, folder, last)
    if watched_runs.is_running_here(campaign):
        notify(f"campaign {last.name} is being run by another process of this machine")
        return None
    deployment = watched_runs.campaign_deployment()
    if deployment is not None:
        run = watched_runs.request_flow_run(last, campaign, deployment)
    else:
        run = replace(last, stage=Stage.STARTED, said="runs in the watching process")
    folder.write(state.with_run(run))
    notify(f"campaign {run.name}: {run.said}")
    return None if run.flow_run else campaign


@task(cache_policy=NO_CACHE)
def count_unheld_as_refused(config: WatchConfig, said: str) -> None:
    """Counts a campaign that failed in this process before it held anything as refused.

    Others may have taken its budget since it was planned. It could neither go on nor be ended, and
    whatever arrives would wait for it; so the next look plans anew.

    Args:
      config: of the watch.
      said: why it failed, in public words.
    """
    folder = watch_folder(config)
    state = folder.read()
    if state.last is not None:
        run = watched_runs.refused_unless_held(config, folder, state.last, said)
        folder.write(state.with_run(run))


@task(cache_policy=NO_CACHE)
def show_watch(config: WatchConfig) -> None:
    """Shows on the Prefect page what the watch found, did and has left."""
    state, dataset = watch_folder(config).read(), registered_data_set(config)
    parts = [
        f"# Watch {config.name}",
        literal(f"{config.folder}: {state.remark}") if state.remark else "",
        literal(describe_watch(config, state)),
    ]
    for table in (*watch_tables(state), blocks_table(dataset)):
        parts += [f"## {table.title}", block_in_markdown(table)]
    parts.append(f"Limit of data set {dataset.name}: {limit_in_words(dataset.limit)}.")
    key = f"watch-{config.name.replace('_', '-')}"
    publish_story(key, "\n\n".join(filter(None, parts)))


def describe_watch(config: WatchConfig, state: WatchState) -> str:
    """How the watch stands, in a sentence."""
    last, total = state.last, len(state.accepted)
    if last is None:
        return "No campaign was started yet; it waits for the first file."
    behind = total - last.files
    waiting = f" {_waiting(behind, 'more')} for the next look." if behind else ""
    word = {
        Stage.PLANNED: "is planned and about to start",
        Stage.STARTED: "is running",
        Stage.FINISHED: "is finished",
        Stage.ENDED: "was ended before its plan was done",
        Stage.STOPPED: "stopped, and a person has to look",
        Stage.REFUSED: "was refused",
    }[last.stage]
    said = f": {said}" if (said := last.said or last.plan) else ""
    files = f"{last.files} file" + "s" * (last.files != 1)
    newest = f"Campaign {last.name} on {files} {word}{said}.{waiting}"
    return f"{_counted(state)} {newest}"


def _waiting(files: int, which: str) -> str:
    if files == 1:
        return f"1 {which} file is registered and waits"
    return f"{files:,} {which} files are registered and wait"


def _counted(state: WatchState) -> str:
    """How many campaigns a watch has had: "3 campaigns: 2 finished, 1 refused."."""
    stages = Counter(run.stage.value for run in state.runs)
    total = "1 campaign" if len(state.runs) == 1 else f"{len(state.runs):,} campaigns"
    return f"{total}: {', '.join(f'{count:,} {stage}' for stage, count in stages.items())}."


def _nothing_to_plan(config: WatchConfig, state: WatchState, dataset: DataSet) -> str | None:
    """Why nothing is planned now, in words or none at all; None where something is."""
    last, total = state.last, len(state.accepted)
    if total == 0:
        return ""
    if last is not None and last.is_open:
        behind = total - last.files
        new = f"; {_waiting(behind, 'new')} for the next look" if behind else ""
        return f"campaign {last.name} is not done{new}"
    if last is not None and last.stage is Stage.REFUSED:
        if last.basis == watched_runs.basis(config, state, dataset):
            return f"campaign {last.name} stays refused: {last.said}"
    elif last is not None and last.files == total:
        return ""
    return missing_files(state.accepted) or None
