"""A worker with a process that stands by: real server, real worker, and what dies with them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest

from flows.ops import standby_process
from tests.flows.pooling import LONG, Site, await_true, kill, site_in, training_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as made:
        yield made


def test_every_phase_gets_a_process_of_its_own_that_was_there_before(site):
    campaign, worker = site.campaign("warm", runtime__training_pool="gpu"), site.worker()
    with watched_standbys(worker.pid) as seen:
        await_true(lambda: seen, 120)
        assert campaign.run().wait(500) == 0, campaign.said
    runs = site.trainings("warm")
    began = {run["infrastructure_pid"]: moment(run["created"]) for run in runs}
    assert len(began) == 3, "a process was used twice"
    assert set(map(int, began)) <= set(seen)
    assert any(seen[int(pid)] < ordered - 1 for pid, ordered in began.items())
    kill(worker)
    assert_gone(seen)


def test_without_a_standby_nothing_stands_by(site):
    campaign = site.campaign("cold", schedule__queries=[], runtime__training_pool="gpu")
    worker = site.worker(options=("--standby", "0"))
    with watched_standbys(worker.pid) as seen:
        assert campaign.run().wait(500) == 0, campaign.said
    kill(worker)
    assert not seen


def test_a_killed_workers_standby_is_gone_and_its_run_goes_on(site):
    campaign, worker = site.campaign("outlives", **LONG), site.worker()
    running = campaign.run()
    campaign.await_checkpoint()
    child = training_process("outlives")
    await_true(lambda: len(standbys(worker.pid)) == 2, 120)  # the run, and the next one
    [idle] = [process for process in standbys(worker.pid) if process.pid != child.pid]
    worker.kill()  # it alone
    worker.wait(30)
    assert_gone([idle.pid])
    assert child.is_running()
    assert running.wait(500) == 0, campaign.said
    campaign.require_whole()
    assert len(site.trainings("outlives")) == 1


def test_a_killed_idle_workers_standby_is_gone(site):
    worker = site.worker()
    before = await_true(lambda: [process.pid for process in standbys(worker.pid)], 120)
    [idle] = standbys(worker.pid)
    await_true(lambda: "pipe" in Path(f"/proc/{idle.pid}/wchan").read_text(), 120)
    # It has imported everything, and has nothing open but its own pipes.
    assert (idle.num_fds(), idle.open_files(), idle.net_connections()) == (3, [], [])
    worker.kill()
    worker.wait(30)
    assert_gone(before)


def test_what_the_owner_does_not_allow_is_refused_in_a_standby_as_well(site):
    """And a flow that is none of ours uses none up."""
    site.campaign("allowed", runtime__training_pool="gpu")
    worker = site.worker()
    before = await_true(lambda: [process.pid for process in standbys(worker.pid)], 120)
    foreign = deployed_elsewhere(site)
    refused = await_end(site, foreign["id"])
    assert (refused["state"]["type"], refused["infrastructure_pid"]) == ("CRASHED", None)
    assert [process.pid for process in standbys(worker.pid)] == before
    config = {"name": "thief", "data": {"pool": "/srv/others.parquet"}}
    order = {"config": config, "phase": 0, "plan": "0" * 64, "inputs": [], "drawer": "nobody"}
    ended = await_end(site, start(site, "train-phase/gpu", order=order)["id"])
    assert ended["state"]["type"] == "FAILED"
    assert "data.pool" in ended["state"]["message"]
    assert int(ended["infrastructure_pid"]) == before[0]
    kill(worker)


def test_nothing_of_one_run_is_in_the_next_ones_memory(site):
    # In a folder of its own, as campaigns of one folder share a ledger, and read it.
    apart = {"runtime__artifacts": "apart", "runtime__training_pool": "gpu"}
    first = site.campaign("alphaalpha", schedule__queries=[], **apart)
    second, worker = site.campaign("betabeta", **LONG), site.worker()
    # The owner's list, which every run reads, calls its groups by names of runs.
    owners = site.folder / "owner" / "allow.yaml"
    owners.write_text(owners.read_text().replace("alphaalpha", "former"))
    assert first.run().wait(500) == 0, first.said
    earlier = site.trainings("alphaalpha")[0]
    running = second.run()
    second.await_checkpoint()
    process = training_process("betabeta")
    assert str(process.pid) == site.trainings("betabeta")[0]["infrastructure_pid"]
    assert in_memory(process.pid, b"betabeta"), "the search finds nothing at all"
    assert in_memory(process.pid, b"alphaalpha") == b""
    assert in_memory(process.pid, earlier["id"].encode()) == b""
    kill(running)
    kill(worker)


def standbys(worker: int) -> list[psutil.Process]:
    """Children of a worker that began as a standby, whatever they are now."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(worker).children():
            with suppress(psutil.Error):
                if standby_process.__file__ in child.cmdline():
                    found.append(child)
    return found


@contextmanager
def watched_standbys(worker: int) -> Iterator[dict[int, float]]:
    """All processes that stood by within a block, and when they were made."""
    seen: dict[int, float] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for process in standbys(worker):
                with suppress(psutil.Error):
                    seen[process.pid] = process.create_time()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def assert_gone(pids: Any) -> None:
    await_true(lambda: not any(map(psutil.pid_exists, pids)), 60)


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def in_memory(pid: int, wanted: bytes) -> bytes:
    """These bytes, and some around them, if a process has them in memory that it can write."""
    about = Path("/proc", str(pid))
    lines = (about / "maps").read_text().splitlines()
    places = [re.match(r"(\w+)-(\w+) rw", line) for line in lines]
    with (about / "mem").open("rb", buffering=0) as memory:
        for place in filter(None, places):
            begin, end = (int(bound, 16) for bound in place.groups())
            with suppress(OSError):  # it was let go meanwhile
                memory.seek(begin)
                content = memory.read(end - begin)
                if (found := content.find(wanted)) >= 0:
                    return content[max(0, found - 100) : found + 100]
    return b""


def asked(site: Site, path: str, /, **content: Any) -> dict[str, Any]:
    """What the server answers, which may be busy at first."""
    return dict(await_true(lambda: site.ask(path, **content), 120))


def start(site: Site, name: str, **parameters: Any) -> dict[str, Any]:
    """Starts a run of a deployment, as whoever has the server's address can."""
    deployment = httpx.get(f"{site.api}/deployments/name/{name}", timeout=60).json()["id"]
    path = f"deployments/{deployment}/create_flow_run"
    return asked(site, path, parameters=parameters, idempotency_key=uuid4().hex)


def deployed_elsewhere(site: Site) -> dict[str, Any]:
    """Starts a run of somebody else's flow on our pool."""
    flow = asked(site, "flows/", name=f"theirs-{uuid4().hex[:6]}")
    about = {"name": "theirs", "flow_id": flow["id"], "work_pool_name": "gpu"}
    asked(site, "deployments/", **about, entrypoint="their.py:flow", path=".")
    return start(site, f"{flow['name']}/theirs")


def await_end(site: Site, run: str) -> dict[str, Any]:
    """Waits until a run is over."""

    def ended() -> dict[str, Any] | None:
        now: dict[str, Any] = httpx.get(f"{site.api}/flow_runs/{run}", timeout=60).json()
        return now if now["state"]["type"] in ("FAILED", "CRASHED", "COMPLETED") else None

    found = await_true(ended, 240)
    assert found is not None
    return found
