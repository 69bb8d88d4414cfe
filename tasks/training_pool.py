"""Training on a work pool: ordered once, and again where its worker is lost."""

from __future__ import annotations

import json
from typing import Any, cast

import httpx
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from dpal.config.campaign import CampaignConfig
from dpal.errors import LedgerMissing, TrainingLost, TrainingStopped
from dpal.files.object_store import ArtifactRef
from dpal.ledger.campaign_lock import lent
from dpal.ledger.campaign_view import CampaignView
from dpal.planning.plan import Phase
from dpal.runs.campaign_run import Campaign
from dpal.runs.kinds import folder_of
from dpal.runs.notify import notify
from dpal.runs.open_ledger import open_ledger
from tasks.boundary import task
from tasks.prefect_client import has_server, patiently
from tasks.remote_training import RECEIPT, TrainingOrder
from tasks.workers import artifacts_of, wait_for

_TRIES_WITHOUT_PROGRESS = 3
_PAGE = 200  # the most that the server gives at once
_AGAIN = "run the same command again to go on"


@task(retries=0, cache_policy=NO_CACHE)  # it orders again by itself
def train_on_pool(
    campaign: Campaign, phase: Phase, order: TrainingOrder
) -> tuple[ArtifactRef, ...]:
    """Has a worker train a phase, again if it is lost, and returns its receipt.

    While it trains the claim is the worker's; this process releases nothing.

    Raises:
      TrainingLost: it failed, or was lost too often without getting any further.
      TrainingStopped: it was cancelled. What it had made is persisted.
    """
    pool, lost = str(campaign.config.runtime.training_pool), 0
    if not has_server():
        raise TrainingLost.before_release(
            f"runtime.training_pool is {pool}, and its workers hear of work from a Prefect server; "
            "start one (dpal serve) and set PREFECT_API_URL"
        )
    with campaign.ledger() as ledger:
        tags = _tags(ledger, phase.index)
    reached, committed = _standing(campaign, phase)
    with lent(campaign.folder.root):
        while not committed:
            run = wait_for(_ordered(order, pool, tags), pool, phase.name)
            before = reached
            reached, committed = _standing(campaign, phase)
            lost = 1 if reached > before else lost + 1
            if not committed:
                _require_lost(run, pool, phase)
                _require_worth_another(run, pool, phase, lost)
                notify(f"{phase.name}: its worker was lost ({_reason(run)}); nothing else was, it "
                    f"is ordered again and goes on after {reached:,} of {phase.steps:,} "
                    "steps")  # fmt: skip
    return _receipt(tags)


def wait_for_earlier(config: CampaignConfig) -> None:
    """Waits for a training that a process of this campaign ordered before it was killed."""
    pool = config.runtime.training_pool
    if pool is None or not has_server():
        return
    try:
        store = open_ledger(config.runtime, create=False)
    except LedgerMissing:
        return
    try:
        view = CampaignView(store, config.name, folder_of(config).root)
        tags = _tags(view) if view.identity else []
    finally:
        store.close()
    for run in _runs(tags) if tags else []:
        if _is_on_its_way(run):
            notify(f"{run.name} was ordered earlier and is still on its way; waiting for it")
            wait_for(run, pool, run.name)


def _standing(campaign: Campaign, phase: Phase) -> tuple[int, bool]:
    """How many steps of a phase are persisted, and whether it is committed."""
    with campaign.ledger() as ledger:
        release = phase.training_release
        return ledger.persisted_steps(release), ledger.committed(release) is not None


def _tags(view: CampaignView, phase: int | None = None) -> list[str]:
    """What finds the runs that train for a campaign; no other campaign has them."""
    own = [f"dpal:{(view.identity or '')[:32]}"]
    return own if phase is None else [*own, f"phase-{phase}"]


def _runs(tags: list[str]) -> list[FlowRun]:
    """All runs with these tags, the newest first."""
    only = FlowRunFilter(tags=FlowRunFilterTags(all_=tags))
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    return patiently(
        lambda client: client.read_flow_runs(flow_run_filter=only, sort=newest, limit=_PAGE)
    )


def _is_on_its_way(run: FlowRun) -> bool:
    return run.state is None or not run.state.is_final()


def _ordered(order: TrainingOrder, pool: str, tags: list[str]) -> FlowRun:
    """Orders a training, or finds the one that is on its way."""
    before = _runs(tags)
    for run in before:
        if _is_on_its_way(run):
            notify(f"phase-{order.phase} is being trained already; waiting for {run.name}")
            return run
    try:
        ordered: Any = patiently(
            lambda _: run_deployment(
                f"train-phase/{pool}",
                parameters={"order": order.as_json()},
                timeout=0,
                tags=tags,
                # The same order again, after a lost answer, starts nothing new.
                idempotency_key=":".join([*tags, str(len(before) + 1)]),
            )
        )
    except ObjectNotFound as error:
        raise TrainingLost.before_release(
            f"Prefect knows no deployment train-phase/{pool}, so nobody trains for "
            f"runtime.training_pool {pool}; run: dpal deploy"
        ) from error
    except PrefectHTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise
        raise TrainingLost.before_release(
            f"the deployment train-phase/{pool} is of another version of dpal and does not take "
            "this order; run: dpal deploy"
        ) from error
    found: FlowRun = ordered
    notify(f"phase-{order.phase} is ordered from work pool {pool}: flow run {found.name}")
    return found


def _require_lost(run: FlowRun, pool: str, phase: Phase) -> None:
    """Whoever was cancelled, or failed by itself, is not ordered again."""
    state = run.state
    if state is not None and state.is_cancelled():
        raise TrainingStopped(
            f"{phase.name} was cancelled on work pool {pool}; what it had made is persisted and "
            f"stays paid, {_AGAIN}"
        )
    if state is not None and not state.is_crashed():
        raise TrainingLost(
            f"{phase.name} did not end on work pool {pool} (flow run {run.name}): {_reason(run)}"
        )


def _require_worth_another(run: FlowRun, pool: str, phase: Phase, lost: int) -> None:
    if lost >= _TRIES_WITHOUT_PROGRESS:
        raise TrainingLost(
            f"{phase.name} was lost {lost} times on work pool {pool} without getting any further "
            f"(at last: {_reason(run)}); what it had made is persisted and stays paid, look at "
            f"its workers (memory, disk, device), then {_AGAIN}"
        )


def _reason(run: FlowRun) -> str:
    said = (run.state.message if run.state else None) or "no reason was given"
    first = said.removeprefix("Flow run encountered an exception: ").splitlines()[0]
    return first[:400].rstrip(". ")


def _receipt(tags: list[str]) -> tuple[ArtifactRef, ...]:
    """What the worker that ended the phase says it made; empty if it was killed before that."""
    for run in _runs(tags):
        for one in patiently(lambda client, run=run: artifacts_of(client, run.id)):  # type: ignore[misc]
            if one.key == RECEIPT:
                rows = json.loads(one.data) if isinstance(one.data, str) else one.data
                return tuple(ArtifactRef(**row) for row in cast(list[dict[str, str]], rows))
    return ()
