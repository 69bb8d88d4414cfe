"""The local stack as a newcomer starts it: one command, in a folder with data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import ROOT, command
from tests.labelers.annotators import Annotator

_START_SECONDS = 900.0  # Label Studio makes its database, on a busy machine
_SERVERS = ("prefect", "mlflow", "label-studio")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running stack.

    Attributes:
      home: folder in which it was started and campaigns work.
      ports: by server.
    """

    home: Path
    ports: dict[str, int]

    def url(self, server: str) -> str:
        """Where a server's pages are."""
        return f"http://127.0.0.1:{self.ports[server]}"

    def flow_run(self, number: str) -> dict[str, object]:
        """A flow run as Prefect knows it."""
        answer = httpx.get(f"{self.url('prefect')}/api/flow_runs/{number}", timeout=60)
        return dict(answer.raise_for_status().json())

    def ask_prefect(self, path: str, **wanted: object) -> list[dict[str, object]]:
        """What Prefect lists under a path."""
        answer = httpx.post(f"{self.url('prefect')}/api/{path}", json=wanted, timeout=60)
        return list(answer.raise_for_status().json())

    def secret(self, name: str) -> str:
        """A password that the stack made up."""
        return (self.home / "stack" / "secrets" / name).read_text()

    def annotator(self) -> Annotator:
        """A person who labels in the stack's Label Studio."""
        headers = {"Authorization": f"Token {self.secret('label-studio-token')}"}
        return Annotator(
            httpx.Client(base_url=self.url("label-studio"), headers=headers, timeout=120)
        )


@contextmanager
def served(home: Path) -> Iterator[Stack]:
    """Starts everything with `dpal serve`, on the sample data, and stops it in the end."""
    (home / "data").mkdir(parents=True)
    for file in (ROOT / "data").glob("*.parquet"):
        shutil.copy(file, home / "data" / file.name)
    stack = Stack(home=home, ports={server: free_port() for server in _SERVERS})
    words = [command(), "serve", "--folder", "stack", "--label-studio"]
    for server, port in stack.ports.items():
        words += ["--port", f"{server}={port}"]
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
    environment["XDG_STATE_HOME"] = str(home / "state")
    with (home / "serve.log").open("w") as log:
        serving = subprocess.Popen(words, cwd=home, env=environment, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: _is_ready(stack, serving), patience=_START_SECONDS, what="dpal serve is up"
            )
            yield stack
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait(120)


def wait_until(is_so: Callable[[], bool], *, patience: float, what: str) -> None:
    """Looks again and again until something is so."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {patience:.0f} s it is not so that {what}")
        time.sleep(1)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_ready(stack: Stack, serving: subprocess.Popen[bytes]) -> bool:
    """Whether a campaign can be started and trained."""
    if serving.poll() is not None:
        raise RuntimeError((stack.home / "serve.log").read_text())
    try:
        deployments = {str(one["name"]) for one in stack.ask_prefect("deployments/filter")}
        pools = ("campaigns", "gpu")
        workers = [stack.ask_prefect(f"work_pools/{pool}/workers/filter") for pool in pools]
    except httpx.HTTPError:
        return False
    online = all(any(one["status"] == "ONLINE" for one in some) for some in workers)
    return online and {"campaign", "gpu", "collect-labels"} <= deployments
