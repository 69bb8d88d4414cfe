"""A campaign that somebody ended while it waited for people: it asks nobody any more."""

from __future__ import annotations

import csv
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
from tests.conftest import small_values
from tests.flows.calling import call

QUERY = Path("artifacts/small/confidential/query/phase-0/query.csv")


@pytest.fixture
def waiting(workplace):
    """A campaign that waits for the labels of its first query."""
    with pytest.raises(LabelsPending):
        dpal.run(dpal.settings(small_values(labeler__kind="file")))
    return CampaignFolder(Path("artifacts/small"))


@pytest.fixture
def answers(waiting):
    with QUERY.open(newline="") as stream:
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
