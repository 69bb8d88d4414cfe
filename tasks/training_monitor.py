"""Beside a training: shows its progress on the Prefect page, and hears when it is to stop.

All of it in a thread of its own, so that training neither waits for Prefect's server nor ends
with it. Its updates are also the sign of life by which a waiting campaign knows its worker.
"""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from dpal.errors import TrainingStopped
from dpal.runs.host import TrainingMonitor
from tasks.await_prefect_server import has_server

SIGN_OF_LIFE_SECONDS = 10.0
_UPDATE_SECONDS = 2.0
HEARTBEAT_SECONDS = 30  # the least that Prefect sends
HEARTBEAT = "prefect.flow-run.heartbeat"

_ON_DUTY: ContextVar[FlowRunMonitor | None] = ContextVar("attendant", default=None)
_LEADING: ContextVar[UUID | None] = ContextVar("flow run of the campaign", default=None)


class FlowRunMonitor(TrainingMonitor):
    """The page of a flow run, which shows a training and can stop it."""

    def __init__(self, key: str) -> None:
        self._key, self._runs = key, _runs_above()
        self._ordered = _LEADING.get() is None
        self._beats = not self._ordered and has_server()
        self._text, self._progress = "getting ready", 0.0
        self._artifact: UUID | None = None
        self._shown: tuple[str, float] | None = None
        self._terminated, self._cancelled, self._given_up = False, False, False
        self._over = threading.Event()
        context = contextvars.copy_context()  # which server to speak to
        self._thread = threading.Thread(target=context.run, args=(self._attend,), daemon=True)

    def begin(self, text: str) -> None:
        """Says what is being done from here on."""
        self._text = text

    def show(self, progress: float) -> None:
        """Notes how far it is, in percent."""
        self._progress = progress

    def must_stop(self) -> bool:
        """Whether the training is to stop after the step that it is in."""
        return self._terminated or self._cancelled or self._given_up

    def leave(self, where: str) -> None:
        """Ends what was to stop, once everything it had made is persisted.

        Raises:
          TrainingStopped: it was cancelled on the page, or given up for lost there.
          TerminationSignal: the process was told to end; Prefect knows by whom.
        """
        if self._terminated and self._runs:
            # Prefect tells its own handler alone why; the run's state says it as well.
            with suppress(Exception):
                self._listen()
        if self._cancelled or self._given_up:
            how = "cancelled" if self._cancelled else "given up for lost"
            raise TrainingStopped(
                f"{where} was {how}; what is persisted stays paid and is not lost, run the same "
                "command again to go on"
            )
        if self._terminated:
            raise TerminationSignal(signal.SIGTERM)

    def start(self) -> None:
        """Begins to show and to listen."""
        self._thread.start()

    def end(self) -> None:
        """Shows where it ended, unless the server does not answer now."""
        self._over.set()
        self._thread.join(timeout=2 * _UPDATE_SECONDS)

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        """A process that is told to end finishes its step first."""
        self._terminated = True

    def _attend(self) -> None:
        if not self._runs:  # outside of a flow nobody looks, and there may be no server
            return
        since, beaten = 0.0, float(HEARTBEAT_SECONDS)
        while not self._over.wait(_UPDATE_SECONDS):
            since, beaten = since + _UPDATE_SECONDS, beaten + _UPDATE_SECONDS
            with suppress(Exception):  # the server is away; it is asked again
                if self._beats and beaten >= HEARTBEAT_SECONDS:
                    _beat()
                    beaten = 0.0
                if (self._text, self._progress) != self._shown or since >= SIGN_OF_LIFE_SECONDS:
                    self._publish()
                    since = 0.0
                self._listen()
        with suppress(Exception):
            if (self._text, self._progress) != self._shown:
                self._publish()

    def _publish(self) -> None:
        now = self._text, self._progress
        if self._artifact is None:
            made: Any = create_progress_artifact(
                progress=self._progress, key=self._key, description=self._text
            )
            self._artifact = made if isinstance(made, UUID) else None
        else:
            update_progress_artifact(self._artifact, self._progress, description=self._text)
        self._shown = now

    def _listen(self) -> None:
        """Whether a run was cancelled, or given up for lost by whoever ordered it."""
        with get_client(sync_client=True) as client:
            for run in self._runs:
                state = client.read_flow_run(run).state
                if state is not None and (state.is_cancelling() or state.is_cancelled()):
                    self._cancelled = True
                elif state is not None and state.is_final() and self._ordered:
                    self._given_up = True


@contextmanager
def monitoring_training(phase: str) -> Iterator[FlowRunMonitor]:
    """The attendant of a phase's training: the one on duty, or one for this block.

    Within the block a signal to end only takes effect after the step that is being made.
    """
    if (on_duty := _ON_DUTY.get()) is not None:
        yield on_duty
        return
    attendant = FlowRunMonitor(f"{phase}-training")
    token = _ON_DUTY.set(attendant)
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, attendant.terminate) if here else None
    attendant.start()
    try:
        yield attendant
    finally:
        attendant.end()
        if here:
            signal.signal(signal.SIGTERM, before)
        _ON_DUTY.reset(token)


@contextmanager
def watching_for_cancellation() -> Iterator[None]:
    """Within this block trainings also stop when the flow run around it is cancelled."""
    context = FlowRunContext.get()
    run = context.flow_run.id if context and context.flow_run else None
    token = _LEADING.set(run)
    try:
        yield
    finally:
        _LEADING.reset(token)


@contextmanager
def without_heart() -> Iterator[None]:
    """Within this block flow runs have no heartbeat of Prefect's; an attendant's takes its place.

    Prefect's ends up to a second after its run, and whoever called the run waits for it.
    """
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _beat() -> None:
    """The event that Prefect sends for a flow run that is alive; the automations wait for it."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    run = context.flow_run
    emit_event(
        event=HEARTBEAT,
        resource={
            "prefect.resource.id": f"prefect.flow-run.{run.id}",
            "prefect.resource.name": run.name,
        },
        related=[
            {
                "prefect.resource.id": f"prefect.flow.{run.flow_id}",
                "prefect.resource.role": "flow",
                "prefect.resource.name": context.flow.name if context.flow else "",
            }
        ],
    )


def _runs_above() -> list[UUID]:
    """The flow run that trains, and the campaign's where it is in the same process."""
    context = FlowRunContext.get()
    own = context.flow_run.id if context and context.flow_run else None
    return [run for run in dict.fromkeys([own, _LEADING.get()]) if run is not None]
