"""Single moments: after persisting, two at once, Ctrl-C. Random ones: test_random_kills."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from dpal.files.artifacts import CampaignFolder
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.verify_ledger import verify_ledger
from tests.conftest import command, write_config

SCHEDULE = {"initial": 100, "queries": [40, 40], "batch_size": 50, "epochs_per_phase": 30}


def wait_for(ledger: Path, kind: str, release: str, process: subprocess.Popen[Any]) -> None:
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


@pytest.mark.slow
def test_killed_after_persisting_it_commits_what_is_there(dpal, workplace, mlflow_uri, state_home):
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
    assert kinds == ["open", "hold", "reserve", "commit", "end"]
    raw.execute("DROP TRIGGER entries_refuse_delete")
    raw.execute("DELETE FROM entries WHERE sequence >= 4")
    raw.commit()
    raw.close()
    left = LedgerStore(folder.ledger, create=False).entries()
    Anchors(state_home / "dpal" / "anchors").advance(identity_of(left), left[-1], anew=True)
    folder.phase(0).manifest.unlink()
    again = dpal("run", "c.yaml")
    assert again.returncode == 0, again.stderr
    assert folder.phase(0).model.read_bytes() == model
    assert verify_ledger(folder).entries == 5


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.timing
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
    assert said.splitlines()[-1].startswith("dpal: interrupted; ")
    assert "Traceback" not in said
