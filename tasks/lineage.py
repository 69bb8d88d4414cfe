"""OpenLineage: what ran on which files, what it made and promised, told where somebody listens.

Off unless the extra `lineage` is installed and OpenLineage is configured, as its users configure
it everywhere. Events are sent beside the run, which waits for them at its end, PATIENCE seconds in
all; a lineage server that is dead, slow or set up wrongly stops nothing.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.runtime import flow_run

from dpal.config.runtime import RunConfig
from dpal.errors import TrainingStopped
from dpal.runs.kinds import KINDS
from dpal.runs.lineage_facts import files_made, files_read, promise_facts
from dpal.runs.progress_logging import notify
from dpal.runs.run import Run
from tasks.boundary import is_public
from tasks.tracking.mlflow_run import day_of_plan

PATIENCE = 5.0  # seconds that a run waits for its events at its end, in all

_NAMESPACE = "OPENLINEAGE_NAMESPACE"
_SETTINGS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_FILES = (Path("openlineage.yml"), Path("~/.openlineage/openlineage.yml"))

Tell = Callable[[], None]


def is_listened_to() -> bool:
    """Whether the library is installed, and told where events go."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(name.startswith(_SETTINGS) for name in os.environ)
    listed = named or any(file.expanduser().is_file() for file in _FILES)
    return listed and find_spec("openlineage") is not None


@contextmanager
def told_to_lineage(run: Run[Any], config: RunConfig) -> Iterator[Tell]:
    """Within this block a run is told of: that it starts, goes on, and how it ends.

    Args:
      run: certified, held or not.
      config: its settings.

    Yields:
      What tells that more was released by now.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or not is_listened_to():
        yield lambda: None
        return
    events = _Events(run, config, context)
    events.tell("RUNNING" if _goes_on() else "START")
    try:
        yield lambda: events.tell("RUNNING")
    except Pause:  # it goes on when people have labeled
        raise
    except BaseException as error:
        stopped = isinstance(error, TrainingStopped) or not isinstance(error, Exception)
        why = str(error) if is_public(error) else "its flow run's page says more"
        events.tell("ABORT" if stopped else "FAIL", why)
        raise
    else:
        events.tell("COMPLETE")
    finally:
        events.finish()


def _goes_on() -> bool:
    """Whether this flow run ran before, and waited for people or died."""
    with suppress(Exception), get_client(sync_client=True) as client:  # it may be away
        states = client.read_flow_run_states(UUID(flow_run.get_id()))
        return sum(state.is_running() for state in states) > 1
    return False


class _Events:
    """Events of one execution, sent by a thread of their own in the order in which they came."""

    def __init__(self, run: Run[Any], config: RunConfig, context: FlowRunContext) -> None:
        self._run, self._config, self._context = run, config, context
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._told = self._taken = 0
        self._sender = threading.Thread(target=self._send, name="openlineage", daemon=True)
        self._sender.start()

    def tell(self, state: str, why: str = "") -> None:
        """Notes an event. What goes wrong with it is said at the end, and concerns nobody else."""
        self._told += 1
        with suppress(Exception):  # counted as lost
            self._waiting.put(self._event(state, why))

    def finish(self) -> None:
        """Waits for what is on its way, and says what did not arrive."""
        self._waiting.put(None)
        self._sender.join(PATIENCE)
        if lost := self._told - self._taken:
            notify(
                f"OpenLineage did not take {lost} of {self._told} events of this run (waited "
                f"{PATIENCE:g} s at most); see where OPENLINEAGE_URL or openlineage.yml lead, "
                "nothing else is affected"
            )

    def _event(self, state: str, why: str) -> Any:
        from tasks.lineage_events import Execution

        run, number = self._run, flow_run.get_id()
        released = len(run.released())
        return Execution(
            namespace=os.environ.get(_NAMESPACE, "dpal"),
            kind=run.kind,
            name=run.name,
            about=KINDS[run.kind].does,
            flow=self._context.flow.name if self._context.flow else run.kind,
            flow_run=str(number),
            promise=promise_facts(run),
        ).event(
            state,
            day=day_of_plan([run.name], run.known_entries()),
            step={"START": 0, "RUNNING": 1}.get(state, 2) + released,
            read=files_read(run, self._config),
            made=files_made(run),
            why=why,
        )

    def _send(self) -> None:
        client: Any = None
        while (event := self._waiting.get()) is not None:
            with suppress(Exception):  # counted as lost
                if client is None:
                    from tasks.lineage_events import OpenLineageClient

                    client = OpenLineageClient()
                client.emit(event)
                self._taken += 1
        if client is not None:
            client.close(PATIENCE)
