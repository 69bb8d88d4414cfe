"""What a campaign lives in fails: disk, rights, database, servers. One sentence, nothing lost."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.faults.story import forked_commands, random_deaths, refused, tell
from tests.faults.witness import Witness
from tests.faults.write_points import Fault

pytestmark = pytest.mark.slow  # minutes: make faults runs it


@pytest.mark.statistical
def test_a_full_disk_loses_nothing(story, commands, undisturbed, chance):
    faults = random_deaths(chance, undisturbed, full=True)
    wild = tell(story, commands, deaths=faults, limit=3)
    assert wild.entries == undisturbed.entries
    assert wild.deaths
    assert all(one.endswith("refused") for one in wild.deaths), wild.deaths


def test_what_cannot_be_written_is_refused_and_loses_nothing(story, commands, undisturbed):
    """A folder, a folder below, the ledger's file, and a ledger that somebody has locked."""
    place = story.place()
    assert commands.run(place, "run", "byhand.yaml").status == 0
    label = story.steps[0].command(place, False)
    witness = Witness(place / "artifacts", "byhand")
    ledger = place / "artifacts" / "ledger.sqlite"
    folders = [place / "artifacts", place / "artifacts" / "byhand" / "confidential" / "phase-0"]
    for path, rights in [*((folder, 0o500) for folder in folders), (ledger, 0o400)]:
        before = path.stat().st_mode
        path.chmod(rights)
        stopped = commands.run(place, *label, powerless=True)
        path.chmod(before)
        assert refused(stopped), (path, stopped.said)
        witness.look()
        label = story.steps[0].command(place, False)
    with closing(sqlite3.connect(ledger)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        stopped = commands.run(place, "run", "byhand.yaml", busy_seconds=0.2)
        other.execute("ROLLBACK")
    assert refused(stopped), stopped.said
    assert "database is locked" in stopped.said
    assert tell(story, commands, place=place).entries == undisturbed.entries


@pytest.mark.statistical
def test_an_mlflow_server_that_dies_loses_nothing(story, commands, undisturbed, chance, tmp_path):
    place, port = story.place(), _free_port()
    config = place / "byhand.yaml"
    text = config.read_text(encoding="utf-8")
    uri = next(line for line in text.splitlines() if "mlflow_uri" in line)
    config.write_text(text.replace(uri, f"  mlflow_uri: http://127.0.0.1:{port}"))
    witness, died = Witness(place / "artifacts", "byhand"), 0
    health = f"http://127.0.0.1:{port}/health"
    for _ in range(3):
        with _server(_mlflow(tmp_path, port), health) as process:
            arguments = story.steps[0].command(place, False)
            fault = Fault(family="server", at=int(chance.integers(1, 90)), server=process)
            attempt = commands.run(place, *arguments, fault=fault)
            assert attempt.status == 0 or refused(attempt), attempt.said
            witness.look()
            died += not _answers(health)
    assert died  # a death past the last message of a run is none
    with _server(_mlflow(tmp_path, port), health):
        assert tell(story, commands, place=place).entries == undisturbed.entries


@pytest.mark.statistical
def test_a_prefect_server_that_dies_loses_nothing(story, undisturbed, chance, tmp_path):
    place, port = story.place(), _free_port()
    start = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    witness, died = Witness(place / "artifacts", "byhand"), 0
    (tmp_path / "zygote").mkdir()
    health = f"http://127.0.0.1:{port}/api/health"
    with forked_commands(tmp_path / "zygote", f"http://127.0.0.1:{port}/api") as commands:
        for _ in range(3):
            with _server(start, health, PREFECT_HOME=str(tmp_path)) as process:
                arguments = story.steps[0].command(place, False)
                fault = Fault(family="server", at=int(chance.integers(1, 60)), server=process)
                # A run that waits for labels asks for longer than it may live here.
                attempt = commands.run(place, *arguments, fault=fault, seconds=100)
                waits = attempt.killed and "15 minutes" in attempt.said
                assert attempt.status == 0 or refused(attempt) or waits, attempt.said
                witness.look()
                died += not _answers(health)
        assert died
        with _server(start, health, PREFECT_HOME=str(tmp_path)):
            assert tell(story, commands, place=place).entries == undisturbed.entries


def _mlflow(folder: Path, port: int) -> list[str]:
    store, files = f"sqlite:///{folder / 'server.sqlite'}", str(folder / "files")
    return [
        *(sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", store, "--artifacts-destination", files),
    ]


@contextmanager
def _server(start: list[str], health: str, **environment: str) -> Iterator[int]:
    """A server in a process group of its own; gives the group's number."""
    process = subprocess.Popen(
        start,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not _answers(health):
            assert process.poll() is None and time.monotonic() < deadline, start
            time.sleep(0.3)
        yield process.pid
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _answers(health: str) -> bool:
    try:
        return httpx.get(health, timeout=2).is_success
    except httpx.HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
