"""A Prefect server, an MLflow server and, where wanted, one Postgres for all, and an S3 server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from dpal.ledger.ledger_store import LedgerStore
from tests import s3
from tests.conftest import ROOT
from tests.whole_postgres import WholePostgres

_STARTED = 300.0


@dataclass
class Place:
    """Servers, workers and files of one run of the check."""

    root: Path
    environment: dict[str, str]
    ledger: str | None = None
    mlflow: str = ""
    bucket: str | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                arguments,
                cwd=self.root,
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            family = (
                [*psutil.Process(process.pid).children(recursive=True)] if alive(process) else []
            )
            if alive(process):
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            for one in family:
                if one.is_running():
                    one.kill()

    def look(self) -> int:
        """Notes how much memory all of it takes, in bytes, and gives it."""
        total = 0
        for process in self.processes:
            try:
                one = psutil.Process(process.pid)
                total += sum(
                    each.memory_info().rss for each in [one, *one.children(recursive=True)]
                )
            except psutil.Error:
                continue
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    def open_ledger(self) -> LedgerStore:
        return LedgerStore(self.ledger or self.artifacts / "ledger.sqlite", create=False)


def alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTED
    while time.monotonic() < deadline and alive(process):
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError(f"{url} did not answer")


@contextmanager
def place(root: Path, postgres: WholePostgres | None, *, objects: bool = False) -> Iterator[Place]:
    """A Prefect server, an MLflow server; if wanted, both and the ledger on Postgres, and an
    empty bucket on an S3 server."""
    python, (api, tracking) = sys.executable, (free_port(), free_port())
    here = Place(
        root,
        {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PREFECT_HOME": str(root / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{api}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            "DO_NOT_TRACK": "1",
            "XDG_STATE_HOME": str(root / "state"),
            "DPAL_ALLOW": str(root / "owner" / "allow.yaml"),
            "PYTHONPATH": str(ROOT),
        },
    )
    server, store = {}, f"sqlite:///{root / 'mlflow.sqlite'}"
    if postgres is not None:
        for name in ("prefect", "mlflow", "ledger"):
            postgres.make(name)
        url = postgres.url("prefect", "postgresql+asyncpg")
        server = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": url}
        store = postgres.url("mlflow", "postgresql+psycopg")
        here.ledger = postgres.url("ledger")
    with ExitStack() as stack:
        if objects:
            (root / "s3" / "load").mkdir(parents=True)  # rclone's buckets are folders
            here.environment |= s3.environment(stack.enter_context(s3.serving(root / "s3")))
            here.bucket = "s3://load"
        stack.callback(here.stop)
        prefect = here.start(
            "prefect", python, "-m", "prefect", "server", "start", "--port", str(api), **server
        )
        mlflow = here.start(
            "mlflow", python, "-m", "mlflow", "server", "--port", str(tracking), "--workers", "1",
            "--backend-store-uri", store, "--artifacts-destination", str(root / "mlflow"),
        )  # fmt: skip
        here.mlflow = f"http://127.0.0.1:{tracking}"
        await_answer(f"http://127.0.0.1:{api}/api/health", prefect)
        await_answer(f"{here.mlflow}/health", mlflow)
        yield here
