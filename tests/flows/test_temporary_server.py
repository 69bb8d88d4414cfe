"""Prefect's temporary server: slow machines are waited for, and it ends with its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from flows.ops import temporary_server, temporary_server_process
from flows.ops.temporary_server import PrefectNotStarted, Stillness, TemporaryServer
from tests.conftest import ROOT
from tests.processes import gone

# A flow that does nothing, started and ended as `dpal run` does it.
FLOW = """
import sys, time
from flows.cli.terminal import prepare_process, run_and_explain_errors, stop_at_once_on_interrupt

def work():
    from flows.cli.orchestrator import needing_prefect, starting_prefect
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect import flow

    @flow
    def nothing():
        print("flow", flush=True)
        time.sleep(float(sys.argv[1]))

    with needing_prefect():
        nothing()
    print("done", flush=True)

prepare_process()
sys.exit(run_and_explain_errors(work))
"""

# A server that has only just been started, in a process that can be killed.
STARTED = """
import time
from flows.ops.temporary_server import TemporaryServer
server = TemporaryServer()
print(server.process.pid, flush=True)
time.sleep(600)
"""

ANSWERING = """
import socket, sys, time
until = time.process_time() + 1.5
while time.process_time() < until:
    pass
bound = socket.socket(fileno=int(sys.argv[2]))
bound.listen()
while True:
    asked, _ = bound.accept()
    asked.recv(4096)
    asked.sendall(b"HTTP/1.1 {status} -\\r\\nContent-Length: 4\\r\\n\\r\\ntrue")
    asked.close()
"""


def start(script: str, home: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(home), **settings}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """Starts a server that runs another program than Prefect; ends it after the test."""
    servers = []

    def serve(program: str) -> TemporaryServer:
        file = tmp_path / "program.py"
        file.write_text(program, encoding="utf-8")
        monkeypatch.setattr(temporary_server_process, "__file__", str(file))
        servers.append(TemporaryServer())
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def test_stillness_counts_what_was_looked_at():
    stillness = Stillness()
    for signs, elapsed, still in [("a", 5, 0), ("a", 3, 3), ("a", 4, 7), ("b", 9, 0), ("b", 1, 1)]:
        stillness.look(signs, elapsed)
        assert stillness.seconds == still
    stillness.look("b", 3600)  # this process was stopped for an hour, and the server as well
    assert stillness.seconds == 11


@pytest.mark.slow
def test_a_server_that_computes_is_waited_for_and_spoken_of(serving, monkeypatch):
    monkeypatch.setattr(temporary_server, "_SAY_SECONDS", 0.4)
    lines: list[str] = []
    serving(ANSWERING.format(status=200)).wait_until_ready(lines.append)
    assert lines
    assert "it computed" in lines[0]


def test_a_server_that_does_not_move_is_given_up(serving, monkeypatch):
    monkeypatch.setattr(temporary_server, "STILL_SECONDS", 1.0)
    with pytest.raises(PrefectNotStarted, match="neither computed") as refused:
        serving("print('waits', flush=True)\nimport time\ntime.sleep(600)").wait_until_ready(print)
    assert refused.value.last_line == "waits"


def test_a_server_that_ended_is_given_up_at_once(serving):
    with pytest.raises(PrefectNotStarted, match="code 3") as refused:
        serving("import sys\nprint('no room\\n')\nsys.exit(3)").wait_until_ready(print)
    assert refused.value.last_line == "no room"


@pytest.mark.slow
def test_a_server_that_refuses_is_given_up(serving):
    with pytest.raises(PrefectNotStarted, match="status 503"):
        serving(ANSWERING.format(status=503)).wait_until_ready(print)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.timing])],
)
def test_a_server_ends_with_a_command_that_cannot_say_goodbye(tmp_path, sent):
    parent = start(STARTED, tmp_path)
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    parent.send_signal(sent)
    began = time.monotonic()
    parent.communicate(timeout=30)  # reads to the end of both pipes
    assert time.monotonic() - began < 10
    assert gone(server, within=10)


@pytest.mark.slow
@pytest.mark.timing
def test_a_short_patience_of_prefect_ends_no_start(tmp_path):
    """Prefect gives its server 20 seconds of sleep; here one, as on a machine that is slower."""
    run = start(FLOW, tmp_path, "3", PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="1")
    assert run.stdout is not None
    assert run.stdout.readline() == "flow\n", run.communicate()[1]
    (server,) = psutil.Process(run.pid).children()
    said, complained = run.communicate(timeout=120)
    assert (run.returncode, said) == (0, "done\n"), complained
    assert gone(server.pid, within=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, None), (signal.SIGINT, 130)]
)
@pytest.mark.timing
def test_a_run_that_is_ended_leaves_no_server_and_no_open_pipe(tmp_path, sent, code):
    run = start(FLOW, tmp_path, "600")
    assert run.stdout is not None
    assert run.stdout.readline() == "flow\n"
    (server,) = psutil.Process(run.pid).children()
    run.send_signal(sent)
    began = time.monotonic()
    run.communicate(timeout=120)
    assert time.monotonic() - began < 30
    assert run.returncode == code if code is not None else run.returncode != 0
    assert gone(server.pid, within=10)


@pytest.mark.slow
def test_programs_are_answered_and_pages_are_refused(tmp_path, monkeypatch):
    """A page calls by its own host's name (DNS rebinding), or from its own origin."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    server, page = TemporaryServer(), "http://page.example"
    try:
        server.wait_until_ready(print)
        here = f"127.0.0.1:{server.port}/api"
        assert httpx.get(f"http://{here}/health").status_code == 200
        for sent in ({"Host": f"page.example:{server.port}"}, {"Origin": page}):
            assert httpx.get(f"http://{here}/health", headers=sent).status_code == 403
        events = f"ws://{here}/events/out"
        with connect(events):
            pass
        with pytest.raises(InvalidStatus):
            connect(events, origin=Origin(page))
    finally:
        server.stop()


@pytest.mark.slow
def test_a_server_that_cannot_start_is_one_sentence(tmp_path):
    nowhere = f"sqlite+aiosqlite:///{tmp_path}/is/not/there.db"
    run = start(FLOW, tmp_path, "0", PREFECT_SERVER_DATABASE_CONNECTION_URL=nowhere)
    said, complained = run.communicate(timeout=300)
    assert (run.returncode, said) == (2, "")
    assert "code 3" in complained
    assert "Traceback" not in complained


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """As many processes that only compute, at the niceness of everything else."""
    burning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timing
def test_twenty_of_twenty_starts_at_load_30(tmp_path):
    """20 processes that compute, and five starts at a time of two processes each."""

    def one(_: int) -> tuple[int | None, str, str, float]:
        began = time.monotonic()
        run = start(FLOW, tmp_path, "0")
        said, complained = run.communicate(timeout=1200)
        return run.returncode, said, complained, time.monotonic() - began

    one(0)  # makes the database that all of them share, as runs of one person do
    with busy(20), ThreadPoolExecutor(5) as pool:
        ended = list(pool.map(one, range(20)))
    failed = [each for each in ended if each[:2] != (0, "flow\ndone\n")]
    if failed:
        told = "\n".join(complained for _, _, complained, _ in failed)
        pytest.fail(f"{len(failed)} of 20 starts failed, the longest after "
                    f"{max(each[3] for each in failed):.0f} s:\n{told}")  # fmt: skip
