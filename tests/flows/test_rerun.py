"""New records arrive, and a second campaign goes on where the first one ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from dpal.data.labeling_state import EXCLUDED, labels_of
from dpal.files.artifacts import CampaignFolder
from dpal.runs.released_phase import released_weights
from tests.conftest import flows_at, write_blobs, write_config
from tests.flows.calling import call, sentence

pytestmark = pytest.mark.slow

SCHEDULE = {"initial": 100, "queries": [40], "batch_size": 50, "epochs_per_phase": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"pool": "pool", "validation": "validation.parquet", "dataset": "clinic"},
    "schedule": SCHEDULE,
}
FIRST, SECOND = Path("artifacts/first"), Path("artifacts/second")


def privacy(epsilon: float) -> dict[str, object]:
    return {"selection": "visible", "epsilon": epsilon, "delta": 1e-4}


@pytest.fixture(scope="module")
def place(prefect_api, tmp_path_factory):
    """Register, run, add a second file, run again; once for all tests of this module."""
    folder = tmp_path_factory.mktemp("rerun")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(folder)
        write_blobs(folder / "pool" / "january.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        write_config(folder / "first.yaml", name="first", privacy=privacy(5.0), **SETTINGS)
        again = {"name": "second", "start_from": "first", "privacy": privacy(5.0)}
        write_config(folder / "second.yaml", **again, **SETTINGS)
        done = [call("data", "register", "clinic", "pool", "--epsilon", "8", "--delta", "1e-4")]
        done += [call("run", "first.yaml")]
        write_blobs(folder / "pool" / "march.parquet", 400, seed=5, prefix="n")
        early = call("run", "second.yaml")
        done += [call("data", "add", "clinic", "pool"), call("run", "second.yaml")]
        assert [one.returncode for one in done] == [0] * 4, done
        yield folder, done, early


@pytest.fixture(autouse=True)
def _there(place, monkeypatch, orchestrated):
    monkeypatch.chdir(place[0])


def shown() -> dict:
    return json.loads(call("data", "show", "clinic", "--json").stdout)["clinic"]


def test_new_records_are_added_by_their_owner_first(place):
    _, done, early = place
    assert "400 of 1,000 rows" in sentence(early)
    assert "add clinic" in sentence(early)
    assert "block 1: 400 new" in done[2].stdout
    assert "; 600 were" in done[2].stdout


def test_new_records_get_the_full_budget_and_old_ones_what_is_left():
    summary = CampaignFolder(SECOND).read_record()["plan"]
    old, new = summary["blocks"]
    assert (old["block"], old["size"], new["block"], new["size"]) == (0, 600, 1, 400)
    assert new["participation"] == 1.0
    assert 0.1 <= old["participation"] < 1.0
    assert new["epsilon"] <= 5.0
    first, second = shown()["blocks"]
    assert first["campaigns"] == ["first", "second"]
    assert second["campaigns"] == ["second"]
    assert 5.0 < first["epsilon_taken"] <= 8.0
    assert first["share_left"] < 0.01 < second["share_left"]


def test_the_labels_and_the_model_of_the_first_campaign_are_the_start():
    before, after = CampaignFolder(FIRST), CampaignFolder(SECOND)
    bought = labels_of(before.phase(1).pool)
    assert labels_of(after.phase(0).pool) == bought
    weights = load_file(after.start_model)
    for name, value in load_file(released_weights(before)).items():
        assert torch.equal(weights[name], value)
    sizes = [phase["cohort_size"] for phase in after.read_record()["plan"]["phases"]]
    assert sizes == [140, 40]
    blocks = pq.read_table(after.phase(1).pool).column("block").to_pylist()
    assert blocks == [0] * 600 + [1] * 400


def test_both_runs_are_sound_and_certified():
    for folder in (FIRST, SECOND):
        verdict = call("ledger", "verify", str(folder))
        assert verdict.returncode == 0, verdict
        given = ["verify", str(folder), "--ledger", str(folder), "--key", "own"]
        # The first one's pool has grown since.
        certificate = call(*given, *(() if folder == FIRST else ("--data", "pool")))
        assert certificate.returncode == 0, certificate


def test_both_runs_are_one_history_in_mlflow(place):
    """One filter finds them; the rerun's table, figure and page hold what both did."""
    mlflow.set_tracking_uri(f"sqlite:///{place[0] / 'artifacts' / 'mlflow.sqlite'}")
    mlflow.set_experiment("dpal")
    earlier, later = mlflow.search_runs(
        filter_string="tags.dpal.dataset = 'clinic'",
        order_by=["metrics.`dataset_epsilon/block_0` ASC"],
        output_format="list",
    )
    assert [one.info.run_name for one in (earlier, later)] == ["first", "second"]
    assert "dpal.start_from" not in earlier.data.tags
    assert later.data.tags["dpal.start_from"] == "first"
    taken = [one["epsilon_taken"] for one in shown()["blocks"]]
    names = ["dataset_epsilon/block_0", "dataset_epsilon/block_1"]
    assert [later.data.metrics[name] for name in names] == pytest.approx(taken)
    assert names[1] not in earlier.data.metrics
    held = mlflow.MlflowClient().get_metric_history(later.info.run_id, names[0])
    assert len(held) == 2  # as it started, as it ended
    table = mlflow.load_table("ledger.json", run_ids=[later.info.run_id])
    assert set(table["campaign"]) == {"", "first", "second"}
    assert set(table["kind"]) >= {"register", "block", "hold", "end"}
    figure = f"runs:/{later.info.run_id}/figures/dataset.png"
    assert Path(mlflow.artifacts.download_artifacts(figure)).stat().st_size > 1000


def test_running_a_finished_rerun_again_changes_nothing():
    before = shown()
    again = call("run", "second.yaml")
    assert again.returncode == 0, again
    assert shown() == before


def test_nothing_useful_left_is_refused_with_the_numbers():
    write_config(Path("third.yaml"), name="third", privacy=privacy(8.0), **SETTINGS)
    said = sentence(call("plan", "third.yaml"))
    assert "block 1 of" in said
    assert "of 8 allowed (delta 0.0001, zero_out, record)" in said
    assert "taken by second; set privacy.epsilon to" in said


def test_the_epsilon_that_the_refusal_names_is_accepted():
    write_config(Path("third.yaml"), name="third", privacy=privacy(8.0), **SETTINGS)
    said = sentence(call("plan", "third.yaml"))
    named = said.partition("set privacy.epsilon to ")[2].partition(",")[0]
    planned = call("plan", "third.yaml", "--set", f"privacy.epsilon={named}")
    assert planned.returncode == 0, planned
    assert "take part" in planned.stdout


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"data__dataset": "hospital"}, "hospital is not"),
        ({"data__dataset": None}, "sets data.dataset: clinic"),
        ({"data__dataset": None, "start_from": "first"}, "needs data.dataset"),
        ({"start_from": "nowhere"}, "is not a campaign folder"),
        (
            {"start_from": "first", "model__name": "mlp", "model__hidden": [8]},
            "another model (logistic)",
        ),
        (
            {"start_from": "first", "data__normalisation": {"kind": "validation"}},
            "first had another data.normalisation",
        ),
        ({"privacy__adjacency": "replace_one"}, "adjacency zero_out"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(changes, match):
    values = {"name": "fourth", "privacy": privacy(1.0), **SETTINGS}
    values = json.loads(json.dumps(values))
    for key, value in changes.items():
        *path, last = key.split("__")
        section = values
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    write_config(Path("fourth.yaml"), **values)
    assert match in sentence(call("run", "fourth.yaml"))
    assert not Path("artifacts/fourth/phase-0").exists()


@pytest.mark.parametrize(
    ("before", "match"),
    [
        ({"data.extractor": {"kind": "scattering"}}, "had another data.extractor, which"),
        ({"model.weights": "0" * 64}, "had another model.weights, which"),
        ({"shape of a record": [3]}, "another shape"),
        (None, ""),  # an earlier version, whose inputs were as they came: so they are here
    ],
)
def test_weights_go_on_over_the_inputs_they_were_trained_for(before, match):
    """As if the first campaign had been about others."""
    record = json.loads((FIRST / "campaign.json").read_text())
    known = record.pop("weights_for")
    said = planned_after(json.dumps(record | ({"weights_for": known | before} if before else {})))
    assert (match in sentence(said)) if before else (said.returncode == 0)


def test_what_was_hidden_stays_hidden():
    """Visible answers of all who are left would show who was labeled in secret."""
    text = (FIRST / "campaign.json").read_text()
    hidden = text.replace('"selection": "visible"', '"selection": "hidden"')
    assert "set privacy.selection: hidden" in sentence(planned_after(hidden))


def planned_after(record: str):
    """Plans a campaign that starts from the first one, as if that had left this record."""
    path, values = FIRST / "campaign.json", {"start_from": "first", "privacy": privacy(1.0)}
    text = path.read_text()
    write_config(Path("fifth.yaml"), name="fifth", **values, **SETTINGS)
    path.write_text(record)
    try:
        return call("plan", "fifth.yaml")
    finally:
        path.write_text(text)


def test_registered_records_are_no_validation_set():
    values = {"name": "sixth", "privacy": privacy(1.0), "schedule": SCHEDULE}
    data = {"pool": "validation.parquet", "validation": "pool/january.parquet"}
    write_config(Path("sixth.yaml"), **values, data=data)
    assert "holds records" in sentence(call("plan", "sixth.yaml"))


def test_a_campaign_that_is_ended_early_is_certified_for_what_it_released(monkeypatch):
    """Stopped after its first phase, as a person might; what it held and did not use is free."""
    settings = {**SETTINGS, "schedule": {**SCHEDULE, "queries": [40, 40]}}
    write_config(Path("seventh.yaml"), name="seventh", privacy=privacy(1.0), **settings)

    with monkeypatch.context() as patch:
        patch.setattr("flows.campaign.merge_labels", _stop_in("phase-1"))
        assert call("run", "seventh.yaml").returncode == 130
    before = shown()["blocks"][1]["share_left"]
    assert call("end", "artifacts/seventh").returncode == 0
    assert shown()["blocks"][1]["share_left"] > before
    given = ("--ledger", "artifacts/seventh", "--key", "own")
    assert call("verify", "artifacts/seventh", *given).returncode == 0
    again = call("run", "seventh.yaml")
    assert again.returncode == 2
    assert "campaign seventh was" in again.stderr.splitlines()[-1]


def _stop_in(name: str):
    from tasks.campaign import merge_labels

    def merge(campaign, phase):
        if phase.name == name:
            raise KeyboardInterrupt
        return merge_labels(campaign, phase)

    return merge


def test_where_people_are_protected_one_record_of_each_takes_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "records.parquet", 600, seed=1)
    table = pq.read_table(tmp_path / "records.parquet")
    people = np.arange(600) // 3
    pq.write_table(table.append_column("person", pa.array(people)), tmp_path / "pool.parquet")
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    register = ("data", "register", "wards", "pool.parquet", "--epsilon", "8", "--group", "person")
    assert "200 new records" in call(*register).stdout
    data = {"pool": "pool.parquet", "validation": "validation.parquet", "dataset": "wards"}
    schedule = {**SCHEDULE, "initial": 60, "queries": []}
    write_config(tmp_path / "c.yaml", name="c", acquisition="random", schedule=schedule, data=data)
    assert call("run", "c.yaml").returncode == 0
    state = pq.read_table("artifacts/c/phase-0/../confidential/phase-0/pool.parquet")
    cohorts = np.array(state.column("cohort"))
    takes_part = cohorts != EXCLUDED
    assert takes_part.tolist() == ([True, False, False] * 200)
    assert (cohorts == 0).sum() == 60
    summary = json.loads(Path("artifacts/c/campaign.json").read_text())["plan"]
    assert (summary["unit"], summary["pool_size"]) == ("group", 200)
    assert "unit group" in call("data", "show").stdout


def test_a_validation_set_with_other_classes_cannot_go_on():
    table = pq.read_table("validation.parquet")
    at = table.schema.get_field_index("label")
    more = pa.array([label + (label == 2) for label in table["label"].to_pylist()])
    pq.write_table(table.set_column(at, "label", more), "more.parquet")
    values = {**SETTINGS, "data": {**SETTINGS["data"], "validation": "more.parquet"}}
    write_config(
        Path("fifth.yaml"), name="fifth", start_from="first", privacy=privacy(1.0), **values
    )
    said = sentence(call("plan", "fifth.yaml"))
    assert "first has 3 classes (single_label)" in said
