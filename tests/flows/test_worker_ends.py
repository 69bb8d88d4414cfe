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
