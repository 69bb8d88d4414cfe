"""A Prefect server, workers and campaigns of their own, all real and all killable."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from dpal.errors import LedgerMissing
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import ROOT, command, write_blobs, write_config

Found = TypeVar("Found")

# One phase of some thousand quick steps: long enough to be killed in the middle.
LONG = {
    "schedule__initial": 100,
    "schedule__queries": [],
    "schedule__epochs_per_phase": 1500,
    "runtime__training_pool": "gpu",
    "runtime__checkpoint_steps": 100,
}
_CAMPAIGN = {"name": {"any_": ["campaign"]}}


def start_logged(
    log: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own, in the folder of its log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            arguments,
            cwd=log.parent,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


class Site:
    """One folder with its own server; processes are started, and killed, by the test."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.api = folder, f"http://127.0.0.1:{self.port}/api"
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "false",  # asked without Prefect's client
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            "COLUMNS": "200",
            "DPAL_ALLOW": str(folder / "owner" / "allow.yaml"),
        }
        self._started: list[subprocess.Popen[bytes]] = []
        write_blobs(folder / "pool.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")

    def start(self, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a process in a group of its own."""
        process = start_logged(self.folder / log, arguments, self.environment)
        self._started.append(process)
        return process

    def server(self) -> subprocess.Popen[bytes]:
        """Starts the server and waits for it."""
        started = self.start("server.log", *_prefect("server", "start", "--port", str(self.port)))
        await_true(lambda: httpx.get(f"{self.api}/health", timeout=5).is_success, 240)
        return started

    def worker(self, *before: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Starts a worker of the training pool, by another command where one is named."""
        return self.start("worker.log", *before, command(), "worker", "gpu", *options)

    def deploy(self) -> None:
        """What an installation does once."""
        assert self.start("deploy.log", command(), "deploy").wait(300) == 0, self.log("deploy.log")

    def campaign(self, name: str, **settings: Any) -> Campaign:
        """Writes a campaign's file; the owner lets the worker do what it needs."""
        return self.listed(write_config(self.folder / f"{name}.yaml", name=name, **settings))

    def listed(self, file: Path) -> Campaign:
        """A run of whatever kind, by its file; the owner lets the worker do what it needs."""
        allowed = self.start("allow.log", command(), "allow", str(file))
        assert allowed.wait(120) == 0, self.log("allow.log")
        return Campaign(self, file.stem, file)

    def log(self, name: str) -> str:
        """What a process said."""
        path = self.folder / name
        return path.read_text(errors="replace") if path.is_file() else ""

    def ask(self, path: str, /, **content: Any) -> Any:
        """Asks the server."""
        answer = httpx.post(f"{self.api}/{path}", json=content, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def trainings(self, name: str) -> list[dict[str, Any]]:
        """Flow runs that train for a campaign, the newest first."""
        runs: list[dict[str, Any]] = self.ask(
            "flow_runs/filter", flow_runs={"deployment_id": {"is_null_": False}}
        )
        own = [one for one in runs if one["name"].startswith(name) or _orders(one) == name]
        return sorted(own, key=lambda one: one["created"], reverse=True)

    def leader(self, name: str) -> dict[str, Any]:
        """The newest flow run that leads a campaign."""
        runs: list[dict[str, Any]] = self.ask(
            "flow_runs/filter", flow_runs={"name": {"any_": [name]}}, flows=_CAMPAIGN
        )
        return max(runs, key=lambda one: one["created"])

    def words(self, run: dict[str, Any]) -> str:
        """What stands in the log on a run's page."""
        lines = self.ask("logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}})
        return "\n".join(line["message"] for line in lines)

    def cancel(self, run: dict[str, Any]) -> None:
        """What the button on a run's page does."""
        wanted = {"type": "CANCELLING", "name": "Cancelling"}
        self.ask(f"flow_runs/{run['id']}/set_state", state=wanted)

    def close(self) -> None:
        """Ends whatever is left."""
        for process in reversed(self._started):
            kill(process)


class Campaign:
    """A campaign at a site, run by `dpal run` in a process of its own."""

    def __init__(self, site: Site, name: str, file: Path) -> None:
        self.site, self.name, self.file = site, name, file

    ledger: str | None = None  # URL, where it is not the file in the artifacts folder

    def run(self) -> subprocess.Popen[bytes]:
        """Starts or continues it."""
        return self.site.start(f"{self.name}.log", command(), "run", str(self.file))

    @property
    def said(self) -> str:
        """What it told so far."""
        return self.site.log(f"{self.name}.log")

    def entries(self) -> list[Entry]:
        """Its ledger entries."""
        place = self.ledger or self.site.folder / "artifacts" / "ledger.sqlite"
        if isinstance(place, Path) and not place.is_file():
            return []
        try:
            store = LedgerStore(place, create=False)
        except LedgerMissing:  # it is being made
            return []
        try:
            return store.entries(self.name)
        finally:
            store.close()

    def persisted(self) -> int:
        """Steps of the newest recorded checkpoint."""
        return max([0, *_steps(self.entries())])

    def await_checkpoint(self, more_than: int = 0) -> int:
        """Waits until training has persisted more steps."""
        await_true(lambda: self.persisted() > more_than, 300)
        return self.persisted()

    def require_whole(self) -> None:
        """Every step was paid once and is on one path; the model is the one committed."""
        entries = self.entries()
        kinds = [one.kind for one in entries]
        assert kinds.count(EntryKind.RESERVE) == kinds.count(EntryKind.COMMIT) == 1
        assert EntryKind.FORFEIT not in kinds
        steps = _steps(entries)
        assert steps == sorted(set(steps)) and steps


def training_process(name: str) -> psutil.Process:
    """The process that a worker started for a campaign's training, by what it claims."""
    found: list[psutil.Process] = []

    def look() -> bool:
        for process in psutil.process_iter(["cmdline"]):
            with suppress(psutil.Error):
                files = [one.path for one in process.open_files()]
                line = " ".join(process.info["cmdline"] or [])
                if any(f"/{name}/.lock" in file for file in files) and "dpal run" not in line:
                    found.append(process)
        return bool(found)

    await_true(look, 120)
    return found[0]


def await_true(question: Callable[[], Found], seconds: float) -> Found:
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(httpx.HTTPError):
            if answer := question():
                return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {seconds:.0f} seconds")
        time.sleep(0.3)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a process and of its whole group."""
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@contextmanager
def site_in(folder: Path) -> Iterator[Site]:
    """A site with a server that knows the deployments."""
    site = Site(folder)
    try:
        site.server()
        site.deploy()
        yield site
    finally:
        site.close()


def _steps(entries: list[Entry]) -> list[int]:
    return [one.body["steps"] for one in entries if one.kind is EntryKind.CHECKPOINT]


def _orders(run: dict[str, Any]) -> str | None:
    order = run["parameters"].get("order") or {}
    return order.get("config", {}).get("name")


def _prefect(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *arguments]
