"""A card says what certificate and public records say, and nothing of protected ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import dpal
from dpal.canonical import file_digest
from dpal.config.campaign import parse_config
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.reports.validation_figures import worthless
from dpal.runs.model_card import DATA, TEXT, write_model_card
from dpal.runs.released_phase import released_figures
from tests.conftest import mislabel, small_values
from tests.flows.calling import call


@pytest.fixture
def finished(workplace: Path) -> CampaignFolder:
    return dpal.run(parse_config(small_values(acquisition="random", schedule__queries=[])))


def test_a_card_is_what_certificate_and_metrics_say(finished, tmp_path):
    card = write_model_card(finished, tmp_path / "card")
    document = json.loads(finished.certificate.read_text(encoding="utf-8"))
    [metrics] = finished.finished_phases()
    assert card["privacy"]["epsilon_spent_at_most"] == document["epsilon"]["pld"]
    assert card["certificate"]["sha256"] == file_digest(finished.certificate)
    assert card["certificate"]["signed"]
    assert card["results"]["headline"] == metrics["validation_accuracy"]
    assert card["results"]["majority"] < 0.5 < card["results"]["balanced_accuracy"]
    assert json.loads((tmp_path / "card" / DATA).read_text(encoding="utf-8")) == card
    text = (tmp_path / "card" / TEXT).read_text(encoding="utf-8")
    matter = yaml.safe_load(text.split("---")[1])
    assert (matter["model_name"], matter["epsilon"]) == ("small", 8.0)
    assert str(tmp_path) not in text + json.dumps(card)


def test_records_that_nobody_called_public_are_not_judged(finished, tmp_path):
    record = json.loads((finished.root / "campaign.json").read_text(encoding="utf-8"))
    record["config"]["validation"] = None
    (finished.root / "campaign.json").write_text(json.dumps(record), encoding="utf-8")
    assert write_model_card(finished, tmp_path / "card")["results"] is None


def test_the_command_says_of_a_worthless_model_that_it_is(workplace):
    mislabel(workplace / "validation.parquet")
    folder = dpal.run(parse_config(small_values(acquisition="random", schedule__queries=[])))
    done = call("card", str(folder.root), "--to", "card")
    assert done.returncode == 0, done.stderr
    results = json.loads((workplace / "card" / DATA).read_text(encoding="utf-8"))["results"]
    assert results["worthless"] == worthless(released_figures(folder) or {})
    assert results["worthless"] in " ".join(done.stdout.split())
    assert results["worthless"] in (workplace / "card" / TEXT).read_text(encoding="utf-8")


def test_a_card_needs_a_finished_campaign(finished, tmp_path):
    finished.certificate.unlink()
    with pytest.raises(DataError, match="finished"):
        write_model_card(finished, tmp_path)
    assert call("card", str(tmp_path / "nowhere")).returncode == 2
