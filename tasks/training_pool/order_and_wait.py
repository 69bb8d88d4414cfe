"""Trainings that workers of a pool do: ordered once, and again where a worker is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from dpal.errors import TrainingLost, TrainingStopped
from dpal.files.object_store import ArtifactRef
from dpal.ledger.folder_lock import lend_lock
from dpal.runs.progress_logging import notify
from tasks.await_prefect_server import has_server, retry_while_prefect_is_down
from tasks.training_pool.wait_for_training import artifacts_of, wait_for

RECEIPT = "receipt"
_TRIES_WITHOUT_PROGRESS = 3
_PAGE = 200  # the most that the server gives at once
_AGAIN = "run the same command again to go on"


@dataclass(frozen=True, kw_only=True)
class PoolTraining:
    """A training that workers of a pool are to do.

    Attributes:
      pool: the workers'.
      flow: that trains, deployed under the pool's name.
      what: is trained, for messages.
      order: the flow's parameter of that name; it may be seen.
      tags: find its flow runs, and no others.
      standing: how far it got, in a number that only grows, and whether it is done.
      further: from where the next one goes on, in words, given how far it got; may be empty.
      keeps: what becomes of what a lost one had made, in words.
    """

    pool: str
    flow: str
    what: str
    order: Mapping[str, Any]
    tags: Sequence[str]
    standing: Callable[[], tuple[int, bool]]
    further: Callable[[int], str]
    keeps: str


def train_elsewhere(training: PoolTraining, folder: Path) -> None:
    """Has a worker train, again if it is lost, until it is done.

    While it trains the folder's lock is the worker's; this process releases nothing.

    Args:
      training: what is wanted.
      folder: of the run, locked by this process.

    Raises:
      TrainingLost: it failed, or was lost too often without getting any further.
      TrainingStopped: it was cancelled.
    """
    if not has_server():
        raise TrainingLost.before_release(
            f"runtime.training_pool is {training.pool}, and its workers hear of work from a "
            "Prefect server; start one (dpal serve) and set PREFECT_API_URL"
        )
    lost = 0
    reached, done = training.standing()
    with lend_lock(folder):
        while not done:
            run = wait_for(_ordered(training), training.pool, training.what)
            before = reached
            reached, done = training.standing()
            lost = 1 if reached > before else lost + 1
            if not done:
                _require_lost(run, training)
                _require_worth_another(run, training, lost)
                notify(f"{training.what}: its worker was lost ({_reason(run)}); nothing else was, "
                    f"it is ordered again{training.further(reached)}")  # fmt: skip


def wait_for_ordered(tags: Sequence[str], pool: str) -> None:
    """Waits for trainings that an earlier process of a run ordered.

    Args:
      tags: of the run that they belong to.
      pool: whose workers have them.
    """
    for run in _runs(tags) if tags and has_server() else []:
        if _is_on_its_way(run):
            notify(f"{run.name} was ordered earlier and is still on its way; waiting for it")
            wait_for(run, pool, run.name)


def give_receipt(refs: Sequence[ArtifactRef], description: str) -> None:
    """Shows on a worker's page what it made, for whoever ordered it."""
    create_table_artifact(
        table=[{"name": ref.name, "url": ref.url, "sha256": ref.sha256} for ref in refs],
        key=RECEIPT,
        description=description,
    )


def find_receipt(tags: Sequence[str]) -> tuple[ArtifactRef, ...]:
    """What the worker that ended a training says it made; empty if it was killed before that."""
    for run in _runs(tags):
        for artifact in retry_while_prefect_is_down(
            lambda client, run=run: artifacts_of(client, run.id)  # type: ignore[misc]
        ):
            if artifact.key == RECEIPT:
                rows = (
                    json.loads(artifact.data) if isinstance(artifact.data, str) else artifact.data
                )
                return tuple(ArtifactRef(**row) for row in cast(list[dict[str, str]], rows))
    return ()


def _runs(tags: Sequence[str]) -> list[FlowRun]:
    """All runs with these tags, the newest first."""
    only = FlowRunFilter(tags=FlowRunFilterTags(all_=list(tags)))
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    return retry_while_prefect_is_down(
        lambda client: client.read_flow_runs(flow_run_filter=only, sort=newest, limit=_PAGE)
    )


def _is_on_its_way(run: FlowRun) -> bool:
    return run.state is None or not run.state.is_final()


def _ordered(training: PoolTraining) -> FlowRun:
    """Orders a training, or finds the one that is on its way."""
    before, pool = _runs(training.tags), training.pool
    for run in before:
        if _is_on_its_way(run):
            notify(f"{training.what} is being trained already; waiting for {run.name}")
            return run
    deployment = f"{training.flow}/{pool}"
    try:
        ordered: Any = retry_while_prefect_is_down(
            lambda _: run_deployment(
                deployment,
                parameters={"order": dict(training.order)},
                timeout=0,
                tags=list(training.tags),
                # The same order again, after a lost answer, starts nothing new.
                idempotency_key=":".join([*training.tags, str(len(before) + 1)]),
            )
        )
    except ObjectNotFound as error:
        raise TrainingLost.before_release(
            f"Prefect knows no deployment {deployment}, so nobody trains for "
            f"runtime.training_pool {pool}; run: dpal deploy"
        ) from error
    except PrefectHTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise
        raise TrainingLost.before_release(
            f"the deployment {deployment} is of another version of dpal and does not take "
            "this order; run: dpal deploy"
        ) from error
    flow_run: FlowRun = ordered
    notify(f"{training.what} is ordered from work pool {pool}: flow run {flow_run.name}")
    return flow_run


def _require_lost(run: FlowRun, training: PoolTraining) -> None:
    """Whoever was cancelled, or failed by itself, is not ordered again."""
    state, what, pool = run.state, training.what, training.pool
    if state is not None and state.is_cancelled():
        raise TrainingStopped(
            f"{what} was cancelled on work pool {pool}; {training.keeps}, {_AGAIN}"
        )
    if state is not None and state.is_completed():
        raise TrainingLost(
            f"{what} ended on work pool {pool} (flow run {run.name}) and what it made is not "
            "here; let its machine and this one share the artifacts folder, or set runtime.store"
        )
    if state is not None and not state.is_crashed():
        raise TrainingLost(
            f"{what} did not end on work pool {pool} (flow run {run.name}): {_reason(run)}"
        )


def _require_worth_another(run: FlowRun, training: PoolTraining, lost: int) -> None:
    if lost >= _TRIES_WITHOUT_PROGRESS:
        raise TrainingLost(
            f"{training.what} was lost {lost} times on work pool {training.pool} without getting "
            f"any further (at last: {_reason(run)}); {training.keeps}, look at its workers "
            f"(memory, disk, device), then {_AGAIN}"
        )


def _reason(run: FlowRun) -> str:
    said = (run.state.message if run.state else None) or "no reason was given"
    first = said.removeprefix("Flow run encountered an exception: ").splitlines()[0]
    return first[:400].rstrip(". ")
