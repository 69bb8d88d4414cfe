"""Runs of campaigns that a watch starts: which the next one is, and how far the last one is."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Scheduled

from dpal.canonical import digest
from dpal.config.campaign import CampaignConfig
from dpal.config.runtime import RuntimeConfig
from dpal.config.watch import WatchConfig
from dpal.data.inbox.linked_pool import link_pool
from dpal.data.inbox.state import Stage, WatchedCampaign, WatchFolder, WatchState
from dpal.errors import (
    CampaignBusy,
    ConfigError,
    DataBudgetExceeded,
    ParameterError,
    PlanRejected,
)
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.ledger.data_set_accounts import DataSet
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import leading_process
from dpal.ledger.model_choice_and_stopping import is_stopped
from dpal.reports.plain_language import acquisition_chosen
from dpal.reports.plan_and_phase_tables import promise
from dpal.reports.validation_figures import percent
from dpal.runs.absolute_paths import Config, with_absolute_paths
from dpal.runs.devices import require_device
from dpal.runs.kinds import CAMPAIGN, RunKind, parse_as
from dpal.runs.open_ledger import open_ledger
from dpal.runs.plan_new_campaign import CampaignStart
from dpal.runs.prepare_campaign import open_data, plan_opened
from dpal.runs.store_sync import require_store_for_workers
from tasks.await_prefect_server import has_server

DEPLOYMENT = f"{CAMPAIGN.name}/{CAMPAIGN.name}"
_ATTEMPTS = 3  # flow runs asked for, where the one before crashed
_LOST = (StateType.FAILED, StateType.CANCELLED, StateType.CANCELLING, StateType.CRASHED)


def next_run(
    config: WatchConfig, folder: WatchFolder, state: WatchState, dataset: DataSet
) -> WatchedCampaign:
    """Plans the next campaign on all accepted files, within what the data set has left.

    Its settings and its pool are on disk when this returns. Releases nothing.

    Returns:
      The campaign, planned; or refused, with the numbers.

    Raises:
      ConfigError: the settings do not fit those of the campaign before.
      DataError: a file cannot be read.
      LedgerError: the ledger does not know these data.
    """
    files = [Path(file.path) for file in state.accepted]
    name = _next_name(config, state)
    before = [run.name for run in state.runs if run.stage is Stage.FINISHED]
    start_from = before[-1] if before else config.campaign.start_from
    pool = link_pool(files, folder.pool(name))
    campaign = in_any_folder(config.campaign_on(name, pool, start_from=start_from))
    last = state.last
    run = WatchedCampaign(
        name=name,
        files=len(files),
        stage=Stage.PLANNED,
        # A refused one may have been asked for: asking under its key would find that flow run.
        attempt=last.attempt if last is not None and last.name == name else 0,
        basis=basis(config, state, dataset),
    )
    try:
        _require_runnable(campaign.runtime)
    except (ConfigError, ParameterError) as error:
        # Based on nothing, so that each look asks again: a device or a deployment may come.
        return replace(run, stage=Stage.REFUSED, said=str(error), basis="")
    try:
        start = plan_opened(campaign, open_data(campaign))
    except (DataBudgetExceeded, PlanRejected, ParameterError) as error:
        return replace(run, stage=Stage.REFUSED, said=str(error))
    _write_settings(folder, campaign)
    return replace(run, plan=_in_words(start, start_from))


def basis(config: WatchConfig, state: WatchState, dataset: DataSet) -> str:
    """Digest of what a plan is based on: settings, files and what the data set has left."""
    accounts = [
        (account.size, account.taken, account.sole, account.alone, bool(account.counts_as_spent))
        for account in dataset.blocks
    ]
    return digest(
        {
            "campaign": config.campaign.model_dump(mode="json"),
            "files": [file.digest for file in state.accepted],
            "limit": repr(dataset.limit),
            "left": repr(accounts),
        }
    )


def settings_of(folder: WatchFolder, run: WatchedCampaign) -> CampaignConfig:
    """The settings that a campaign was planned with."""
    text = folder.settings(run.name).read_text(encoding="utf-8")
    return CampaignConfig.model_validate_json(text)


def current_settings(
    config: WatchConfig, folder: WatchFolder, run: WatchedCampaign
) -> CampaignConfig:
    """The settings that a campaign begins or goes on with: as planned, where the watch says now.

    As for `dpal run` with a changed file, `runtime` may be another one each time: it decides no
    plan, and a refusal because of it can be mended. The ledger stays, as it holds what the campaign
    has begun. They are on disk when this returns.

    Raises:
      ConfigError: what was planned cannot be run so.
    """
    planned = settings_of(folder, run)
    now = in_any_folder(config.campaign_on(run.name, folder.pool(run.name))).runtime
    now = now.model_copy(update={"ledger": planned.runtime.ledger})
    if now == planned.runtime:
        return planned
    runtime = {"runtime": now.model_dump(mode="json")}
    campaign: CampaignConfig = parse_as(CAMPAIGN, planned.model_dump(mode="json") | runtime)
    _write_settings(folder, campaign)
    return campaign


def in_any_folder(config: Config) -> Config:
    """The same settings for a process that works in another folder."""
    runtime = config.runtime
    here: dict[str, Any] = {"artifacts": runtime.artifacts.resolve()}
    return with_absolute_paths(
        config.model_copy(update={"runtime": runtime.model_copy(update=here)})
    )


def follow_flow_run(
    config: WatchConfig, folder: WatchFolder, run: WatchedCampaign
) -> WatchedCampaign:
    """How far a started campaign is.

    Args:
      config: of the watch.
      folder: the watch's own files.
      run: as it was.
    """
    campaign = current_settings(config, folder, run)
    root = CampaignFolder(campaign.runtime.artifacts / run.name)
    with closing(open_ledger(campaign.runtime, create=False)) as store:
        own = store.entries(run.name)
    kinds = {entry.kind for entry in own}
    if EntryKind.END in kinds:
        planned = len(root.read_record()["plan"]["phases"])
        stopped = any(is_stopped(entry.body) for entry in own if entry.kind is EntryKind.END)
        if stopped or len(root.finished_phases()) == planned:
            return replace(run, stage=Stage.FINISHED, said="")
        return replace(run, stage=Stage.ENDED, said="")
    if not run.flow_run:
        return run
    if not has_server():
        said = "was started as a flow run; set PREFECT_API_URL to learn how far it is"
        return replace(run, said=said)
    flow_run = _flow_run(run.flow_run)
    if flow_run is None or flow_run.state is None or flow_run.state.type is StateType.CRASHED:
        if run.attempt < _ATTEMPTS:
            return replace(run, stage=Stage.PLANNED, said="its flow run was lost; started again")
    elif flow_run.state.type not in _LOST:
        said = f"its flow run is {flow_run.state.name}"
        return replace(run, stage=Stage.STARTED, said=said)
    word = flow_run.state.name if flow_run and flow_run.state else "lost"
    message = (flow_run.state.message if flow_run and flow_run.state else "") or ""
    if EntryKind.HOLD not in kinds:
        said = f"its flow run was {word} before anything was held or released: {message}"
        return replace(run, stage=Stage.REFUSED, said=said)
    said = (
        f"its flow run is {word} ({message}); retry it on its page or go on with: dpal run "
        f"{folder.settings(run.name)}; or end it: dpal end {root.root}. New files wait until then"
    )
    return replace(run, stage=Stage.STOPPED, said=said)


def refused_unless_held(
    config: WatchConfig, folder: WatchFolder, run: WatchedCampaign, said: str
) -> WatchedCampaign:
    """A campaign that failed in this process: refused, if it failed before it held anything.

    Args:
      config: of the watch.
      folder: the watch's own files.
      run: as it was.
      said: why it failed, in public words.
    """
    campaign = current_settings(config, folder, run)
    with closing(open_ledger(campaign.runtime, create=False)) as store:
        if store.entries(run.name, EntryKind.HOLD):
            return run
    # Based on nothing, so that the next look plans it anew: it may have failed for once alone.
    return replace(run, stage=Stage.REFUSED, said=said, basis="")


def is_running_here(campaign: CampaignConfig) -> bool:
    """Whether a process of this machine runs a campaign now."""
    try:
        with leading_process(campaign.runtime.artifacts / campaign.name):
            return False
    except CampaignBusy:
        return True


def campaign_deployment() -> UUID | None:
    """The deployment that runs campaigns; None where there is no server with one."""
    return usual_deployment(CAMPAIGN)


def usual_deployment(kind: RunKind) -> UUID | None:
    """The deployment that runs a kind with any settings; None where there is no server with one."""
    if not has_server():
        return None
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        return client.read_deployment_by_name(f"{kind.name}/{kind.name}").id
    return None


def request_flow_run(
    run: WatchedCampaign, campaign: CampaignConfig, deployment: UUID
) -> WatchedCampaign:
    """Asks for a flow run of a campaign; asking again, after a crash, is the same one."""
    attempt = run.attempt + 1
    values = campaign.model_dump(mode="json")
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run_from_deployment(
            deployment,
            parameters={"config": values},
            state=Scheduled(),
            name=run.name,
            idempotency_key=request_key(run, campaign),
        )
    said = "given to the workers"
    return replace(run, stage=Stage.STARTED, attempt=attempt, flow_run=str(flow_run.id), said=said)


def request_key(run: WatchedCampaign, campaign: CampaignConfig) -> str:
    """What Prefect knows the next request for a campaign by, wherever that is to run."""
    planned = campaign.model_dump(mode="json", exclude={"runtime"})
    return f"watch-{run.name}-{digest(planned)[:16]}-{run.attempt + 1}"


def _require_runnable(runtime: RuntimeConfig) -> None:
    """Requires what a campaign is refused without once it has begun.

    Raises:
      ConfigError: its store may not hold what workers need.
      ParameterError: it would train on this machine, which lacks the device.
    """
    require_store_for_workers(runtime)
    if campaign_deployment() is None:
        require_device(runtime)


def _write_settings(folder: WatchFolder, campaign: CampaignConfig) -> None:
    write_text(folder.settings(campaign.name), campaign.model_dump_json(indent=1) + "\n")


def _flow_run(identity: str) -> FlowRun | None:
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        return client.read_flow_run(UUID(identity))
    return None


def _next_name(config: WatchConfig, state: WatchState) -> str:
    """The next free number; that of a refused one is free, as nothing was held for it."""
    last = state.last
    if last is not None and last.stage is Stage.REFUSED:
        return last.name
    runtime = config.campaign.runtime
    with closing(open_ledger(runtime, create=False)) as store:
        used_names = {entry.campaign for entry in store.entries()}
    number = 1 if last is None else int(last.name.rpartition("-")[2]) + 1
    while True:
        name = f"{config.name}-{number:04d}"
        if name not in used_names and not (runtime.artifacts / name / RECORD).exists():
            return name
        number += 1


def _in_words(start: CampaignStart, start_from: str | None) -> str:
    certified = start.certified
    blocks = ", ".join(
        f"block {share.block} takes part at {percent(share.participation)}"
        for share in certified.plan.spec.blocks
    )
    return (
        f"{certified.epsilon:.4f} of {promise(certified.summary())}; {blocks}"
        + (f"; goes on from {start_from}" if start_from else "")
        + ("" if start.choice is None else f"; {acquisition_chosen(start.choice)}")
    )
