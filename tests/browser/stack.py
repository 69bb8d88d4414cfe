"""The local stack as a newcomer starts it: one command, in a folder with data."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from prefect.client.orchestration import SyncPrefectClient
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

from tasks.tracking.server_app import READER
from tests.browser.chrome import open_page, wait_for_text
from tests.conftest import ROOT, command
from tests.labeling.annotators import Annotator

_START_SECONDS = 900.0  # Label Studio makes its database, on a busy machine
PUBLISHED = {"public": True, "why": "the sample digits are published"}
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

    def flow_run(self, number: str) -> dict[str, Any]:
        """A flow run as Prefect knows it."""
        login = httpx.BasicAuth(*self.secret("prefect").split(":"))
        url = f"{self.url('prefect')}/api/flow_runs/{number}"
        return dict(httpx.get(url, auth=login, timeout=60).raise_for_status().json())

    def ask_prefect(self, path: str, **wanted: object) -> Any:
        """What Prefect answers under a path, to whom knows the password."""
        api = f"{self.url('prefect')}/api"
        with SyncPrefectClient(api, auth_string=self.secret("prefect")) as client:
            return client.request("POST", f"/{path}", json=wanted).json()  # type: ignore[arg-type]

    def ask_mlflow(self, path: str, **query: str) -> dict[str, Any]:
        """What MLflow answers under a path, to a reader."""
        login = (READER, self.secret("mlflow-reader"))
        url = f"{self.url('mlflow')}/api/2.0/mlflow/{path}"
        answer = httpx.get(url, params=query, auth=login, timeout=60)
        return dict(answer.raise_for_status().json())

    def secret(self, name: str) -> str:
        """A password that the stack made up."""
        return (self.home / "stack" / "secrets" / name).read_text()

    def log_in(self, chrome: Chrome, account: str = READER) -> None:
        """Types Prefect's password into its page, and gives MLflow's to the browser."""
        open_page(chrome, f"{self.url('prefect')}/dashboard", "Login")
        box = chrome.find_element(By.CSS_SELECTOR, "input[type=password]")
        box.send_keys(self.secret("prefect"), Keys.ENTER)
        wait_for_text(chrome, "Dashboard")
        secret = self.secret(account.replace("dpal-", "mlflow-"))
        where = self.url("mlflow").removeprefix("http://")
        chrome.get(f"http://{account}:{secret}@{where}/version")  # as its dialog would

    def dpal(self, *words: str) -> str:
        """Runs a command as whoever has sourced the stack's environment; returns what it says."""
        lines = (self.home / "stack" / "env").read_text().splitlines()
        told = dict(shlex.split(line)[1].split("=", 1) for line in lines)
        return _said(self.home, {**_environment(self.home), **told}, *words)

    def annotator(self) -> Annotator:
        """A person who labels in the stack's Label Studio."""
        headers = {"Authorization": f"Token {self.secret('label-studio-token')}"}
        return Annotator(
            httpx.Client(base_url=self.url("label-studio"), headers=headers, timeout=120)
        )


@contextmanager
def served(
    home: Path, *, label_studio: bool = True, watch: dict[str, Any] | None = None
) -> Iterator[Stack]:
    """Starts everything with `dpal serve`, on the sample data, and stops it in the end.

    Args:
      home: folder to make.
      label_studio: whether people label in one.
      watch: settings of a watch on its data set, whose first file is there.
    """
    (home / "data").mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "data").glob("*.parquet"):
        shutil.copy(file, home / "data" / file.name)
    stack = Stack(home=home, ports={server: free_port() for server in _SERVERS})
    # What the form starts may ask people in this Label Studio; where that is, the owner allows.
    people = {"kind": "label_studio", "label_studio": {"url": stack.url("label-studio")}}
    settings = {"name": "of-the-owner", "validation": PUBLISHED}
    settings |= {"labeler": people} if label_studio else {}
    (home / "owner.yaml").write_text(yaml.safe_dump(settings))
    words, environment = [command(), "serve", "owner.yaml", "--folder", "stack"], _environment(home)
    if watch is not None:
        (home / "watch.yaml").write_text(yaml.safe_dump(watch))
        limit = ("--epsilon", "8", "--delta", "1e-4")
        _said(home, environment, "data", "register", watch["dataset"], watch["folder"], *limit)
        words.insert(3, "watch.yaml")
    words += ["--label-studio"] if label_studio else []
    for server, port in stack.ports.items():
        words += ["--port", f"{server}={port}"]
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


def _environment(home: Path) -> dict[str, str]:
    """Of a person who has just come, with keys and anchors of their own."""
    # MLflow sets the last one in every process that it was told a URI in, as in this one.
    foreign = ("PREFECT_API_URL", "DPAL_ALLOW", "MLFLOW_TRACKING_URI")
    environment = {key: value for key, value in os.environ.items() if key not in foreign}
    return {**environment, "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "120"}


def _said(home: Path, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [command(), *words], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"dpal {shlex.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


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
    except (httpx.HTTPError, FileNotFoundError):
        return False
    online = all(any(one["status"] == "ONLINE" for one in some) for some in workers)
    return online and {"campaign", "gpu", "collect-labels"} <= deployments
