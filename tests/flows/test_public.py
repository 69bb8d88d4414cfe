"""Whole improvements with public records on a real Prefect server, on small data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpal.artifacts import CampaignFolder
from dpal.ledger.entries import Kind
from dpal.ledger.store import LedgerStore
from tests.conftest import small_values, write_blobs
from tests.flows.calling import call, sentence

NEAR = ("near-private/components", "near-private/support")


def settings(name: str, **sections) -> dict:
    """An improvement of a few seconds; whole sections may be replaced."""
    values = {
        "kind": "public",
        "name": name,
        "data": {"pool": "pool.parquet", "validation": "validation.parquet"},
        "public": {"pool": "public.parquet"},
        "start": {"batch_size": 100, "epochs": 3, "name": "begun"},
        "choice": {"labels": 60, "candidates": 150, "components": 3},
        "privacy": {"epsilon": 4.0, "delta": 1e-4},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"learning_rate": 0.5, "max_grad_norm": 1.0},
        "fine_tuning": {"epochs": 20, "learning_rate": 0.01, "batch_size": 16},
    }
    return {**values, **sections}


def write(name: str, **sections) -> str:
    Path(f"{name}.yaml").write_text(yaml.safe_dump(settings(name, **sections)), encoding="utf-8")
    return f"{name}.yaml"


@pytest.fixture(scope="module")
def place(prefect_api, tmp_path_factory):
    """A diverse_public run that trains its start, and a near_private one; looked at by many."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    folder = tmp_path_factory.mktemp("public")
    with pytest.MonkeyPatch.context() as patch, temporary_settings({PREFECT_API_URL: prefect_api}):
        patch.chdir(folder)
        write_blobs(folder / "pool.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        write_blobs(folder / "public.parquet", 400, seed=3, prefix="p")
        done = [call("run", write("diverse"))]
        choice = {"method": "near_private", "labels": 60, "candidates": 150, "components": 3}
        near = write("near", choice=choice, start={"batch_size": 100, "epochs": 3})
        done += [call("run", near), call("run", near)]
        assert [one.returncode for one in done] == [0] * 3, done
        yield folder, done


@pytest.fixture(autouse=True)
def _there(place, monkeypatch, orchestrated):
    monkeypatch.chdir(place[0])


def entries(campaign: str) -> list:
    store = LedgerStore(Path("artifacts/ledger.sqlite"), create=False)
    try:
        return store.entries(campaign)
    finally:
        store.close()


def released(campaign: str) -> list[str]:
    return [one.release for one in entries(campaign) if one.kind is Kind.RESERVE]


def certificate(name: str) -> dict:
    return json.loads(Path(f"artifacts/{name}/certificate.json").read_text(encoding="utf-8"))


def verified(name: str, *more: str):
    folder = f"artifacts/{name}"
    model = f"{folder}/phase-0/model.safetensors"
    return call("verify", folder, "--ledger", folder, "--model", model, *more)


def test_a_free_choice_adds_no_entry_to_that_of_its_start(place):
    assert entries("diverse") == []
    assert released("begun") == ["phase-0/training"]
    document = certificate("diverse")
    assert document["released"] == []
    assert document["epsilon"] == document["start"]["epsilon"]
    assert document["ledger"]["head"] == document["start"]["certificate"]["ledger"]["head"]


def test_near_private_has_two_releases_that_were_held_before_its_start_began(place):
    assert released("near") == list(NEAR)
    begun = entries("near-start")
    first = next(one.sequence for one in begun if one.kind is Kind.RESERVE)
    hold = entries("near")[0]
    assert hold.kind is Kind.HOLD
    assert hold.sequence < first
    document = certificate("near")
    assert document["noise_chosen"] == "the noise was fixed before the start released anything"
    assert document["start"]["epsilon"]["pld"] < document["epsilon"]["pld"] <= 4.0
    assert document["epsilon"]["pld"] > 3.9  # the start took what was left
    # What is charged is what the settings say: votes of threshold voters move one count.
    assert [one["mechanism"] for one in document["released"]] == ["noisy_moments", "noisy_counts"]
    assert (document["released"][1]["epsilon"], document["released"][1]["moved"]) == (0.5, 1)


def test_running_again_changes_and_draws_nothing(place):
    _, (_, first, again) = place
    assert first.stdout.splitlines()[-1] == again.stdout.splitlines()[-1]
    assert "components released" not in again.stderr or len(released("near")) == 2
    assert len(released("near")) == 2


@pytest.mark.parametrize("name", ["diverse", "near"])
def test_verify_recomputes_the_total_with_another_accountant(name):
    result = verified(name)
    assert result.returncode == 0, result.stdout
    assert "FAILED" not in result.stdout
    for line in ("start: epsilon, dp-accounting", "epsilon, start and all", "promise"):
        assert line in result.stdout


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
    from dpal.certificate.document import sealed_certificate, to_text

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


def cheaper_plan(document):
    document["plan"]["content"]["spec"]["guidance"]["support"]["epsilon"] = 0.1


@pytest.mark.parametrize(
    "change",
    [smaller_total, smaller_promise, no_releases, another_start, said_to_be_free, cheaper_plan],
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
    folder = Path("artifacts/near/guidance")
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
    result = call("verify", "--model", "models:/dpal-near/1")
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


REFUSALS = [
    ({"privacy": {"epsilon": 2.0, "delta": 1e-4}}, "has cost epsilon 3.9", "privacy.epsilon is 2"),
    ({"choice": {"labels": 900}}, "choice.labels asks for 900 of 400 public records", "lower it"),
    (
        {"choice": {"labels": 60, "clusters": 10, "each": 7}},
        "choice.clusters 10 x choice.each 7 is 70 and choice.labels is 60",
        "make them fit",
    ),
    ({"choice": {"labels": 60, "components": 7}}, "components of embeddings that are 6 wide", "6"),
    ({"choice": {"labels": 60, "candidates": 30}}, "choice.candidates 30 is below", "twice"),
    ({"public": {"pool": "narrow.parquet"}}, "shape (5,)", "bring both to one shape"),
    (
        {"public": {"pool": "pool.parquet"}},
        "a protected record cannot be public",
        "nothing was released",
    ),
    ({"public": {"pool": "validation.parquet"}}, "cannot be a test", "nothing was released"),
    (
        {"public": {"pool": "public.parquet", "provenance_column": "from", "irrelevant": ["x"]}},
        "has no column 'from'",
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
    assert "start.epsilon 5 is above privacy.epsilon 4" in sentence(call("run", file))
    tight = {"pca_epsilon": 3.0, "support_epsilon": 3.95}
    choice = {"method": "near_private", "labels": 60, "components": 3}
    file = write("tight", near_private=tight, choice=choice, start={"batch_size": 100, "epochs": 3})
    assert "no start fits beside it" in sentence(call("run", file))
    assert entries("tight-start") == entries("costly-start") == []


@pytest.mark.slow
def test_a_finished_campaign_is_a_start_and_says_that_noise_was_chosen_afterwards():
    choice = {"method": "near_private", "labels": 40, "components": 3}
    privacy = {"epsilon": 6.0}
    file = write("later", start={"campaign": "begun"}, choice=choice, privacy=privacy)
    result = call("run", file)
    assert result.returncode == 0, result
    assert released("later") == list(NEAR)
    assert certificate("later")["noise_chosen"].startswith("the noise was fixed after the start")
    assert verified("later").returncode == 0


@pytest.mark.slow
def test_a_model_with_its_certificate_and_one_that_is_declared():
    model, cert = "artifacts/begun/phase-0/model.safetensors", "artifacts/begun/certificate.json"
    file = write("filed", start={"model": model, "certificate": cert}, privacy={})
    assert call("run", file).returncode == 0
    assert verified("filed").returncode == 0
    declared = {"model": model, "declared": {"epsilon": 2.5, "delta": 1e-5}}
    file = write("said", start=declared, privacy={})
    result = call("run", file)
    assert result.returncode == 0, result
    document = certificate("said")
    assert document["start"]["declared"] == {"epsilon": 2.5, "delta": 1e-5}
    assert document["epsilon"]["pld"] == 2.5
    checked = verified("said")
    assert checked.returncode == 0
    assert "is declared, and cannot be checked" in checked.stdout
    assert "declared by its makers" in Path("artifacts/said/report.md").read_text(encoding="utf-8")
    undeclared = write("unsaid", start={"model": model}, privacy={})
    assert "what it cost cannot be guessed" in sentence(call("run", undeclared))


@pytest.mark.slow
def test_a_certificate_of_another_model_is_refused():
    model = "artifacts/diverse/phase-0/model.safetensors"
    file = write(
        "foreign", start={"model": model, "certificate": "artifacts/begun/certificate.json"}
    )
    assert "does not hold for" in sentence(call("run", file))


@pytest.mark.slow
def test_people_label_public_records_through_a_file(place):
    file = write("people", start={"campaign": "begun"}, privacy={}, labeler={"kind": "file"})
    paused = call("run", file)
    assert paused.returncode == 0, paused
    assert "paused" in paused.stdout
    query = Path("artifacts/people/confidential/query/phase-0/query.csv")
    truth = dict(zip(*(pq.read_table("public.parquet")[key].to_pylist() for key in ("id", "label")),
                     strict=True))  # fmt: skip
    lines = query.read_text(encoding="utf-8").splitlines()
    header = lines[0].split(",")
    filled = [lines[0]]
    for line in lines[1:]:
        cells = line.split(",")
        cells[header.index("label")] = str(truth[cells[0]])
        filled.append(",".join(cells))
    query.write_text("\n".join(filled) + "\n", encoding="utf-8")
    result = call("label", "artifacts/people", str(query))
    assert result.returncode == 0, result
    if not Path("artifacts/people/certificate.json").is_file():
        assert call("run", file).returncode == 0
    assert verified("people").returncode == 0


@pytest.mark.slow
def test_pollution_is_counted(place):
    clean = pq.read_table("public.parquet")
    write_blobs(Path("noise.parquet"), 100, seed=9, prefix="x")
    bad = pq.read_table("noise.parquet")
    kinds = pa.array(["good"] * clean.num_rows + ["bad"] * bad.num_rows)
    pq.write_table(pa.concat_tables([clean, bad]).append_column("kind", kinds), "mixed.parquet")
    public = {"pool": "mixed.parquet", "provenance_column": "kind", "irrelevant": ["bad"]}
    choice = {"method": "random", "labels": 100}
    file = write("mixed", start={"campaign": "begun"}, privacy={}, public=public, choice=choice)
    result = call("run", file)
    assert result.returncode == 0, result
    metrics = CampaignFolder(Path("artifacts/mixed")).finished_phases()[0]
    assert metrics["irrelevant_in_pool"] == pytest.approx(0.2)
    assert 0.05 < metrics["irrelevant_chosen"] < 0.4
    assert "Irrelevant public records" in result.stdout


@pytest.mark.slow
def test_a_sweep_is_averaged_drawn_and_continued(place):
    file = write("swept", start={"batch_size": 100, "epochs": 3})
    arguments = [
        "--sweep",
        "choice.labels=20,900",
        "--sweep",
        "choice.method=random,diverse_public",
    ]
    result = call("run", file, *arguments, "--repeat", "choice.seed=0,1")
    assert result.returncode == 0, result
    folder = Path("artifacts/swept")
    records = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    assert len(records) == 8
    assert sum("refused" in one for one in records) == 4  # 900 labels of 400 records
    assert (folder / "sweep.png").stat().st_size > 10_000
    assert "±" in (folder / "sweep.md").read_text(encoding="utf-8")
    starts = {one.parent.name for one in Path("artifacts").glob("swept-start-*/certificate.json")}
    assert len(starts) == 1  # all of them share one start, which was paid for once
    again = call("run", file, *arguments, "--repeat", "choice.seed=0,1")
    assert json.loads((folder / "sweep.json").read_text(encoding="utf-8")) == records
    assert again.returncode == 0
    assert "20 of 400" not in again.stdout


def test_campaigns_are_not_swept_here():
    Path("c.yaml").write_text(yaml.safe_dump(small_values()), encoding="utf-8")
    said = sentence(call("run", "c.yaml", "--sweep", "privacy.epsilon=1,2"))
    assert "dpal plan --sweep" in said


@pytest.mark.slow
def test_a_registered_data_set_counts_start_and_guidance(prefect_api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    registered = call("data", "register", "clinic", "pool.parquet", "--epsilon", "8",
                      "--delta", "1e-4")  # fmt: skip
    assert registered.returncode == 0, registered
    data = {"pool": "pool.parquet", "validation": "validation.parquet", "dataset": "clinic"}
    choice = {"method": "near_private", "labels": 60, "components": 3}
    start = {"batch_size": 100, "epochs": 3}
    file = write("shared", data=data, choice=choice, start=start)
    result = call("run", file)
    assert result.returncode == 0, result
    shown = json.loads(call("data", "show", "clinic", "--json").stdout)
    block = json.dumps(shown)
    assert "shared-start" in block
    assert '"shared"' in block
    held = next(one.body["data"] for one in entries("shared") if one.kind is Kind.HOLD)
    assert held["name"] == "clinic"
    assert held["blocks"][0]["divergence"] > 0
    assert verified("shared").returncode == 0
    # Public records that belong to a registered data set are none.
    public, begun = {"pool": "pool.parquet"}, {"campaign": "shared-start"}
    mine = write("mine", data=data, public=public, start=begun)
    assert "data set clinic" in sentence(call("run", mine))


@pytest.mark.slow
def test_rotations_come_before_the_start_and_cost_nothing(prefect_api, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)

    def pictures(path: str, count: int, prefix: str) -> None:
        labels = generator.integers(0, 3, count)
        images = []
        for label in labels:
            pixels = generator.integers(0, 60, (16, 16), dtype=np.uint8)
            pixels[:4, 5 * label : 5 * label + 5] = 250
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "PNG")
            images.append(stream.getvalue())
        ids = [f"{prefix}{at}" for at in range(count)]
        pq.write_table(pa.table({"id": ids, "image": images, "label": labels}), path)

    pictures("pool.parquet", 300, "r")
    pictures("validation.parquet", 150, "v")
    pictures("public.parquet", 200, "p")
    rotations = {"epochs": 1, "records": 100}
    start = {"batch_size": 100, "epochs": 2, "rotations": rotations}
    model, training = {"name": "tutorial_cnn"}, {"learning_rate": 0.5, "max_grad_norm": 0.3}
    file = write("turned", start=start, model=model, training=training,
                 choice={"clusters": 6, "each": 5})  # fmt: skip
    result = call("run", file)
    assert result.returncode == 0, result
    assert "pretrained on 100 turned public images" in result.stderr
    document = certificate("turned")
    begun = document["start"]["certificate"]["plan"]["content"]["spec"]["model"]
    assert begun["weights_digest"] is not None
    assert document["released"] == []
    assert Path("artifacts/turned/figures/central.png").stat().st_size > 5000
    assert call("run", file).returncode == 0
    assert verified("turned").returncode == 0
