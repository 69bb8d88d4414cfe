"""The desk: one process that notices labels and new files, and starts or resumes flow runs then.

Looking makes no flow run, so that Prefect's list of runs is about campaigns, trainings and votes.
Everything that it knows is on disk, in the ledger or on Prefect's server: killed at any moment,
the next one goes on.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx

from dpal.config.watch import WatchConfig, parse_watch
from dpal.errors import DpalError
from dpal.files.atomic_writes import write_text
from dpal.files.canonical_places import canonical_place
from flows.cli.terminal import err, out
from flows.ops.deployments import TAG
from flows.ops.look_without_run import look_in_process
from flows.ops.prefect_connection import prefect_server
from flows.ops.restricted_worker import folder_asked_for
from tasks.await_prefect_server import has_server
from tasks.wait_for_people import waiting_campaigns

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

VARIABLE = "dpal_desk"  # of Prefect's server: when somebody looked last, for `dpal doctor`
LABELS_SECONDS = 60.0
ALIVE_SECONDS = 300.0  # between two signs of life on the server
_STEP_SECONDS = 1.0
_TOGETHER_SECONDS = 1.0  # calls that come at once are one look
_MEMORY = "desk.json"
_TROUBLE = (DpalError, httpx.HTTPError, RuntimeError, OSError)


@dataclass
class Looked:
    """A watch as the server's deployment describes it, and how far the desk is with it.

    Attributes:
      deployment: of the watch, by which it is started where a person has to see something.
      config: its settings.
      process: that looks now.
      answer: where that process says what was in the way.
    """

    deployment: UUID
    config: WatchConfig
    process: BaseProcess | None = None
    answer: Any = None


@dataclass
class Desk:
    """Looks again and again.

    Attributes:
      artifacts: folder of the campaigns.
      called: set by whoever knows that labels came in.
    """

    artifacts: Path
    called: threading.Event = field(default_factory=threading.Event)
    _watches: dict[str, Looked] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _labels_at: float = 0.0
    _alive_at: float = 0.0

    def work(self) -> None:
        """Until the process ends."""
        while True:
            self.step()
            if self.called.wait(_STEP_SECONDS):
                time.sleep(_TOGETHER_SECONDS)
                self.called.clear()
                self._labels_at = 0.0

    def step(self) -> None:
        """Does what is due now."""
        self._reap()
        now = time.monotonic()
        if now < self._labels_at:
            self._start_due_looks()
            return
        self._labels_at = now + LABELS_SECONDS
        self._attempt("labels", self._look_for_labels)
        self._attempt("watches", self._read_watches)
        self._start_due_looks()
        if now >= self._alive_at:
            self._attempt("server", _tell_alive)
            self._alive_at = now + ALIVE_SECONDS

    def _look_for_labels(self) -> None:
        folders = waiting_campaigns(self.artifacts)
        if not folders:
            return  # before torch is imported: so it is most minutes of the day
        from tasks.collect_waiting import collect_campaign

        for folder in folders:
            collect_campaign.fn(folder.root)

    def _read_watches(self) -> None:
        """Which watches are deployed, not paused, and work in this folder."""
        if not has_server():
            return
        with prefect_server() as client:
            found = dict(_deployed(client))
        for name, looked in found.items():
            before = self._watches.get(name)
            if before is None:
                config = looked.config
                said = f"watch {name}: {config.folder} is looked at {config.rhythm}"
                out.print(said, markup=False)
            else:
                looked.process, looked.answer = before.process, before.answer
        for name in self._watches.keys() - found.keys():
            out.print(f"watch {name} is paused, or no longer deployed here", markup=False)
        self._watches = found

    def _start_due_looks(self) -> None:
        memory, now = self._memory(), datetime.now(UTC)
        for name, looked in self._watches.items():
            if looked.process is not None or not _is_due(looked.config, memory.get(name), now):
                continue
            # Before the look: one that kills this process is not tried again at once.
            memory[name] = now.isoformat()
            self._remember(memory)
            receive, send = multiprocessing.get_context("spawn").Pipe(duplex=False)
            looked.process = multiprocessing.get_context("spawn").Process(
                target=look_in_process,
                args=(looked.config.model_dump(mode="json"), send),
                name=f"look of watch {name}",
                daemon=True,
            )
            looked.process.start()
            send.close()
            looked.answer = receive

    def _reap(self) -> None:
        for name, looked in self._watches.items():
            if looked.process is None or looked.process.is_alive():
                continue
            looked.process.join()
            code, said = looked.process.exitcode, ""
            with suppress(EOFError, OSError):
                said = looked.answer.recv() if looked.answer.poll() else ""
            looked.answer.close()
            looked.process = looked.answer = None
            if code and not said:
                said = f"the look ended with code {code}; the next one goes on from where it was"
            if self._tell(f"watch {name}", said) and said:
                self._attempt(f"run of watch {name}", lambda one=looked: _show_on_page(one))

    def _attempt(self, what: str, work: Any) -> None:
        """Does something that may be in vain now, and says once why."""
        said = ""
        try:
            work()
        except _TROUBLE as error:
            said = error.for_owner() if isinstance(error, DpalError) else str(error)
        self._tell(what, said)

    def _tell(self, what: str, said: str) -> bool:
        """Says what is in the way, or that it is no longer; whether that is news."""
        if self._said.get(what, "") == said:
            return False
        self._said[what] = said
        if said:
            err.print(f"dpal: {what}: {said}", style="red", markup=False)
        else:
            out.print(f"{what}: works again", markup=False)
        return True

    def _memory(self) -> dict[str, str]:
        """When each watch was looked at last."""
        with suppress(FileNotFoundError, ValueError):
            known: dict[str, str] = json.loads((self.artifacts / _MEMORY).read_text("utf-8"))
            return known
        return {}

    def _remember(self, memory: Mapping[str, str]) -> None:
        write_text(self.artifacts / _MEMORY, json.dumps(memory))


@contextmanager
def alone_at_desk(artifacts: Path) -> Iterator[None]:
    """Waits for another desk of this folder to end: it takes over what that one did."""
    artifacts.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(artifacts / ".desk.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            out.print(f"another desk looks after {artifacts}; this one takes over when it ends")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def run_desk(artifacts: Path, host: str = "", port: int | None = None) -> None:
    """Looks after a folder of campaigns until it is interrupted.

    Args:
      artifacts: folder of all campaigns.
      host: to listen on for calls of Label Studio.
      port: likewise; None does not listen.

    Raises:
      ConfigError: the port is taken, or no secret is set.
    """
    from flows.ops.receiver import listening

    desk, said = Desk(artifacts), f"looking after {artifacts} and deployed watches; Ctrl-C ends it"
    if port is not None:  # also beside another desk: looks of two do no harm, and calls are heard
        with listening(host, port, desk.called):
            out.print(said)
            desk.work()
    with alone_at_desk(artifacts):
        out.print(said)
        desk.work()


def _deployed(client: SyncPrefectClient) -> Iterator[tuple[str, Looked]]:
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    wanted, offset = FlowFilter(name=FlowFilterName(any_=["watch"])), 0
    while page := client.read_deployments(flow_filter=wanted, limit=200, offset=offset):
        offset += len(page)
        for deployment in page:
            if (looked := _looked(deployment)) is not None:
                yield looked.config.name, looked


def _looked(deployment: DeploymentResponse) -> Looked | None:
    """A deployed watch that is to be looked at from here."""
    try:
        values = (deployment.parameters or {}).get("config")
        folder, here = folder_asked_for(deployment) or Path.cwd(), Path.cwd()
        if deployment.paused or not values or canonical_place(folder) != canonical_place(here):
            return None
        return Looked(deployment=deployment.id, config=parse_watch(values))
    except Exception:  # of another version, or anything else that somebody told the server
        return None  # a run of the deployment says what is wrong; other watches are looked at


def _is_due(config: WatchConfig, looked: str | None, now: datetime) -> bool:
    """Whether a look is due; the first one at once, unless a cron says when."""
    if looked is None:
        return config.cron is None or config.next_look(now) <= now
    return config.next_look(datetime.fromisoformat(looked)) <= now


def _show_on_page(looked: Looked) -> None:
    """Has a flow run meet what was in the way, where people see it and are told."""
    with prefect_server() as client:
        client.create_flow_run_from_deployment(looked.deployment)


def _tell_alive() -> None:
    """Tells the server that somebody looks, and where."""
    if not has_server():
        return
    told = {
        "looked": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": socket.gethostname(),
        "folder": str(Path.cwd()),
    }
    from prefect.client.schemas.actions import VariableCreate, VariableUpdate

    with prefect_server() as client:
        if client.read_variable_by_name(VARIABLE) is None:
            client.create_variable(VariableCreate(name=VARIABLE, value=told, tags=[TAG]))
        else:
            client.update_variable(VariableUpdate(name=VARIABLE, value=told))
