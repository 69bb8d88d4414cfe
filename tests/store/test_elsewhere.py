"""A machine is lost, with everything on it; the campaign goes on at another one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from dpal.ledger.attempt_names import planned_name
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import command, write_blobs, write_config
from tests.postgres import postgres, postgres_server  # noqa: F401

pytestmark = pytest.mark.slow


class Machine:
    """A folder, a home for anchors, and the same data; ledger and store are shared."""

    def __init__(self, root: Path, ledger: str, store: str, **overrides) -> None:
        self.root = root
        write_blobs(root / "pool.parquet", 600, seed=1)
        write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
        write_config(
            root / "small.yaml",
            runtime={"ledger": ledger, "store": store, "store_holds": "everything",
                     "checkpoint_steps": 5},
            **overrides,
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        state = {"XDG_STATE_HOME": str(self.root / "state"), "COLUMNS": "200"}
        return {**os.environ, **state}

    def dpal(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command(), *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def start(self) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("w") as log:
            return subprocess.Popen(
                [command(), "run", "small.yaml"],
                cwd=self.root,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def kill_once(there, process) -> None:
    """Kills a process and all that it started as soon as something is there."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline and process.poll() is None and not there():
        time.sleep(0.02)
    assert process.poll() is None, "it ended too early"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def machine(tmp_path, prefect_api, monkeypatch, postgres, s3):  # noqa: F811
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)

    def make(name: str, **overrides) -> Machine:
        return Machine(tmp_path / name, postgres, f"{s3}/dpal", **overrides)

    return make


def adopt(machine: Machine, ledger: str) -> None:
    reason = ["--reason", "the old one burned"]
    done = machine.dpal("ledger", "adopt", "artifacts", "--ledger", ledger, *reason)
    assert done.returncode == 0, done.stderr


def entries_in(ledger: str) -> list[Entry]:
    with closing(LedgerStore(ledger)) as store:
        return store.entries("small")


@pytest.mark.timing
def test_killed_in_mid_training_it_goes_on_from_its_checkpoint_elsewhere(
    machine,
    postgres,  # noqa: F811
    s3_server,
):
    old = machine("old", schedule__epochs_per_phase=100)
    running, buckets = old.start(), s3_server[1]
    kill_once(lambda: any(buckets.rglob("names/phase-1/checkpoints/1/*.json")), running)
    assert not (old.root / "artifacts" / "small" / "phase-1" / "model.safetensors").exists()
    shutil.rmtree(old.root)

    new = machine("new", schedule__epochs_per_phase=100)
    adopt(new, postgres)
    done = new.dpal("run", "small.yaml")
    assert done.returncode == 0, done.stderr
    assert "brought from s3://" in done.stderr
    assert "goes on after" in done.stderr

    entries = entries_in(postgres)
    reserved = [entry.release for entry in entries if entry.kind is EntryKind.RESERVE]
    committed = [entry.release for entry in entries if entry.kind is EntryKind.COMMIT]
    assert len(set(reserved)) == len(reserved)
    assert sorted(reserved) == sorted(committed)
    steps = [
        entry.body["steps"]
        for entry in entries
        if entry.kind is EntryKind.CHECKPOINT and planned_name(entry.release) == "phase-1/training"
    ]
    assert steps == sorted(set(steps))
    assert not any(buckets.rglob("names/*/checkpoints/*/*.json"))


def test_a_finished_campaign_comes_back_whole(machine, postgres):  # noqa: F811
    old = machine("old")
    assert old.dpal("run", "small.yaml").returncode == 0
    folder = old.root / "artifacts" / "small"
    before = {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    entries = entries_in(postgres)

    shutil.rmtree(folder)
    done = old.dpal("run", "small.yaml")
    assert done.returncode == 0, done.stderr
    for name in before:
        if name.parts[0].startswith("phase-") or name.parts[0] in ("confidential", "pool.salt"):
            assert (folder / name).read_bytes() == before[name], name
    assert entries_in(postgres) == entries


def test_labels_that_people_gave_survive_the_machine(machine):
    hand = {"labeler": {"kind": "file"}, "schedule__queries": []}
    old = machine("old", **hand)
    paused = old.dpal("run", "small.yaml")
    assert "paused" in paused.stdout, paused.stderr
    query = "artifacts/small/confidential/query/phase-0/query.csv"
    asked = (old.root / query).read_bytes()
    shutil.rmtree(old.root / "artifacts" / "small")

    done = old.dpal("run", "small.yaml")
    assert "paused" in done.stdout, done.stderr
    assert (old.root / query).read_bytes() == asked


def test_an_altered_store_is_refused(machine, s3_server):
    old = machine("old")
    assert old.dpal("run", "small.yaml").returncode == 0
    folder = old.root / "artifacts" / "small"
    model = folder / "phase-1" / "model.safetensors"
    size = model.stat().st_size
    shutil.rmtree(folder)
    for path in s3_server[1].rglob("released/small-*/sha256/*"):
        if path.stat().st_size == size:
            path.write_bytes(b"x" * size)
    done = old.dpal("run", "small.yaml")
    assert done.returncode == 2
    assert "was altered" in done.stderr
    assert "Traceback" not in done.stderr
    assert not model.exists()
