"""SIGKILL in the middle of a campaign, then the same command again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from dpal.artifacts import CampaignFolder
from dpal.ledger.store import LedgerStore
from flows.ledger_view import as_object, verify
from tests.conftest import command, write_config

SCHEDULE = {"initial": 100, "queries": [40, 40], "batch_size": 50, "epochs_per_phase": 30}


def wait_for(ledger: Path, kind: str, release: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until the ledger has an entry, while the campaign runs."""
    deadline = time.monotonic() + 200
    query = "SELECT count(*) FROM entries WHERE kind = ? AND release = ?"
    while time.monotonic() < deadline:
        assert process.poll() is None, "the campaign ended before it could be killed"
        if ledger.exists():
            with sqlite3.connect(ledger, timeout=30) as raw:
                try:
                    if raw.execute(query, (kind, release)).fetchone()[0]:
                        return
                except sqlite3.OperationalError:
                    pass  # the table is being made
        time.sleep(0.01)
    raise AssertionError(f"no {kind} of {release} in time")


def kill_at(kind: str, release: str, api: str, log: Path) -> None:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [command(), "run", "c.yaml"],
            env={**os.environ, "PREFECT_API_URL": api},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        wait_for(Path("artifacts/ledger.sqlite"), kind, release, process)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL


def story(folder: CampaignFolder) -> list[tuple[str, str, object]]:
    """What the ledger says, without times and digests of random files."""
    store = LedgerStore(folder.ledger, create=False)
    entries = store.entries(folder.name)
    store.close()
    return [(entry.kind.value, entry.release, entry.body.get("charges")) for entry in entries]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, prefect_api, mlflow_uri):
    from tests.conftest import write_blobs

    place = tmp_path_factory.mktemp("undisturbed")
    write_blobs(place / "pool.parquet", 600, seed=1)
    write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")
    write_config(place / "c.yaml", schedule=SCHEDULE, runtime__mlflow_uri=mlflow_uri)
    subprocess.run(
        [command(), "run", "c.yaml"],
        cwd=place,
        env={**os.environ, "PREFECT_API_URL": prefect_api},
        check=True,
        capture_output=True,
    )
    return CampaignFolder(place / "artifacts" / "small")


def test_killed_in_phase_2_and_killed_again_it_finishes(
    dpal, prefect_api, workplace, mlflow_uri, undisturbed
):
    """Inside of the selection, then inside of the training of phase 2."""
    write_config(workplace / "c.yaml", schedule=SCHEDULE, runtime__mlflow_uri=mlflow_uri)
    folder = CampaignFolder(Path("artifacts/small"))
    kill_at("reserve", "phase-2/selection", prefect_api, workplace / "one.log")
    kill_at("reserve", "phase-2/training", prefect_api, workplace / "two.log")
    assert not folder.phase(2).model.exists()
    before = folder.phase(1).model.read_bytes()

    finished = dpal("run", "c.yaml")
    assert finished.returncode == 0, finished.stderr
    assert "phase-0" not in finished.stderr  # finished phases are skipped
    assert folder.phase(1).model.read_bytes() == before
    assert story(folder) == story(undisturbed)
    ours, theirs = as_object(folder), as_object(undisturbed)
    assert ours["cohorts"] == theirs["cohorts"]
    verify(folder)


def test_killed_after_persisting_it_commits_what_is_there(dpal, workplace, mlflow_uri):
    """The model is on disk, its commit is not: it is never drawn a second time."""
    one_phase = {**SCHEDULE, "queries": []}
    write_config(workplace / "c.yaml", schedule=one_phase, runtime__mlflow_uri=mlflow_uri)
    folder = CampaignFolder(Path("artifacts/small"))
    finished = dpal("run", "c.yaml")
    assert finished.returncode == 0, finished.stderr
    model = folder.phase(0).model.read_bytes()

    # Go back to the moment before the commit, as a crash there would leave it.
    raw = sqlite3.connect("artifacts/ledger.sqlite")
    kinds = [row[0] for row in raw.execute("SELECT kind FROM entries ORDER BY sequence")]
    assert kinds == ["hold", "reserve", "commit"]
    raw.execute("DROP TRIGGER entries_refuse_delete")
    raw.execute("DELETE FROM entries WHERE sequence = 3")
    raw.commit()
    raw.close()
    folder.phase(0).manifest.unlink()
    again = dpal("run", "c.yaml")
    assert again.returncode == 0, again.stderr
    assert folder.phase(0).model.read_bytes() == model
    assert verify(folder)[0] == 3


def test_two_at_once_are_one(dpal, prefect_api, workplace, mlflow_uri):
    write_config(workplace / "c.yaml", schedule=SCHEDULE, runtime__mlflow_uri=mlflow_uri)
    environment = {**os.environ, "PREFECT_API_URL": prefect_api}
    first = subprocess.Popen(
        [command(), "run", "c.yaml"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(Path("artifacts/ledger.sqlite"), "hold", "", first)
    first.send_signal(signal.SIGSTOP)  # else it might be done before the second one begins
    try:
        second = dpal("run", "c.yaml")
    finally:
        first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert "is being run by another process" in second.stderr
    assert first.wait(200) == 0


def test_ctrl_c_ends_at_once_without_a_server_of_ones_own(workplace, mlflow_uri):
    """A terminal sends the interrupt to the temporary Prefect server, too."""
    write_config(workplace / "c.yaml", schedule=SCHEDULE, runtime__mlflow_uri=mlflow_uri)
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    process = subprocess.Popen(
        [command(), "run", "c.yaml"],
        env={**environment, "PREFECT_HOME": str(workplace / "prefect")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(Path("artifacts/ledger.sqlite"), "hold", "", process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("dpal: interrupted; nothing was lost")
    assert "Traceback" not in said
