"""A real Label Studio server, and people who label in it through its interface."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

_START_SECONDS = 900  # it makes its database first, on a busy machine slowly
_NO_SERVER = "NO LABEL STUDIO: set DPAL_LABEL_STUDIO to its command (label-studio)"


@dataclass
class LabelStudioServer:
    """A server that can be stopped and started again.

    Attributes:
      folder: its data.
      port: its port.
      token: of its first user.
    """

    folder: Path
    port: int
    token: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        quiet = {"COLLECT_ANALYTICS": "false", "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "",
                 "LATEST_VERSION_CHECK": "false", "SSRF_PROTECTION_ENABLED": "false",
                 "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
                 "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder)}  # fmt: skip
        words = ["start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(self.port),
                 "--username", "first@example.org", "--password", secrets.token_hex(12),
                 "--user-token", self.token]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [command(), *words], env=os.environ | quiet, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(1)
        raise RuntimeError(f"Label Studio did not start, see {self.folder / 'server.log'}")

    def stop(self) -> None:
        """Kills it with all of its processes."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def annotator(self, token: str | None = None) -> Annotator:
        """Somebody who labels; the first user if no token is given."""
        headers = {"Authorization": f"Token {token or self.token}"}
        return Annotator(httpx.Client(base_url=self.url, headers=headers, timeout=60))

    def hire(self) -> Annotator:
        """Another person with an account in the same organization."""
        first = self.annotator().client
        link = first.get("/api/invite").json()["invite_url"]
        name, password = f"{secrets.token_hex(4)}@example.org", secrets.token_hex(12)
        person = httpx.Client(base_url=self.url, timeout=60, follow_redirects=True)
        person.get(link)
        csrf = {"csrfmiddlewaretoken": person.cookies["csrftoken"], "email": name}
        person.post(link, data={**csrf, "password": password}).raise_for_status()
        person.headers["X-CSRFToken"] = person.cookies["csrftoken"]
        return Annotator(person)


@dataclass
class Annotator:
    """A person who labels, over the interface that the pages use."""

    client: httpx.Client

    def tasks(self, project: int) -> list[dict[str, Any]]:
        """The tasks of a project."""
        asked: dict[str, str | int] = {"project": project, "page_size": 1000, "fields": "all"}
        answer = self.client.get("/api/tasks/", params=asked)
        answer.raise_for_status()
        return list(answer.json()["tasks"])

    def answer(
        self, task: int, *choices: str, shown: str = "record", seconds: float | None = None
    ) -> None:
        """Submits an annotation, and how long it took as the page measures it."""
        region = {"from_name": "label", "to_name": shown, "type": "choices",
                  "value": {"choices": list(choices)}}  # fmt: skip
        took = {} if seconds is None else {"lead_time": seconds}
        self._post(task, {"result": [region], **took})

    def skip(self, task: int) -> None:
        """Presses Skip."""
        self._post(task, {"result": [], "was_cancelled": True})

    def answer_all(self, project: int, choose: Callable[[dict[str, Any]], str]) -> None:
        """Answers every task."""
        for task in self.tasks(project):
            self.answer(task["id"], choose(task))

    def _post(self, task: int, annotation: dict[str, Any]) -> None:
        self.client.post(f"/api/tasks/{task}/annotations/", json=annotation).raise_for_status()


def command() -> str:
    """Path of the `label-studio` command, or a loud skip."""
    found = os.environ.get("DPAL_LABEL_STUDIO") or shutil.which("label-studio")
    if not found:
        pytest.skip(_NO_SERVER)
    return found


@pytest.fixture(scope="module")
def label_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelStudioServer]:
    """A server of its own."""
    command()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = tmp_path_factory.mktemp("label-studio")
    server = LabelStudioServer(folder=folder, port=port, token=secrets.token_hex(20))
    try:
        server.start()
        yield server
    finally:
        server.stop()
