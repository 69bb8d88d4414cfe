"""Other starts, labelers and data of improvements; and sweeps over them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from tests.conftest import flows_at, write_blobs
from tests.flows.calling import call, sentence
from tests.flows.improving import NEAR, certificate, entries, released, verified, write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(prefect_api, tmp_path_factory):
    """A start that this module's improvements begin with."""
    folder = tmp_path_factory.mktemp("starts")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(folder)
        write_blobs(folder / "pool.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        write_blobs(folder / "public.parquet", 400, seed=3, prefix="p")
        done = call("run", write("diverse"))
        assert done.returncode == 0, done
        yield folder, done


@pytest.fixture(autouse=True)
def _there(place, monkeypatch, orchestrated):
    monkeypatch.chdir(place[0])


def test_a_finished_campaign_is_a_start_and_says_that_noise_was_chosen_afterwards():
    choice = {"method": "near_private", "labels": 40, "components": 3}
    privacy = {"epsilon": 6.0}
    file = write("later", start={"campaign": "begun"}, choice=choice, privacy=privacy)
    result = call("run", file)
    assert result.returncode == 0, result
    assert released("later") == list(NEAR)
    assert "fixed after" in certificate("later")["noise_chosen"]
    assert verified("later").returncode == 0


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
    assert "is declared" in checked.stdout
    assert "its makers" in Path("artifacts/said/report.md").read_text(encoding="utf-8")
    undeclared = write("unsaid", start={"model": model}, privacy={})
    assert "be guessed" in sentence(call("run", undeclared))


def test_a_certificate_of_another_model_is_refused():
    model = "artifacts/diverse/phase-0/model.safetensors"
    file = write(
        "foreign", start={"model": model, "certificate": "artifacts/begun/certificate.json"}
    )
    assert "does not hold for" in sentence(call("run", file))


def test_people_label_public_records_through_a_file(place):
    file = write("people", start={"campaign": "begun"}, privacy={}, labeler={"kind": "file"})
    paused = call("run", file)
    assert paused.returncode == 0, paused
    assert "paused" in paused.stdout
    query = Path("artifacts/people/confidential/query/phase-0/query.csv")
    truth = dict(zip(*(pq.read_table("public.parquet")[key].to_pylist() for key in ("id", "label")),
                     strict=True))  # fmt: skip
    with query.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    with query.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "label": str(truth[row["id"]])} for row in rows)
    result = call("label", "artifacts/people", str(query))
    assert result.returncode == 0, result
    if not Path("artifacts/people/certificate.json").is_file():
        assert call("run", file).returncode == 0
    assert verified("people").returncode == 0


@pytest.mark.statistical
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
    assert "Irrelevant public" in result.stdout


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
    held = next(one.body["data"] for one in entries("shared") if one.kind is EntryKind.HOLD)
    assert held["name"] == "clinic"
    assert held["blocks"][0]["divergence"] > 0
    assert verified("shared").returncode == 0
    # Public records that belong to a registered data set are none.
    public, begun = {"pool": "pool.parquet"}, {"campaign": "shared-start"}
    mine = write("mine", data=data, public=public, start=begun)
    assert "data set clinic" in sentence(call("run", mine))


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
    assert "on 100 turned public" in result.stderr
    document = certificate("turned")
    begun = document["start"]["certificate"]["plan"]["content"]["spec"]["model"]
    assert begun["weights_digest"] is not None
    assert document["released"] == []
    assert Path("artifacts/turned/figures/central.png").stat().st_size > 5000
    assert call("run", file).returncode == 0
    assert verified("turned").returncode == 0


@pytest.mark.statistical
def test_of_an_owner_one_record_votes(prefect_api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "all.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    write_blobs(tmp_path / "public.parquet", 400, seed=3, prefix="p")
    table = pq.read_table("all.parquet")
    owners = pa.array([f"person-{at // 3}" for at in range(600)])  # three records each
    pq.write_table(table.append_column("group", owners), "pool.parquet")
    registered = call("data", "register", "people", "pool.parquet", "--epsilon", "8",
                      "--delta", "1e-4", "--group", "group")  # fmt: skip
    assert registered.returncode == 0, registered
    data = {"pool": "pool.parquet", "validation": "validation.parquet", "dataset": "people"}
    choice = {"method": "near_private", "labels": 40, "candidates": 300, "components": 3}
    start = {"batch_size": 60, "epochs": 3}
    result = call("run", write("owned", data=data, choice=choice, start=start))
    assert result.returncode == 0, result
    document = certificate("owned")
    assert document["promise"]["unit"] == "group"
    assert document["start"]["certificate"]["pool"]["size"] == 200
    support = pq.read_table("artifacts/owned/phase-0/guidance/support.parquet")
    # 200 owners have at most 200 votes; 600 records would have had several hundred. Noise of 300
    # counts at epsilon 0.5 has a standard deviation of 49.
    assert np.asarray(support["support"]).sum() < 200 + 5 * 49
    assert verified("owned").returncode == 0
    # A file does not say who took part.
    model = "artifacts/owned-start/phase-0/model.safetensors"
    filed = {"model": model, "certificate": "artifacts/owned-start/certificate.json"}
    privacy = {"epsilon": 7.0}
    file = write("filed", data=data, choice=choice, start=filed, privacy=privacy)
    assert "protects single" in sentence(call("run", file))
