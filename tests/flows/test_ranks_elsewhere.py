"""A phase that two hosts train, which share a network and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from dpal.errors import LedgerMissing
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import ROOT, command, small_values, write_blobs
from tests.flows.pooling import await_true, kill, start_logged
from tests.networks import Hosts, two_hosts

pytestmark = pytest.mark.slow

STEPS = 3000


class Machine:
    """A host with a folder, settings, data and state of its own."""

    def __init__(self, folder: Path, before: Sequence[str], values: dict[str, Any]) -> None:
        self.folder, self.before = folder, before
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        folder.mkdir()
        write_blobs(folder / "pool.parquet", 600, seed=1)
        (folder / "far.yaml").write_text(yaml.safe_dump(values))
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def key(self) -> Path:
        return self.folder / "state" / "dpal" / "ranks.key"

    def start(self, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        wanted = [*self.before, command(), *arguments]
        process = start_logged(self.folder / log, wanted, self.environment)
        self.started.append(process)
        return process

    def log(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.is_file() else ""

    def persisted(self) -> int:
        """Steps of the newest checkpoint that its ledger knows."""
        try:
            store = LedgerStore(self.folder / "artifacts" / "ledger.sqlite", create=False)
        except LedgerMissing:
            return 0
        try:
            entries = store.entries("far")
        finally:
            store.close()
        kinds = [entry.kind for entry in entries]
        assert kinds.count(EntryKind.RESERVE) <= 1 and EntryKind.FORFEIT not in kinds
        return max(
            (entry.body["steps"] for entry in entries if entry.kind is EntryKind.CHECKPOINT),
            default=0,
        )

    def close(self) -> None:
        for process in reversed(self.started):
            kill(process)


def machines(tmp_path: Path, hosts: Hosts, **settings: Any) -> tuple[Machine, Machine]:
    values = small_values(
        name="far",
        schedule__initial=100,
        schedule__queries=[],
        schedule__epochs_per_phase=STEPS // 2,
        runtime__rendezvous=f"{hosts.addresses[0]}:29400",
        runtime__helpers=2,
        runtime__checkpoint_steps=100,
        **settings,
    )
    here, there = (
        Machine(tmp_path / name, hosts.on(number), values)
        for number, name in enumerate(("here", "there"))
    )
    write_blobs(here.folder / "validation.parquet", 300, seed=2, prefix="v")
    made = here.start("key.log", "ranks", "far.yaml", "--write-key")
    assert made.wait(120) == 0, here.log("key.log")
    there.key.parent.mkdir(parents=True)
    shutil.copy(here.key, there.key)
    return here, there


@pytest.mark.parametrize("private", [False, True], ids=["sealed", "gloo"])
def test_a_phase_of_two_hosts_goes_on_after_each_loss(tmp_path, private):
    with two_hosts() as hosts:
        here, there = machines(tmp_path, hosts, runtime__private_network=private)
        try:
            _lose_and_go_on(here, there, hosts)
        finally:
            here.close()
            there.close()


def _lose_and_go_on(here: Machine, there: Machine, hosts: Hosts) -> None:
    helpers = there.start("ranks.log", "ranks", "far.yaml", "--processes", "2", "--restarts", "0")
    training = here.start("run.log", "run", "far.yaml")
    await_true(lambda: here.persisted() > 0, 240)

    # Its machine loses power, as far as the other one can tell from what it still sends.
    for child in psutil.Process(helpers.pid).children(recursive=True):
        child.send_signal(signal.SIGKILL)
    assert training.wait(60) == 2, here.log("run.log")
    assert f"on {hosts.addresses[1]}" in here.log("run.log")
    assert helpers.wait(60) == 2
    first = here.persisted()
    assert 0 < first < STEPS

    # The next one is cut off: neither side is told.
    helpers = there.start("ranks.log", "ranks", "far.yaml", "--processes", "2")
    training = here.start("run.log", "run", "far.yaml")
    await_true(lambda: here.persisted() > first, 240)
    hosts.cut()
    assert training.wait(120) == 2, here.log("run.log")
    second = here.persisted()
    assert first < second < STEPS

    # Once the network is mended, helpers that were never stopped come by themselves.
    hosts.mend()
    assert here.start("run.log", "run", "far.yaml").wait(400) == 0, here.log("run.log")
    assert here.persisted() > second
    helpers.send_signal(signal.SIGINT)
    assert helpers.wait(60) == 0, there.log("ranks.log")

    checked = here.start("verify.log", "verify", "artifacts/far", "--key", "own",
                         "--ledger", "artifacts/far",
                         "--model", "artifacts/far/phase-0/model.safetensors")  # fmt: skip
    assert checked.wait(120) == 0, here.log("verify.log")
    # What helped has neither ledger nor model of it.
    left = [
        path for path in there.folder.rglob("*") if path.is_file() and "state" not in path.parts
    ]
    assert {path.name for path in left} == {"far.yaml", "pool.parquet", "ranks.log"}
