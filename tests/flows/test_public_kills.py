"""kill -9 in the middle of an improvement, then the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import write_blobs
from tests.flows.calling import call
from tests.flows.improving import NEAR, verified, write

pytestmark = pytest.mark.slow

CHOICE = {"method": "near_private", "labels": 60, "candidates": 150, "components": 3}
# What appears on disk, and what must not be there yet when the process dies.
MOMENTS = [
    "artifacts/ledger.sqlite",
    "artifacts/killed-start/phase-0/checkpoints",
    "artifacts/killed-start/certificate.json",
    "artifacts/killed/phase-0/guidance/components.safetensors",
    "artifacts/killed/phase-0/guidance/support.parquet",
    "artifacts/killed/choice.parquet",
    "artifacts/killed/confidential/phase-0/labels.parquet",
    "artifacts/killed/phase-0/model.safetensors",
    "artifacts/killed/certificate.json",
]


def story() -> list[tuple[str, str, str]]:
    """What the ledger says of both campaigns, without what differs from run to run."""
    store = LedgerStore(Path("artifacts/ledger.sqlite"), create=False)
    try:
        return [(one.campaign, one.kind.value, one.release) for one in store.entries()
                if one.kind is not EntryKind.CHECKPOINT]  # fmt: skip
    finally:
        store.close()


def killed_at(moment: str, file: str) -> bool:
    """Runs the command until a file appears, and kills it and all that it started."""
    command = [sys.executable, "-m", "flows.cli.main", "run", file]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        end = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < end:
            if Path(moment).exists():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
            time.sleep(0.002)
        assert process.poll() is not None, "neither the file nor an end was seen"
    return False


@pytest.mark.timing
def test_killed_at_every_step_it_ends_as_if_nothing_had_happened(
    tmp_path, monkeypatch, orchestrated
):
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    start = {"batch_size": 100, "epochs": 3}
    file = write("killed", choice=CHOICE, start=start, runtime={"checkpoint_steps": 4})
    died, support = [], []
    for moment in MOMENTS:
        died.append(killed_at(moment, file))
        path = Path("artifacts/killed/phase-0/guidance/support.parquet")
        if path.is_file():
            support.append(np.asarray(pq.read_table(path)["support"]))
    assert sum(died) >= 7, died
    result = call("run", file)
    assert result.returncode == 0, result
    # What was persisted once was never drawn again.
    assert all((one == support[0]).all() for one in support)
    told = story()
    for release in NEAR:
        for kind in ("reserve", "commit"):
            assert told.count(("killed", kind, release)) == 1
    assert told.count(("killed-start", "reserve", "phase-0/training")) == 1
    assert told.count(("killed", "hold", "")) == told.count(("killed", "end", "")) == 1
    assert told.index(("killed", "hold", "")) < told.index(
        ("killed-start", "reserve", "phase-0/training")
    )
    assert verified("killed").returncode == 0
    document = json.loads(Path("artifacts/killed/certificate.json").read_text(encoding="utf-8"))
    assert document["epsilon"]["pld"] <= 4.0
