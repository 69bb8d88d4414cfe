"""kill -9 in the middle of private voting, then the same command again; and slow whole runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpal.ledger.entries import EntryKind
from tests.conftest import ROOT
from tests.flows.calling import call
from tests.flows.leaks import files_below
from tests.flows.voting import (
    NAMES,
    TEACHERS,
    certificate,
    checked,
    entries,
    releases,
    write_data,
    write_settings,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orchestrated")]

HOME = Path("artifacts/killed")
BALLOTS = HOME / "confidential/votes-1/ballots.parquet"
RELEASED = HOME / "votes-1/released.parquet"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)


def has(path: Path) -> Callable[[], bool]:
    return path.exists


def entered(kind: EntryKind) -> Callable[[], bool]:
    return lambda: any(one.kind is kind for one in entries("killed"))


# What is seen when the process is killed, in the order in which it comes.
MOMENTS = {
    "held": entered(EntryKind.HOLD),
    "dealt": has(HOME / "confidential/teachers/parts.parquet"),
    "first teacher": has(HOME / "confidential/teachers/teacher-0.safetensors"),
    "middle teacher": has(HOME / "confidential/teachers/teacher-3.safetensors"),
    "ballots": has(BALLOTS),
    "reserved": entered(EntryKind.RESERVE),
    "drawn": has(RELEASED),
    "committed": entered(EntryKind.COMMIT),
    "student": has(HOME / "phase-0/model.safetensors"),
    "measured": has(HOME / "phase-0/manifest.json"),
    "certified": has(HOME / "certificate.json"),
    "reported": has(HOME / "report.md"),
}


@pytest.fixture
def started(orchestrated):
    """Starts Python in a group of its own, with the test's Prefect server."""

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_API_URL": orchestrated},
            start_new_session=True,
        )

    return start


def killed_at(seen: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Waits until something is seen, and kills a process and all that it started."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        if seen():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.002)
    assert process.poll() is not None, "neither the moment nor an end was seen"
    return False


@pytest.mark.timing
def test_killed_at_every_step_it_ends_as_if_nothing_had_happened(started):
    file = write_settings("killed")
    died, cast, drawn = {}, [], []
    for name, seen in MOMENTS.items():
        died[name] = killed_at(seen, started("-m", "flows.cli.main", "run", file))
        if entered(EntryKind.RESERVE)():
            cast.append(BALLOTS.read_bytes())
        if RELEASED.exists():
            drawn.append(RELEASED.read_bytes())
    assert sum(died.values()) >= 9, died
    result = call("run", file)
    assert result.returncode == 0, result
    # What was reserved was never cast again, what was persisted was never drawn again.
    assert {*cast, BALLOTS.read_bytes()} == {BALLOTS.read_bytes()}
    assert {*drawn, RELEASED.read_bytes()} == {RELEASED.read_bytes()}
    told = [(one.kind, one.release) for one in entries("killed")]
    assert told == [
        (EntryKind.HOLD, ""),
        (EntryKind.RESERVE, "votes/1"),
        (EntryKind.COMMIT, "votes/1"),
    ]
    assert checked("killed", "--model", str(HOME / "phase-0/model.safetensors")).returncode == 0
    assert not list(HOME.rglob(".staged-*"))


# The same between two steps that follow each other too quickly to be met from outside.
DIES = """
import os, signal, sys
import {module}
def dies(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)
{module}.{function} = dies
from flows.cli.main import main
sys.argv = ["dpal", "run", "{file}"]
main()
"""
BETWEEN = {
    "between ballots and reservation": (
        "dpal.ledger.release_protocol",
        "CampaignLedger.release_once",
    ),
    "between reservation and draw": ("dpal.runs.vote_account", "_drawn"),
    "after the draw, before the commit": ("dpal.ledger.ledger_store", "LedgerStore.require_fence"),
}


@pytest.mark.parametrize(("module", "function"), BETWEEN.values(), ids=BETWEEN)
def test_a_kill_between_two_steps_draws_nothing_twice(module, function, started):
    file = write_settings("killed")
    process = started("-c", DIES.format(module=module, function=function, file=file))
    assert process.wait(120) == -signal.SIGKILL
    reserved = releases("killed")
    assert releases("killed", EntryKind.COMMIT) == []
    cast = BALLOTS.read_bytes()
    drawn = RELEASED.read_bytes() if RELEASED.exists() else None
    result = call("run", file)
    assert result.returncode == 0, result
    assert releases("killed") == releases("killed", EntryKind.COMMIT) == ["votes/1"]
    assert not reserved or BALLOTS.read_bytes() == cast
    assert drawn is None or RELEASED.read_bytes() == drawn
    assert checked("killed").returncode == 0


def test_other_ways_to_learn_are_in_the_report():
    names = ["non_private", "dp_sgd", "dp_sgd_adaptive", "private_knn"]
    baselines = {"run": names, "epochs": 4, "batch_size": 40, "neighbours": 20}
    training = {"optimizer": "sgd", "learning_rate": 0.5, "max_grad_norm": 1.0}
    file = write_settings("many", baselines=baselines, training=training)
    done = call("run", file)
    assert done.returncode == 0, done
    methods = json.loads(Path("artifacts/many/methods.json").read_text(encoding="utf-8"))
    assert list(methods) == ["pate", *names]
    assert methods["non_private"]["epsilon"] is None
    for name in ("pate", *names[1:]):
        assert 0 < methods[name]["epsilon"] <= 8
        assert set(methods[name]["labels"]) == set(NAMES)
    text = Path("artifacts/many/report.md").read_text(encoding="utf-8")
    for words in ("not private", "DP-SGD, adaptive", "privateKNN and"):
        assert words in text
    # Each under an account of its own, and no weights of what protects nobody.
    for name in ("many-dp-sgd", "many-dp-sgd-adaptive", "many-private-knn"):
        assert releases(name) == releases(name, EntryKind.COMMIT) != []
    assert not Path("artifacts/many-non-private").exists()
    before = {name: entries(name) for name in ("many", "many-dp-sgd", "many-private-knn")}
    assert call("run", file).returncode == 0
    assert {name: entries(name) for name in before} == before
    assert call("ledger", "verify", "artifacts").returncode == 0


def test_a_gate_asks_more_records_for_the_same_price():
    voting = {"queries": 30, "sigma": 12.0, "gate": "calm", "dependents": ["loud", "long"]}
    teachers = {"count": TEACHERS, "epochs": 20, "learning_rate": 0.05}
    file = write_settings("gated", voting=voting, teachers=teachers)
    done = call("run", file)
    assert done.returncode == 0, done
    labels = pq.read_table("artifacts/gated/votes-1/released.parquet")["label"].to_pylist()
    answered = [row for row in labels if -1 not in row]
    assert len(labels) == 60  # two of four labels are asked where the gate is absent
    assert len(answered) >= 30
    assert all(row[1] == row[3] == 0 for row in answered if row[0] == 0)
    asked = sum(4 if row[0] else 2 for row in answered)
    assert asked <= 30 * 4
    (charged,) = certificate("gated")["released"]
    assert charged["answers"] == 30 * 4
    assert checked("gated").returncode == 0


def test_a_student_chooses_what_the_flow_asks_next():
    voting = {"queries": 30, "rounds": 2, "acquisition": "entropy"}
    file = write_settings("chosen", voting=voting)
    done = call("run", file)
    assert done.returncode == 0, done
    assert releases("chosen", EntryKind.COMMIT) == ["votes/1", "votes/2"]
    first, second = (
        pq.read_table(f"artifacts/chosen/phase-0/asked-{number}.parquet") for number in (1, 2)
    )
    assert not set(first["id"].to_pylist()) & set(second["id"].to_pylist())
    assert (first["unsure"].null_count, second["unsure"].null_count) == (15, 0)
    assert checked("chosen").returncode == 0


def test_teachers_are_trained_side_by_side_and_kept_nowhere_else(prefect_home):
    pytest.importorskip("prefect_dask")
    here = write_settings("here")
    assert call("run", here).returncode == 0
    done = call("run", write_settings("there", runtime={"task_runner": "dask", "shards": 2}))
    assert done.returncode == 0, done
    weights = []
    for number in range(TEACHERS):
        one, other = (
            Path(f"artifacts/{name}/confidential/teachers/teacher-{number}.safetensors")
            for name in ("here", "there")
        )
        assert one.read_bytes() == other.read_bytes()
        weights.append(one.read_bytes()[-64:])
    for path in files_below(prefect_home):
        if path.is_file():
            content = path.read_bytes()
            assert not any(one in content for one in weights), path
