"""Reruns are versions of one registered model, in a real registry; a rule moves the champion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import mlflow
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import parse_config
from dpal.errors import CertificateError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.campaign import Campaign
from dpal.runs.campaign_use_cases import CampaignRuns
from dpal.runs.write_certificate import certificate_in
from tasks.tracking.campaign_runs import track_campaign
from tasks.tracking.experiment import tell_mlflow
from tasks.tracking.model_versions import DECIDED, register_version
from tasks.tracking.promotion import version_before
from tasks.write_reports import write_report
from tests.conftest import CLASSES, small_values, write_blobs
from tests.flows.calling import call

pytestmark = pytest.mark.slow

NAME = "dpal-clinic"
SCHEDULE = {"initial": 100, "queries": [], "batch_size": 50, "epochs_per_phase": 3}
RULE = {"line": "clinic", "champion": "not_worse", "most_loss": 0.05}


@dataclass
class Wrong:
    """Answers wrongly, always."""

    def label(self, ids):
        rows = pq.read_table("pool.parquet", columns=["id", "label"]).to_pylist()
        truth = {row["id"]: row["label"] for row in rows}
        return {name: (truth[name] + 1) % CLASSES for name in ids}


def rerun(name: str, labeler=None, *, registry=None, validation=None) -> Campaign:
    """A finished campaign that is tracked, as its flow does it."""
    values = small_values(name=name, schedule=SCHEDULE, runtime__registry=registry or RULE)
    values["validation"] = validation or values["validation"]
    answered = {} if labeler is None else {"labeler": {"kind": "file"}}
    config = parse_config({**values, **answered})
    dpal.run(config, labeler=labeler)
    campaign = CampaignRuns().plan(config)
    write_report.fn(campaign)
    track_campaign.fn(campaign)
    return campaign


def registered_again(campaign: Campaign) -> str:
    """What registering a finished campaign once more comes to."""
    return tell_mlflow(
        campaign.runtime,
        lambda: register_version(campaign, certificate_in(campaign), "models:/nothing"),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three campaigns: a first one, one on half as many more records, and one that learns wrong."""
    folder = tmp_path_factory.mktemp("line")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_blobs(folder / "pool.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        rerun("may")
        write_blobs(folder / "pool.parquet", 900, seed=1)
        rerun("june")
        rerun("july", Wrong())
        yield folder


@pytest.fixture(autouse=True)
def client(place, monkeypatch) -> mlflow.MlflowClient:
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry())
    mlflow.set_tracking_uri(registry())
    return mlflow.MlflowClient()


def registry() -> str:
    return f"sqlite:///{Path('artifacts/mlflow.sqlite').resolve()}"


def champion(client) -> str:
    return str(client.get_registered_model(NAME).aliases["champion"])


def test_reruns_are_versions_of_one_model(client):
    versions = sorted(client.search_model_versions(f"name = '{NAME}'"), key=lambda one: one.version)
    tags = [version.tags for version in versions]
    assert [tag["dpal.campaign"] for tag in tags] == ["may", "june", "july"]
    assert {tag["dpal.line"] for tag in tags} == {"line clinic"}
    assert [tag["dpal.records"] for tag in tags] == ["600", "900", "900"]
    assert "dpal.changed" not in tags[0]
    assert "records +300" in tags[1]["dpal.changed"]
    page = client.get_model_version(NAME, "2").description
    document = read_certificate(Path("artifacts/june/certificate.json").read_text())
    for shown in ("epsilon 8", "delta 0.0001", "zero_out", "record", document["digest"], "+300"):
        assert shown in page
    assert "not_worse" in client.get_registered_model(NAME).description
    [run] = client.search_runs(
        [client.get_experiment_by_name("dpal").experiment_id], "tags.`dpal.campaign` = 'june'"
    )
    assert run.data.tags["dpal.model"] == f"models:/{NAME}/2"


def test_what_is_registered_is_found_by_its_new_name(client):
    for address in (f"models:/{NAME}/2", f"models:/{NAME}@champion"):
        checked = call("verify", "--model", address, "--key", "own", "--ledger", "artifacts")
        assert checked.returncode == 0, checked
        done = call("predict", address, "pool.parquet", "--to", f"{address[-1]}.parquet")
        assert done.returncode == 0, done


def test_the_rule_moved_the_champion_and_not_to_what_is_worse(client):
    tags = {number: client.get_model_version(NAME, number).tags for number in "123"}
    assert champion(client) == "2"
    assert tags["2"]["champion.before"] == "1"
    assert "not_worse" in tags["2"]["champion.by"]
    assert "ledger, model" in tags["2"]["champion.checked"]
    assert "own key" in tags["2"]["champion.author"]
    assert "champion.until" in tags["1"]
    assert "champion.at" not in tags["3"]
    assert "worthless" in str(tags["3"]) and "stays version 2" in tags["3"][DECIDED]


def test_the_champion_goes_back_and_stays_there(client):
    """Also when the campaign that it was taken from is tracked once more."""
    back = ("promote", f"models:/{NAME}", "--back", "--reason", "it is unfair", "--by", "ada")
    done = call(*back, "--ledger", "artifacts")
    assert done.returncode == 0, done
    assert champion(client) == "1"
    version = client.get_model_version(NAME, "1")
    assert version.tags["champion.by"] == "ada"
    campaign = CampaignRuns().plan(
        parse_config(small_values(name="june", schedule=SCHEDULE, runtime__registry=RULE))
    )
    address = registered_again(campaign)
    assert address == f"models:/{NAME}/2" and champion(client) == "1"
    first = call(*back, "--ledger", "artifacts")
    assert first.returncode == 2 and "first" in first.stderr
    assert champion(client) == "1"
    forth = call("promote", f"models:/{NAME}/2", "--reason", "mended", "--ledger", "artifacts")
    assert forth.returncode == 0 and champion(client) == "2"


def test_a_version_whose_certificate_does_not_hold_is_not_moved_to(client):
    by_person = {"line": "other", "champion": "person"}
    rerun("august", registry=by_person)
    assert "champion" not in client.get_registered_model("dpal-other").aliases
    client.set_model_version_tag("dpal-other", "1", "epsilon", "1")
    ruled = parse_config(
        small_values(name="august", schedule=SCHEDULE, runtime__registry={**RULE, "line": "other"})
    )
    assert registered_again(CampaignRuns().plan(ruled)) == "models:/dpal-other/1"
    assert "champion" not in client.get_registered_model("dpal-other").aliases
    assert "epsilon" in client.get_model_version("dpal-other", "1").tags[DECIDED]


def test_protected_figures_are_compared_where_the_files_of_both_runs_are(client, monkeypatch):
    """No digest of protected records leaves, so that the registry alone does not tell."""
    mine, protected = {**RULE, "line": "mine", "most_loss": 0.1}, {"protected": True}
    rerun("first", registry=mine, validation=protected)
    with monkeypatch.context() as later:
        later.setattr("tasks.tracking.promotion.today_in_utc", lambda: date(2040, 1, 1))
        rerun("second", registry=mine, validation=protected)
    tags = [client.get_model_version("dpal-mine", number).tags for number in "12"]
    assert [tag["dpal.measured_on"] for tag in tags] == ["protected", "protected"]
    assert "%" in tags[1]["dpal.interval"]
    # The day of the plan, and not of the end: that follows how many labels were bought.
    assert not [value for tag in tags for value in tag.values() if value.startswith("2040")]
    assert str(client.get_registered_model("dpal-mine").aliases["champion"]) == "2"
    write_blobs(Path("validation.parquet"), 300, seed=9, prefix="w")
    rerun("third", registry=mine, validation=protected)
    assert str(client.get_registered_model("dpal-mine").aliases["champion"]) == "2"
    assert "same" in client.get_model_version("dpal-mine", "3").tags[DECIDED]


def test_a_champion_of_an_earlier_dpal_goes_back_by_its_days(client):
    """Which version it was before is in no tag of these, only the day on which that ended."""
    for number, key, value in (
        ("1", "champion.until", "2026-03-01"),
        ("3", "champion.until", "2026-05-01"),
        ("2", "champion.at", "2026-05-01"),
    ):
        client.set_model_version_tag(NAME, number, key, value)
    client.delete_model_version_tag(NAME, "2", "champion.before")
    client.set_registered_model_alias(NAME, "champion", "2")
    assert version_before(NAME, "champion", registry()) == "3"
    client.set_model_version_tag(NAME, "1", "champion.until", "2026-05-01")
    with pytest.raises(CertificateError, match="--show"):
        version_before(NAME, "champion", registry())
    with pytest.raises(CertificateError, match="challenger"):
        version_before(NAME, "challenger", registry())


def test_a_campaign_that_stands_alone_keeps_a_line_of_its_own(client):
    rerun("alone", registry={"champion": "person"})
    version = client.get_model_version("dpal-alone", "1")
    assert version.tags["dpal.line"] == "campaign alone"
    assert client.get_registered_model("dpal-alone").aliases == {}


def test_a_runs_name_alone_makes_no_version_of_others_models(client, caplog):
    """Whoever starts a run chooses its name; of which line it is, the data's owner allows."""
    caplog.set_level("INFO", logger="dpal")
    before = [one.version for one in client.search_model_versions(f"name = '{NAME}'")]
    rerun("clinic", registry={"champion": "not_worse"})
    after = [one.version for one in client.search_model_versions(f"name = '{NAME}'")]
    assert after == before
    assert "runtime.registry.line" in caplog.text
    assert CampaignFolder(Path("artifacts/clinic")).certificate.is_file()
