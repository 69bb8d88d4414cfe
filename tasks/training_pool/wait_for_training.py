"""Waiting for a flow run that a worker has: who tells nothing for long is given up for lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import Artifact, FlowRun, State, WorkerStatus
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelling, Crashed

from dpal.errors import TrainingStopped
from dpal.runs.progress_logging import notify
from tasks.await_prefect_server import retry_while_prefect_is_down

MIRRORED = "training"  # key of the artifact that shows a worker's progress on a run's own page
_LOOK_SECONDS = 2.0
_GLANCE_SECONDS = 0.5  # in between, at states alone: how long an end goes unnoticed
_SILENT_SECONDS = 90.0  # nine signs of life missed
_UNSTARTED_SECONDS = 60.0
_CANCEL_SECONDS = 25.0  # of the 30 that Prefect gives to a process which is to end


@dataclass
class _Patience:
    """How long a run has shown nothing new, and whether a person was told.

    Clocks of several machines are never compared: what counts is when something new was seen
    here.
    """

    sign: object = None
    since: float = field(default_factory=time.monotonic)
    told: bool = False

    def silent(self, sign: object) -> float:
        """Seconds since the sign of life was another one."""
        if sign != self.sign:
            self.sign, self.since, self.told = sign, time.monotonic(), False
        return time.monotonic() - self.since


@dataclass
class _Mirror:
    """The training's progress, on the page of the run that waits for it as well."""

    artifact: UUID | None = None
    shown: tuple[object, str | None] | None = None

    def show(self, client: SyncPrefectClient, theirs: Sequence[Artifact]) -> None:
        """Copies the progress of the run that trains, where it is another one."""
        context = FlowRunContext.get()
        progress = next((artifact for artifact in theirs if artifact.type == "progress"), None)
        if progress is None or context is None or context.flow_run is None:
            return
        now = (progress.data, progress.description)
        if now == self.shown:
            return
        own = context.flow_run.id
        with suppress(httpx.HTTPError):  # a page that cannot be written is no reason to stop
            if self.artifact is None:
                there = (one.id for one in artifacts_of(client, own) if one.key == MIRRORED)
                self.artifact = next(there, None)
            told = {"data": progress.data, "description": progress.description}
            if self.artifact is None:
                self.artifact = client.create_artifact(
                    ArtifactCreate(flow_run_id=own, key=MIRRORED, type="progress", **told)
                ).id
            else:
                client.update_artifact(self.artifact, ArtifactUpdate(**told))
            self.shown = now


def wait_for(run: FlowRun, pool: str, what: str) -> FlowRun:
    """Waits until a run has ended or is given up for lost; if the campaign is cancelled, so is it.

    Args:
      run: that a worker has, or will have.
      pool: the workers' pool.
      what: it does, for messages.

    Returns:
      The run with its last state; Crashed where it was given up for lost.

    Raises:
      TrainingStopped: whoever ordered it was cancelled on the page, and the run with it.
    """
    patience, identity, mirror = _Patience(), run.id, _Mirror()
    try:
        while True:
            asked = time.monotonic()
            run, sign = retry_while_prefect_is_down(lambda client: _look(client, identity, mirror))
            if time.monotonic() - asked > _SILENT_SECONDS / 9:
                patience.since = time.monotonic()  # the server was away, and signs with it
            state = run.state
            if state is None or state.is_final():
                return run
            silent = patience.silent(sign)
            if silent > _UNSTARTED_SECONDS and (state.is_scheduled() or state.is_pending()):
                online = retry_while_prefect_is_down(lambda client: _online(client, pool))
                if state.is_pending() and not online:
                    return _give_up(run, f"no worker of work pool {pool} is online")
                if not patience.told:
                    notify(_why_unstarted(what, pool, online, begun=state.is_pending()))
                    patience.told = True
            if silent > _SILENT_SECONDS and (state.is_running() or state.is_cancelling()):
                return _give_up(run, f"it gave no sign of life for {_SILENT_SECONDS:.0f} seconds")
            _require_wanted(what)
            _await_change(identity)
    except TrainingStopped:
        _cancel(run)
        raise
    except TerminationSignal:
        if _is_cancelled():  # else the campaign's process is only moved or restarted
            _cancel(run)
        raise


def _await_change(run: UUID) -> None:
    """Waits until it is time to look again: at once if a state changes, the run's or its own."""
    deadline, context = time.monotonic() + _LOOK_SECONDS, FlowRunContext.get()
    own = context.flow_run.id if context and context.flow_run else run
    both = FlowRunFilter(id=FlowRunFilterId(any_=[run, own]))
    with suppress(httpx.HTTPError, RuntimeError), get_client(sync_client=True) as client:
        before = None
        while time.monotonic() < deadline:
            states = {
                seen.id: seen.state_id for seen in client.read_flow_runs(flow_run_filter=both)
            }
            if states != (before := before or states):
                return
            time.sleep(_GLANCE_SECONDS)
    time.sleep(max(0.0, deadline - time.monotonic()))  # the server is away


def artifacts_of(client: SyncPrefectClient, run: UUID) -> list[Artifact]:
    """What a run has put on its page."""
    # By hand, here and below: the client's own methods send nulls, which the server refuses.
    wanted = {"artifacts": {"flow_run_id": {"any_": [str(run)]}}, "limit": 200}
    answer = client.request("POST", "/artifacts/filter", json=wanted)
    return Artifact.model_validate_list(answer.json())


def _look(
    client: SyncPrefectClient, run: UUID, mirror: _Mirror | None = None
) -> tuple[FlowRun, object]:
    """A run as it is now, and its latest sign of life."""
    flow_run, shown = client.read_flow_run(run), artifacts_of(client, run)
    if mirror is not None:
        mirror.show(client, shown)
    signs = sorted((str(artifact.id), str(artifact.updated)) for artifact in shown)
    return flow_run, (flow_run.state and flow_run.state.id, signs)


def _online(client: SyncPrefectClient, pool: str) -> int:
    answer = client.request(
        "POST",
        "/work_pools/{work_pool_name}/workers/filter",
        path_params={"work_pool_name": pool},
        json={"limit": 200},
    )
    return sum(worker["status"] == WorkerStatus.ONLINE for worker in answer.json())


def _why_unstarted(what: str, pool: str, online: int, *, begun: bool) -> str:
    if begun:
        return f"{what} is still being started by a worker of work pool {pool}"
    if online:
        return f"{what} waits for its turn; workers of work pool {pool} that are online: {online}"
    return (
        f"{what} waits: no worker of work pool {pool} is online; start one with: "
        f"dpal worker {pool} (of containers: prefect worker start --pool {pool})"
    )


def _give_up(run: FlowRun, why: str) -> FlowRun:
    """Tells Prefect, and whatever may be left of the run, that it is lost."""
    state: State = Crashed(message=f"Given up for lost: {why}.")
    retry_while_prefect_is_down(lambda client: client.set_flow_run_state(run.id, state, force=True))
    return retry_while_prefect_is_down(lambda client: client.read_flow_run(run.id))


def _require_wanted(what: str) -> None:
    if _is_cancelled():
        raise TrainingStopped(
            f"the run was cancelled while {what} was trained; what was persisted stays "
            "paid and is not lost, run the same command again to go on"
        )


def _is_cancelled() -> bool:
    """Whether the campaign's own flow run is to end, or was cancelled, on the page."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return False
    own = context.flow_run.id
    state: State | None = retry_while_prefect_is_down(
        lambda client: client.read_flow_run(own)
    ).state
    # Not Crashed: Prefect calls a process silent that lives, when its server was away.
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def _cancel(run: FlowRun) -> None:
    """Cancels a run and waits for it to persist what it made, as long as there is time."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelling())
        while time.monotonic() < deadline:
            state = client.read_flow_run(run.id).state
            if state is None or state.is_final():
                return
            time.sleep(1.0)
