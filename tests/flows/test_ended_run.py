"""A campaign that somebody ended while it waited for people: it asks nobody any more."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import dpal
from dpal.config.campaign import CampaignConfig
from dpal.errors import DataError, LabelError, LabelsPending
from dpal.files.artifacts import CampaignFolder
from dpal.runs.ended_run import was_ended
from dpal.runs.execute import end
from dpal.runs.improvement_start_model import finished_folder
from dpal.runs.labeling import deliver_labels, open_query
from dpal.runs.plan_new_campaign import find_earlier
from dpal.runs.released_phase import reached
from tests.conftest import small_values
from tests.flows.calling import call


@pytest.fixture
def waiting(workplace):
    """A campaign that waits for the labels of its first query."""
    with pytest.raises(LabelsPending):
        dpal.run(dpal.settings(small_values(labeler__kind="file")))
    return CampaignFolder(Path("artifacts/small"))


@pytest.fixture
def answers(waiting):
    return answered(waiting, 0)


def answered(folder: CampaignFolder, phase: int) -> Path:
    """Answers to the query of a phase, all of them class 0."""
    query = folder.root / f"confidential/query/phase-{phase}/query.csv"
    with query.open(newline="") as stream:
        lines = "".join(f"{row['id']},0\n" for row in csv.DictReader(stream))
    file = Path("answers.csv")
    file.write_text(f"id,label\n{lines}")
    return file


@pytest.mark.slow
def test_an_ended_campaign_takes_no_labels(waiting, answers):
    assert open_query(waiting) == waiting.phase(0)
    end(waiting)
    assert was_ended(waiting) and open_query(waiting) is None
    with pytest.raises(LabelError):
        deliver_labels(waiting, answers)
    assert not waiting.phase(0).labels.exists()


def test_labels_for_an_ended_campaign_start_no_flow(waiting, answers):
    end(waiting)
    refused = call("label", str(waiting.root), str(answers))
    assert refused.returncode == 2
    assert "was ended" in refused.stderr and "accepted" not in refused.stdout


def test_status_says_that_a_campaign_was_ended_and_asks_nobody(waiting):
    assert "query.csv" in call("status", "--artifacts", "artifacts").stdout
    end(waiting)
    shown = call("status", "--artifacts", "artifacts", "--watch").stdout  # does not wait for it
    assert "was ended" in " ".join(shown.split())
    assert "waits" not in shown and "query.csv" not in shown


def test_status_states_no_epsilon_before_a_phase_is_finished(waiting):
    """Its ledger alone knows what it released: near_private, or votes, that nobody learned from."""
    assert "0.0000" not in call("status", "--artifacts", "artifacts").stdout


def test_status_shows_what_is_wrong_with_a_ledger_that_cannot_be_opened(waiting):
    Path("artifacts/ledger.sqlite").write_bytes(b"nothing")
    assert call("status", "--artifacts", "artifacts").returncode == 0


def test_nothing_starts_from_an_ended_campaign_and_nobody_is_told_to_finish_it(waiting):
    end(waiting)
    follows = CampaignConfig.model_validate(small_values(name="second", start_from="small"))
    with pytest.raises(DataError, match="was ended"):
        find_earlier(follows)
    with pytest.raises(DataError, match="was ended"):
        finished_folder(follows.runtime, "small")


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_finished_campaign_was_not_ended_before():
    folder = dpal.run(dpal.settings(small_values(schedule__queries=[])))
    assert not was_ended(folder)
    end(folder)
    assert not was_ended(folder)


@pytest.mark.usefixtures("workplace")
def test_what_is_shown_of_a_campaign_that_ended_in_a_phase_counts_what_that_phase_released():
    schedule = {"initial": 150, "queries": [100], "batch_size": 60, "epochs_per_phase": 3}
    privacy = {"epsilon": 4.0, "delta": 1e-4, "selection": "hidden"}
    values = small_values(labeler__kind="file", schedule=schedule, privacy=privacy)
    settings = dpal.settings(values)
    for phase in (0, 1):
        with pytest.raises(LabelsPending):
            dpal.run(settings)
        folder = CampaignFolder(Path("artifacts/small"))
        if phase == 0:
            deliver_labels(folder, answered(folder, phase))
    after_phase_0 = folder.finished_phases()[0]["campaign_epsilon"]
    end(folder)
    certified = json.loads(folder.certificate.read_text(encoding="utf-8"))["epsilon"]["pld"]
    assert certified > after_phase_0 + 0.1
    assert reached(folder)["campaign_epsilon"] == certified
    assert f"{certified:.4f}" in call("status", "--artifacts", "artifacts").stdout
    assert call("report", str(folder.root)).returncode == 0
    report = (folder.root / "report.md").read_text(encoding="utf-8")
    assert f"lost at most epsilon {certified:.4f}" in report
