"""A worker that is told to end, ends; also one that a script started beside itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate

from tests.conftest import command
from tests.variants import quick_and_slow

POOL = "ended"
STARTED = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.{}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)

# What the worker prints while it starts is where a signal finds it in the middle of that.
INTERRUPTED = """
import os, signal, sys
from flows.cli import worker

class Interrupting:
    def print(self, said):
        print(said, flush=True)
        if "started!" in said:
            os.kill(os.getpid(), signal.{})

worker.out = Interrupting()
worker.worker(sys.argv[1], standby=0)
"""


@pytest.fixture
def pool(orchestrated: str) -> str:
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
    return orchestrated


@pytest.mark.parametrize(
    ("before", "sent"),
    quick_and_slow(
        [("SIG_IGN", signal.SIGINT)],
        product(["SIG_DFL", "SIG_IGN"], [signal.SIGTERM, signal.SIGINT]),
    ),
)
def test_by_either_signal_however_it_was_started(pool, tmp_path, sent, before):
    """`dpal worker gpu &` in a script ignores SIGINT, by which Prefect ends its workers."""
    log = Path(tmp_path / "log")
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED.format(before), command(), "worker", POOL],
            env={**os.environ, "PREFECT_API_URL": pool, "DPAL_ALLOW": str(tmp_path / "allow.yaml")},
            stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while "started!" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        process.send_signal(sent)
        process.wait(30)
        assert "worker stopped" in log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("sent", quick_and_slow(["SIGINT"], ["SIGINT", "SIGTERM"]))
def test_in_the_middle_of_its_start_and_without_a_traceback(pool, tmp_path, sent):
    environment = {
        **os.environ, "PREFECT_API_URL": pool, "DPAL_ALLOW": str(tmp_path / "allow.yaml"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(sent), POOL], env=environment, cwd=tmp_path,
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "worker stopped", ended.stderr
    assert "Traceback" not in ended.stderr
