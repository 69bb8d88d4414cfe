"""Whole improvements with public records on a real Prefect server, on small data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dpal
from dpal.errors import DpalError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from tests.conftest import small_values
from tests.flows.calling import call, sentence
from tests.flows.improving import NEAR, certificate, entries, released, settings, verified, write
from tests.flows.improving import place as place  # a fixture
from tests.reports.pages import sound


@pytest.fixture(autouse=True)
def _there(place, monkeypatch, orchestrated):
    monkeypatch.chdir(place[0])


def test_a_free_choice_adds_no_entry_to_that_of_its_start(place):
    assert entries("diverse") == []
    recorded = Path("artifacts/diverse/campaign.json").read_text(encoding="utf-8")
    assert "public.parquet" in recorded and "others.parquet" not in recorded
    assert released("begun") == ["phase-0/training"]
    document = certificate("diverse")
    assert document["released"] == []
    assert document["epsilon"] == document["start"]["epsilon"]
    assert document["ledger"]["head"] == document["start"]["certificate"]["ledger"]["head"]


@pytest.mark.parametrize("by", ["cohort", "time", "data"])
def test_the_ledger_of_a_free_choice_is_that_of_its_start(by):
    result = call("ledger", "show", "artifacts/diverse", "--by", by)
    assert result.returncode == 0, result.stderr
    assert dpal.account("artifacts/diverse") == dpal.account("artifacts/begun")


def test_near_private_has_two_releases_that_were_held_before_its_start_began(place):
    assert released("near") == list(NEAR)
    begun = entries("begun")
    first = next(one.sequence for one in begun if one.kind is EntryKind.RESERVE)
    hold = entries("near")[0]
    assert hold.kind is EntryKind.HOLD
    assert hold.sequence < first
    document = certificate("near")
    assert document["noise_chosen"] == "the noise was fixed before the start released anything"
    assert document["start"]["epsilon"]["pld"] < document["epsilon"]["pld"] <= 4.0
    assert document["epsilon"]["pld"] > 3.9  # the start took what was left
    # What is charged is what the settings say: votes of threshold voters move one count.
    assert [one["mechanism"] for one in document["released"]] == ["noisy_moments", "noisy_counts"]
    assert (document["released"][1]["epsilon"], document["released"][1]["moved"]) == (0.5, 1)


def test_running_again_changes_and_draws_nothing(place):
    _, (first, again, _) = place
    assert first.stdout.splitlines()[-1] == again.stdout.splitlines()[-1]
    assert len(released("near")) == 2
    assert [one.kind for one in entries("near")].count(EntryKind.COMMIT) == 2


@pytest.mark.parametrize("name", ["diverse", "near"])
def test_verify_recomputes_the_total_with_another_accountant(name):
    result = verified(name)
    assert result.returncode == 0, result.stdout
    assert "FAILED" not in result.stdout
    for line in ("start: epsilon, dp-accounting", "epsilon, start", "promise"):
        assert line in result.stdout


def test_the_command_that_a_run_prints_last_works_here_as_it_stands(place):
    _, (first, *_) = place
    printed = next(line for line in first.stdout.splitlines() if line.startswith("check:"))
    _, *words = shlex.split(printed.removeprefix("check:"))
    done = call(*words)
    assert done.returncode == 0, done
    assert "75 parameters" in done.stdout
    assert "own key" in done.stdout.splitlines()[-1]


def test_ending_what_is_done_changes_nothing():
    """Its own part of the ledger has ended already, and its start was trained here."""
    before, told = certificate("near"), entries("near")
    done = call("end", "artifacts/near")
    assert done.returncode == 0, done
    assert certificate("near") == before
    assert entries("near") == told


@pytest.mark.parametrize("name", ["diverse", "near"])
def test_its_ledger_can_be_checked_and_shown(name):
    assert call("ledger", "verify", f"artifacts/{name}").returncode == 0
    assert call("ledger", "verify", "artifacts").returncode == 0
    shown = call("ledger", "show", "artifacts/near")
    assert shown.returncode == 0
    assert "noisy" in shown.stdout


def edited(name: str, change) -> str:
    document = certificate(name)
    change(document)
    from dpal.certificate.read_and_seal import sealed_certificate, to_text

    path = Path("edited.json")
    path.write_text(to_text(sealed_certificate(document)), encoding="utf-8")
    return str(path)


def smaller_total(document):
    document["epsilon"]["pld"] -= 0.1


def smaller_promise(document):
    document["promise"]["epsilon"] = 3.0


def no_releases(document):
    document["released"] = []
    document["ledger"].update(identity=None, opening=None, entries=[])


def another_start(document):
    document["start"]["model"] = "0" * 64


def said_to_be_free(document):
    document["noise_chosen"] = "nothing was released beyond the start"


def fewer_moved(document):
    support = document["plan"]["content"]["spec"]["guidance"]
    support["voters"] = "top_k"


def two_kinds_of_start(document):
    document["start"]["declared"] = {"epsilon": 1.0, "delta": 1e-6}


def cheaper_plan(document):
    document["plan"]["content"]["spec"]["guidance"]["support"]["epsilon"] = 0.1


@pytest.mark.parametrize(
    "change",
    [
        smaller_total,
        smaller_promise,
        no_releases,
        another_start,
        said_to_be_free,
        cheaper_plan,
        fewer_moved,
        two_kinds_of_start,
    ],
)
def test_a_certificate_that_was_edited_and_sealed_again_is_refused(change):
    result = call("verify", edited("near", change), "--ledger", "artifacts/near")
    assert result.returncode == 1
    assert "FAILED" in result.stdout


def test_a_free_certificate_does_not_hide_entries_of_the_ledger():
    """Claiming a free method for a run that released something is found by the ledger."""

    def hide(document):
        document["campaign"] = "near"

    result = call("verify", edited("diverse", hide), "--ledger", "artifacts/near")
    assert result.returncode == 1
    assert "is not covered by the certificate" in result.stdout


def test_choosing_and_learning_helps(place):
    for name in ("diverse", "near"):
        metrics = CampaignFolder(Path("artifacts") / name).finished_phases()[0]
        assert metrics["labels"] == 60
        assert metrics["validation_accuracy"] > metrics["start_accuracy"] - 0.02


def test_released_files_hold_nothing_private():
    folder = Path("artifacts/near/phase-0/guidance")
    assert sorted(one.name for one in folder.iterdir()) == [
        "components.safetensors",
        "support.parquet",
    ]
    support = pq.read_table(folder / "support.parquet")
    assert support.column_names == ["row", "support"]
    assert support.num_rows == 150  # every candidate, also without a vote
    assert (np.asarray(support["support"]) % 1 != 0).mean() > 0.9  # none without noise
    for name in ("certificate.json", "report.md", "campaign.json"):
        assert "r-00" not in Path("artifacts/near", name).read_text(encoding="utf-8")


def test_mlflow_has_the_run_and_the_model_carries_its_certificate(place):
    mlflow.set_tracking_uri(f"sqlite:///{place[0] / 'artifacts' / 'mlflow.sqlite'}")
    run = mlflow.search_runs(
        experiment_names=["dpal"],
        filter_string="tags.`dpal.campaign` = 'near'",
        output_format="list",
    )[0]
    assert run.data.tags["dpal.kind"] == "public"
    assert run.data.tags["epsilon"] == "4"
    assert run.data.metrics["campaign_epsilon"] <= 4
    result = call("verify", "--model", "models:/dpal-near/1", "--key", "own")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "epsilon 4 at delta 0.0001" in result.stdout


def test_status_and_report_know_it(place):
    shown = call("status", "--artifacts", "artifacts")
    assert "diverse" in shown.stdout
    assert "finished" in shown.stdout
    result = call("report", "artifacts/near")
    assert result.returncode == 0
    text = Path("artifacts/near/report.md").read_text(encoding="utf-8")
    assert "near-private/support" in text
    assert "start included" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [("near", "2 of 2 planned"), ("diverse", "campaign begun")],
)
def test_report_and_ledger_are_signed_pages_that_open_without_a_server(name, said):
    folder = Path("artifacts", name)
    report = sound((folder / "report.html").read_text(encoding="utf-8"))
    assert f"Improvement {name}" in report.text
    assert certificate(name)["digest"] in report.text
    assert "Which public" in report.text
    ledger = sound((folder / "ledger.html").read_text(encoding="utf-8"))
    assert said in ledger.text
    for page in ("report.html", "ledger.html"):
        assert "r-00" not in (folder / page).read_text(encoding="utf-8")
        done = call("verify", str(folder / page), "--ledger", str(folder), "--key", "own")
        assert done.returncode == 0, done.stdout


REFUSALS = [
    ({"privacy": {"epsilon": 2.0, "delta": 1e-4}}, "cost epsilon 3.6", "privacy.epsilon is 2"),
    ({"choice": {"labels": 900}}, "900 of 400", "lower it"),
    (
        {"choice": {"labels": 60, "clusters": 10, "each": 7}},
        "choice.clusters 10 x choice.each 7 is 70 and choice.labels is 60",
        "them fit",
    ),
    ({"choice": {"labels": 60, "components": 7}}, "6 wide", "6"),
    ({"choice": {"labels": 60, "candidates": 30}}, "choice.candidates 30 is below", "twice"),
    ({"public": {"pool": "narrow.parquet"}}, "shape (5,)", "one shape"),
    (
        {"public": {"pool": "pool.parquet"}},
        "protected record",
        DpalError.closing,
    ),
    ({"public": {"pool": "validation.parquet"}}, "a test", DpalError.closing),
    (
        {"public": {"pool": "public.parquet", "provenance_column": "from", "irrelevant": ["x"]}},
        "column 'from'",
        "public.provenance_column",
    ),
]


@pytest.mark.parametrize(("changes", "first", "second"), REFUSALS)
def test_what_cannot_be_is_one_sentence_and_nothing_is_released(changes, first, second):
    generator = np.random.default_rng(0)
    values = pa.FixedSizeListArray.from_arrays(pa.array(generator.normal(size=500)), 5)
    columns = {
        "id": [f"q{at}" for at in range(100)],
        "features": values.cast(pa.list_(pa.float32(), 5)),
    }
    pq.write_table(pa.table({**columns, "label": [0] * 100}), "narrow.parquet")
    before = len(entries("begun"))
    file = write("refused", start={"campaign": "begun"}, **changes)
    said = sentence(call("run", file)).replace("\n", " ")
    said = said[said.index("dpal: ") :]
    assert first in said, said
    assert second in said, said
    assert len(entries("begun")) == before
    assert entries("refused") == []


def test_a_total_below_the_start_is_refused_before_anything_is_trained():
    file = write("costly", start={"epsilon": 5.0, "batch_size": 100, "epochs": 3})
    said = sentence(call("run", file))
    assert "start.epsilon 5 is" in said and "privacy.epsilon 4" in said
    tight = {"pca_epsilon": 3.0, "support_epsilon": 3.95}
    choice = {"method": "near_private", "labels": 60, "components": 3}
    file = write("tight", near_private=tight, choice=choice, start={"batch_size": 100, "epochs": 3})
    assert "start fits" in sentence(call("run", file))
    assert entries("tight-start") == entries("costly-start") == []


@pytest.mark.slow
def test_campaigns_are_swept_as_well():
    Path("c.yaml").write_text(yaml.safe_dump(small_values(schedule__queries=[])), encoding="utf-8")
    done = call("run", "c.yaml", "--sweep", "privacy.epsilon=1,2", "--repeat", "model.seed=0,1")
    folder = Path(done.stdout.split()[-1])
    kept = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    assert [one["swept"] for one in kept] == 2 * [{"privacy.epsilon": 1}] + 2 * [
        {"privacy.epsilon": 2}
    ]
    assert all(one["campaign_epsilon"] <= one["target_epsilon"] for one in kept)
    assert (folder / "sweep.png").is_file()
    assert "start" not in (folder / "sweep.md").read_text(encoding="utf-8")


OTHERS = [
    ("diverse", {"choice": {"labels": 50, "components": 3}}),
    ("diverse", {"start": {"campaign": "begun"}, "fine_tuning": {"epochs": 3}}),
    ("near", {"choice": {"labels": 60, "components": 3}}),  # said to be free now
    ("near", {"privacy": {"epsilon": 4.5, "delta": 1e-4}, "start": {"name": "begun"}}),
]


@pytest.mark.parametrize(("name", "changes"), OTHERS)
def test_what_was_made_is_never_certified_under_other_settings(name, changes):
    before = Path(f"artifacts/{name}/certificate.json").read_bytes()
    entered = len(entries(name))
    Path("again.yaml").write_text(yaml.safe_dump(settings(name, **changes)), encoding="utf-8")
    result = call("run", "again.yaml")
    assert result.returncode == 2, result
    assert "choose another name" in result.stderr
    assert Path(f"artifacts/{name}/certificate.json").read_bytes() == before
    assert len(entries(name)) == entered


def test_a_start_that_was_trained_by_another_plan_is_none():
    choice = {"method": "near_private", "labels": 60, "components": 3}
    start = {"batch_size": 100, "epochs": 2, "name": "begun"}  # that one was trained for 3
    result = call("run", write("other", choice=choice, start=start))
    assert result.returncode == 2, result
    assert "another plan" in result.stderr
    assert released("other") == []


def test_public_records_need_labels_that_fit_before_anything_is_spent():
    table = pq.read_table("public.parquet")
    pq.write_table(table.drop_columns(["label"]), "bare.parquet")
    labels = pa.array([7, *table["label"].to_pylist()[1:]])
    pq.write_table(table.set_column(2, "label", labels), "strange.parquet")
    for pool, said in (("bare", "every row"), ("strange", "labels above 2")):
        file = write("unfit", start={"campaign": "begun"}, public={"pool": f"{pool}.parquet"})
        assert said in sentence(call("run", file))


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"delta": 0.1}, "below 1/600"),  # it would publish a record
        ({"adjacency": "replace_one"}, "keeps zero_out"),
    ],
)
def test_a_promise_that_the_start_cannot_keep_is_refused(privacy, said):
    assert said in sentence(call("run", write("p", start={"campaign": "begun"}, privacy=privacy)))
