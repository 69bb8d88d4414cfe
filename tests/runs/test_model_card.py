"""A card says what certificate and metrics say, of every kind of run that releases a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import dpal
from dpal.canonical import file_digest
from dpal.config.campaign import parse_config
from dpal.data.importing.settings import ImportSettings
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.reports.validation_figures import worthless
from dpal.runs.execute import execute_run
from dpal.runs.kinds import parse_any
from dpal.runs.model_card import write_model_card
from dpal.runs.predict import open_model, predict
from dpal.runs.released_phase import released_figures
from tests.conftest import mislabel, small_values, write_blobs
from tests.flows import improving, voting
from tests.flows.calling import call

BRIEF: dict[str, Any] = {"acquisition": "random", "schedule__queries": []}


@pytest.fixture
def finished(workplace: Path) -> CampaignFolder:
    return dpal.run(parse_config(small_values(**BRIEF)))


def card_of(folder: CampaignFolder) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(folder.cards[1].read_text(encoding="utf-8"))
    return card


def require_sound(folder: CampaignFolder) -> dict[str, Any]:
    """Every card, whatever the kind of its run, and again after the same run once more."""
    card, document = card_of(folder), json.loads(folder.certificate.read_text(encoding="utf-8"))
    [metrics] = folder.finished_phases()
    text = folder.cards[0].read_text(encoding="utf-8")
    matter = yaml.safe_load(text.split("---")[1])
    assert matter["model_name"] == folder.name
    assert matter["epsilon"] == document["promise"]["epsilon"]
    spent = card["privacy"]["epsilon_spent_at_most"]
    assert spent == document["epsilon"][document["promise"]["accountant"]]
    assert card["privacy"]["epsilon_second_opinion"] == pytest.approx(spent, rel=0.05)
    assert card["privacy"]["mechanisms"] and card["privacy"]["not_protected"]
    assert card["certificate"]["sha256"] == file_digest(folder.certificate)
    assert card["model"]["weights"]["sha256"] == file_digest(folder.phase(0).model)
    figure = next(iter(set(metrics) & {"validation_accuracy", "validation_micro_f1"}))
    assert card["results"]["headline"] == metrics[figure]
    assert card["results"]["majority"] == metrics["validation_majority"]
    assert len(card["results"]["classes"]) == len(card["model"]["classes"])
    assert set(folder.cards) <= set(folder.reports), "MLflow gets them"
    assert str(folder.root.resolve().parent) not in text + json.dumps(card)
    return card


def test_a_campaign_ends_with_a_card(finished):
    card = require_sound(finished)
    assert card["certificate"]["signed"]
    assert card["privacy"]["protected_records"] == 600
    for told in (finished.cards[0], finished.report):
        assert card["data"]["why_public"] in told.read_text(encoding="utf-8")
    assert card["results"]["majority"] < 0.5 < card["results"]["balanced_accuracy"]
    before = [path.read_bytes() for path in (*finished.cards, *finished.reports)]
    again = dpal.run(parse_config(small_values(**BRIEF)))
    assert [path.read_bytes() for path in (*again.cards, *again.reports)] == before


@pytest.mark.usefixtures("workplace")
def test_figures_on_protected_records_are_told_as_noisy() -> None:
    folder = dpal.run(parse_config(small_values(**BRIEF, validation={"protected": True})))
    results = card_of(folder)["results"]
    assert results["noisy"] and results["auc"] is None
    low, high = results["interval"]
    assert low <= results["headline"] <= high


def test_an_improvement_and_its_start_end_with_a_card(workplace: Path) -> None:
    write_blobs(workplace / "public.parquet", 400, seed=3, prefix="p")
    folder = execute_run(parse_any(improving.settings("better")))
    card = require_sound(folder)
    start = card_of(CampaignFolder(Path("artifacts/begun")))
    assert set(start["privacy"]["mechanisms"]) <= set(card["privacy"]["mechanisms"])
    assert set(start["privacy"]["not_protected"]) < set(card["privacy"]["not_protected"])
    assert "begun" in card["data"]["learned_from"]
    require_predictions(folder, workplace / "public.parquet", 400)


def test_private_voting_ends_with_the_card_of_its_student(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    voting.write_data(Path())
    folder = execute_run(parse_any(voting.settings("votes")))
    card = require_sound(folder)
    assert card["privacy"]["protected_records"] is None
    assert [each["name"] for each in card["results"]["classes"]] == list(voting.NAMES)
    assert "6 teachers" in card["data"]["learned_from"]
    require_predictions(folder, Path("public.parquet"), None)


def require_predictions(folder: CampaignFolder, place: Path, rows: int | None) -> None:
    """The folder says how its model reads records, also where the run is no campaign."""
    target = Path("predicted.parquet")
    done = predict(open_model(folder.root), place, target, ImportSettings())
    assert done.rows == (rows or done.rows) > 0


def test_an_account_of_votes_has_no_model_and_no_card(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = voting.write_ballots("ballots.parquet", voting.ballots(1))
    values = {"kind": "vote", "name": "votes", "ballots": {"files": [file]},
              "privacy": {"records": 4000, "epsilon": 8}}  # fmt: skip
    folder = execute_run(parse_any(values))
    assert not any(path.exists() for path in folder.cards)
    assert call("card", str(folder.root)).returncode == 2


def test_what_earlier_versions_measured_is_told_without_what_they_did_not(finished, tmp_path):
    metrics = finished.phase(0).metrics
    told = json.loads(metrics.read_text(encoding="utf-8"))
    old = ("validation_accuracy", "validation_records", "validation_standard_error")
    kept = {k: v for k, v in told.items() if not k.startswith("validation_") or k in old}
    metrics.write_text(json.dumps(kept), encoding="utf-8")
    card = write_model_card(finished, tmp_path / "card")
    assert card["results"]["headline"] == told["validation_accuracy"]
    assert card["results"]["majority"] is None and card["results"]["classes"] == []
    assert (tmp_path / "card" / "model_card.md").is_file()
    shutil.rmtree(tmp_path / "card")
    assert call("card", str(finished.root), "--to", str(tmp_path / "card")).returncode == 0


def test_the_command_says_of_a_worthless_model_that_it_is(workplace):
    mislabel(workplace / "validation.parquet")
    folder = dpal.run(parse_config(small_values(**BRIEF)))
    done = call("card", str(folder.root), "--to", "card")
    assert done.returncode == 0, done.stderr
    results = json.loads((workplace / "card" / "model_card.json").read_text("utf-8"))["results"]
    assert results["worthless"] == worthless(released_figures(folder) or {})
    assert results["worthless"] in " ".join(done.stdout.split())
    assert results["worthless"] in (workplace / "card" / "model_card.md").read_text("utf-8")


def test_a_card_needs_a_finished_run(finished, tmp_path):
    finished.certificate.unlink()
    with pytest.raises(DataError, match="finish"):
        write_model_card(finished, tmp_path)
    assert call("card", str(tmp_path / "nowhere")).returncode == 2
