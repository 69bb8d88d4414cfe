"""A deployed watch: real server, worker and desk; nobody types a command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from dpal.data.inbox.state import Stage, WatchFolder
from dpal.files.artifacts import CampaignFolder
from tests.conftest import command, write_blobs
from tests.flows.watching import watch_values

pytestmark = pytest.mark.slow

PATIENCE = 500


@pytest.fixture
def installation(workplace):
    """A server of its own, deployments, a worker for campaigns, and a desk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    env = {
        **os.environ,
        "PREFECT_HOME": str(workplace / "prefect"),
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "false",  # asked without Prefect's client
        "XDG_STATE_HOME": str(workplace / "state"),
        "DPAL_ALLOW": str(workplace / "owner" / "allow.yaml"),
        "OMP_NUM_THREADS": "1",
    }
    started = []

    def start(*arguments):
        ours = arguments[0] in ("worker", "desk")
        line = [*([command()] if ours else [sys.executable, "-m", "prefect"]), *arguments]
        with (workplace / f"{arguments[0]}.log").open("w") as log:
            process = subprocess.Popen(
                line, env=env, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    start("server", "start", "--port", str(port))
    wait(lambda: httpx.get(f"{api}/health", timeout=5).is_success, "the server")

    def dpal(*arguments):
        ended = subprocess.run(
            [command(), *arguments], env=env, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended
        return ended.stdout

    def start_both():
        start("worker", "campaigns")
        start("desk")

    yield dpal, api, start_both
    for process in reversed(started):  # the worker while its server is still there
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # a run that is still going on does not end it
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def wait(holds, what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except (httpx.HTTPError, AttributeError):
            pass
        time.sleep(1)
    raise AssertionError(f"{what} did not come in {patience} s")


def remembered():
    return WatchFolder(Path("artifacts/watch/clinic")).read()


def finished(name):
    last = remembered().last
    assert last is None or last.stage not in (Stage.REFUSED, Stage.STOPPED), last
    return last if last and (last.name, last.stage) == (name, Stage.FINISHED) else None


def test_files_become_campaigns_while_nobody_types_anything(installation):
    dpal, api, start_workers = installation
    Path("inbox").mkdir()
    shutil.copy("pool.parquet", "inbox/january.parquet")
    Path("watch.yaml").write_text(yaml.safe_dump(watch_values(every_minutes=1)))
    dpal("data", "register", "clinic", "inbox", "--epsilon", "8", "--delta", "1e-4")
    dpal("deploy", "watch.yaml")
    dpal("allow", "watch.yaml")
    start_workers()
    first = wait(lambda: finished("clinic-0001"), "the first campaign")
    assert first.flow_run  # given to the workers, not run by the watch

    march = write_blobs(Path("march.parquet"), 400, seed=5, prefix="n")
    shutil.copy(march, "inbox/march.parquet")
    wait(lambda: finished("clinic-0002"), "the rerun")
    shown = json.loads(dpal("data", "show", "clinic", "--json"))["clinic"]["blocks"]
    assert [one["size"] for one in shown] == [600, 400]
    assert [one["campaigns"] for one in shown] == [["clinic-0001", "clinic-0002"], ["clinic-0002"]]
    blocks = CampaignFolder(Path("artifacts/clinic-0002")).read_record()["plan"]["blocks"]
    assert blocks[0]["participation"] < blocks[1]["participation"] == 1.0

    before = remembered()
    shutil.copy(march, "inbox/march.parquet")
    shutil.copy(march, "inbox/again.parquet")
    Path("inbox/corrupt.parquet").write_bytes(march.read_bytes()[:-50])
    reason = Path("inbox/quarantine/corrupt.parquet.reason.txt")
    wait(reason.is_file, "the quarantine")
    assert reason.read_text() == "corrupt.parquet is not a whole Parquet file\n"
    wait(lambda: remembered().seen["again.parquet"].digest, "a look at the same file")
    assert (remembered().accepted, remembered().runs) == (before.accepted, before.runs)

    def page():
        pages = httpx.post(f"{api}/artifacts/latest/filter", json={}, timeout=30).json()
        return next(one["data"] for one in pages if one["key"] == "watch-clinic")

    # The page is written after what is remembered: at the end of a look.
    wait(lambda: "corrupt.parquet is not a whole Parquet file" in page(), "the page")
    assert "Campaign clinic-0002 on 2 files is finished" in page()
