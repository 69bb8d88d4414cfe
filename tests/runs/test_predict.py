"""Predictions are the released model's own, for records of whatever form."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

import dpal
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError, ParameterError
from dpal.inference.answers import require_threshold
from dpal.inference.released_model import DESCRIPTION
from dpal.labels import THRESHOLD
from dpal.runs.first_settings import first_settings, look_at
from dpal.runs.predict import open_model, predict
from tests.variants import quick_and_slow

RNG = np.random.default_rng(8)
HELD_OUT = ImportSettings(held_out=0.3)


def campaign(pool: Path, **changes) -> Path:
    """Runs a campaign with the settings that suit a file; returns its folder."""
    text = first_settings(look_at(pool), "made", why_public="made up for a test")
    values = yaml.safe_load(text)
    values["runtime"] = {"artifacts": str(pool.parent / "artifacts")}
    return dpal.run(dpal.settings(values, **changes)).root


@pytest.fixture(scope="module")
def people(tmp_path_factory) -> Path:
    """A folder with a table, the pool made of it, and a campaign on that."""
    place = tmp_path_factory.mktemp("people")
    ages = RNG.integers(20, 80, 500)
    jobs = np.array(["nurse", "cook", ""])[RNG.integers(0, 3, 500)]
    table = pd.DataFrame({"id": [f"r{k}" for k in range(500)], "age": ages, "job": jobs})
    table["ill"] = np.where(ages + RNG.normal(0, 5, 500) > 50, "yes", "no")
    table.to_csv(place / "people.csv", index=False)
    import_source(
        place / "people.csv", place / "pool.parquet", ImportSettings(labels=("ill",), held_out=0.3)
    )
    campaign(place / "pool.parquet")
    return place


def predicted(model: Path, place: Path, target: Path, settings=HELD_OUT, **how) -> pd.DataFrame:
    report = predict(open_model(model), place, target, settings, **how)
    frame = pq.read_table(target).to_pandas().set_index("id")
    assert report.rows == len(frame)
    return frame


def test_a_table_is_predicted_as_the_pool_was_read(people, tmp_path):
    """The accuracy on held-out rows is that of the phase, and a table says what its pool says."""
    model = people / "artifacts" / "made"
    from_pool = predicted(model, people / "pool.parquet", tmp_path / "a.parquet")
    from_table = predicted(model, people / "people.csv", tmp_path / "b.parquet")
    assert len(from_table) == 500
    assert (from_pool.probability == from_table.probability[from_pool.index]).all()
    pool = pq.read_table(people / "pool.parquet").to_pandas().set_index("id")
    truth = pool.label[pool.split == "test"]
    metrics = json.loads((model / "phase-0" / "metrics.json").read_text(encoding="utf-8"))
    assert (truth == from_pool.label[truth.index]).mean() == metrics["validation_accuracy"]
    assert metrics["validation_accuracy"] > 0.75
    assert set(from_pool.class_name) == {"no", "yes"}
    assert np.allclose([sum(row) for row in from_pool.probabilities], 1)


def test_records_need_no_label_and_few_may_come(people, tmp_path):
    (tmp_path / "new.csv").write_text("job,age,id\ncook,75,x\npilot,,y\n", encoding="utf-8")
    frame = predicted(people / "artifacts" / "made", tmp_path / "new.csv", tmp_path / "n.parquet")
    assert frame.index.tolist() == ["x", "y"]
    assert frame.class_name["x"] == "yes"


def test_a_pool_of_other_columns_is_no_pool_of_the_model(people, tmp_path):
    """As wide, and encoded by others: answers would differ from those for the table, in silence."""
    model, settings = people / "artifacts" / "made", ImportSettings(labels=("ill",), held_out=0.5)
    lines = (people / "people.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "may.csv").write_text("\n".join(lines[:200]) + "\n", encoding="utf-8")
    from_table = predicted(model, tmp_path / "may.csv", tmp_path / "t.parquet")
    import_source(tmp_path / "may.csv", tmp_path / "may.parquet", settings)
    with pytest.raises(DataError, match="--like"):
        predicted(model, tmp_path / "may.parquet", tmp_path / "o.parquet")
    recipe = recipe_in(people / "pool.parquet")
    import_source(tmp_path / "may.csv", tmp_path / "like.parquet", settings, like=recipe)
    from_pool = predicted(model, tmp_path / "like.parquet", tmp_path / "p.parquet")
    assert (from_pool.probability == from_table.probability[from_pool.index]).all()


def test_labels_of_what_is_predicted_are_nobodys_business(people, tmp_path):
    rows = ["id,age,job,label", "x,75,cook,[a]", "y,old,cook,b", "z,30,,maybe", "w,31,nurse"]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    model = open_model(people / "artifacts" / "made")
    found = predict(model, tmp_path / "new.csv", tmp_path / "n.parquet", ImportSettings())
    assert (found.rows, list(found.dropped.values())) == (3, [1])  # a row of too few fields
    assert found.unread == {"age": 1}


def test_cells_that_a_model_cannot_know_are_counted(people, tmp_path):
    """By column: another category, a number beyond all, one missing where none was."""
    rows = [
        "id,age,job",
        "a,9999,pilot",
        "b,-3,cook",
        "c,,sailor",
        "d,40,",
        "e,?,nurse",
        "f,x,cook",
    ]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    model = open_model(people / "artifacts" / "made")
    found = predict(model, tmp_path / "new.csv", tmp_path / "n.csv", ImportSettings())
    assert (found.rows, found.other, found.clipped) == (6, {"job": 2}, {"age": 2})
    assert (found.imputed, found.unread) == ({"age": 2}, {"age": 1})
    known = predict(model, people / "people.csv", tmp_path / "o.csv", HELD_OUT)
    assert (known.other, known.imputed, known.unread) == ({}, {}, {})


def test_a_threshold_moves_two_classes(people, tmp_path):
    model, pool = people / "artifacts" / "made", people / "pool.parquet"
    said = [
        (predicted(model, pool, tmp_path / f"{number}.parquet", threshold=threshold).label).sum()
        for number, threshold in enumerate((0.01, 0.5, 0.99))
    ]
    assert said[0] > said[1] > said[2]
    assert pq.read_schema(tmp_path / "0.parquet").metadata[b"threshold"] == b"0.01"
    with pytest.raises(ParameterError):
        predicted(model, pool, tmp_path / "x.parquet", threshold=1.5)


def test_csv_says_what_parquet_says(people, tmp_path):
    """Bit for bit; a name that a spreadsheet would compute is a text there."""
    rows = 'name,age,job\n=1+1,75,cook\n"a,b",30,\nc,31,nurse\n'
    (tmp_path / "new.csv").write_text(rows, encoding="utf-8")
    model, own = people / "artifacts" / "made", ImportSettings(id="name")
    frame = predicted(model, tmp_path / "new.csv", tmp_path / "o.parquet", own)
    predict(open_model(model), tmp_path / "new.csv", tmp_path / "o.csv", own)
    assert (tmp_path / "o.csv").stat().st_mode & 0o777 == 0o600
    read = pd.read_csv(tmp_path / "o.csv", index_col="id")
    assert frame.index.tolist() == ["=1+1", "a,b", "c"]
    assert read.index.tolist() == ["'=1+1", "a,b", "c"]
    names = ["label", "class_name", "probability"]
    assert read.columns.tolist() == [*names, "probability no", "probability yes"]
    assert read[names].to_numpy().tolist() == frame[names].to_numpy().tolist()
    assert read.iloc[:, 3:].to_numpy().tolist() == [list(row) for row in frame.probabilities]


def test_csv_is_written_whole_or_not_at_all(people, tmp_path):
    def torn(count: int) -> None:
        raise KeyboardInterrupt

    model = open_model(people / "artifacts" / "made")
    with pytest.raises(KeyboardInterrupt):
        predict(model, people / "people.csv", tmp_path / "o.csv", HELD_OUT, on_rows=torn)
    assert list(tmp_path.iterdir()) == []


def test_both_reading_and_predicting_are_told(people, tmp_path):
    read, predicted_rows = list[int](), list[int]()
    predict(
        open_model(people / "artifacts" / "made"), people / "people.csv", tmp_path / "o.parquet",
        HELD_OUT, physical_batch=100, on_read=read.append, on_rows=predicted_rows.append,
    )  # fmt: skip
    assert sum(read) == sum(predicted_rows) == 500


def test_a_threshold_of_three_classes_is_refused(people):
    model = open_model(people / "artifacts" / "made")
    three = replace(model, spec=replace(model.spec, classes=3))
    require_threshold(model, 0.3)
    require_threshold(three, THRESHOLD)
    with pytest.raises(ParameterError):
        require_threshold(three, 0.3)


def test_a_model_that_mlflow_kept_says_the_same(people, tmp_path):
    folder = people / "artifacts" / "made"
    kept = tmp_path / "model" / "artifacts"
    kept.mkdir(parents=True)
    facts = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["model"]
    told = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    facts["temperature"] = told["temperature"]
    (kept / DESCRIPTION).write_text(json.dumps(facts), encoding="utf-8")
    shutil.copy(folder / "phase-0" / "model.safetensors", kept / "model.safetensors")
    frames = [
        predicted(place, people / "people.csv", tmp_path / f"{number}.parquet")
        for number, place in enumerate((folder, tmp_path / "model"))
    ]
    assert (frames[0].probability == frames[1].probability).all()


def test_pictures_of_a_folder_with_several_sizes(tmp_path):
    for k in range(160):
        part, level = ("train", "test")[k % 4 == 0], (40, 200)[k // 4 % 2]
        folder = tmp_path / "p" / part / ("dark", "light")[k // 4 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = RNG.normal(level, 10, (12, 12 + k % 2)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{k}.png")
    from dpal.data.importing.settings import PictureRule

    sized = ImportSettings(picture_rule=PictureRule(size=(12, 12)))
    import_source(tmp_path / "p", tmp_path / "pool.parquet", sized)
    model = campaign(tmp_path / "pool.parquet", **{"data.extractor": "none"})
    (tmp_path / "p" / "test" / "light" / "torn.png").write_bytes(b"?")
    found = predict(open_model(model), tmp_path / "p", tmp_path / "o.parquet", ImportSettings())
    assert found.rows == 160
    assert sum(found.dropped.values()) == 1


@pytest.mark.parametrize("extractor", quick_and_slow(["scattering"], ["none", "scattering"]))
def test_a_picture_of_another_size_is_named_with_what_the_model_reads(tmp_path, extractor):
    """Among others and alone; nothing of features, nor of options that predictions do not have."""

    def draw(path: Path, level: int, size: tuple[int, int]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = RNG.normal(level, 10, (*size, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)

    for k in range(160):
        part, kind = ("train", "test")[k % 4 == 0], k // 4 % 2
        draw(
            tmp_path / "p" / part / ("dark", "light")[kind] / f"{k}.png", 40 + 160 * kind, (12, 16)
        )
    import_source(tmp_path / "p", tmp_path / "pool.parquet", ImportSettings())
    model = open_model(campaign(tmp_path / "pool.parquet", **{"data.extractor": extractor}))
    draw(tmp_path / "new" / "wide.png", 40, (20, 30))
    draw(tmp_path / "both" / "z.png", 40, (20, 30))
    for k in range(3):
        draw(tmp_path / "both" / f"{k}.png", 40, (12, 16))
    for folder, odd in (("new", "wide.png"), ("both", "z.png")):
        with pytest.raises(DataError) as refused:
            predict(model, tmp_path / folder, tmp_path / "o.parquet", ImportSettings())
        said = refused.value.for_owner()
        assert all(part in said for part in ("16x12 RGB", "30x20 RGB", odd))
        assert "--" not in said and odd not in str(refused.value)
        assert not (tmp_path / "o.parquet").exists()
    (tmp_path / "both" / "z.png").unlink()
    assert predict(model, tmp_path / "both", tmp_path / "o.parquet", ImportSettings()).rows == 3


def test_several_labels_are_lists(tmp_path):
    values = RNG.normal(0, 1, (400, 4)).astype(np.float32)
    labels = np.stack([values[:, 0] > 0, values[:, 1] > 0], axis=1).astype(np.int8)
    labels[::5, 1] = -1
    table = pa.table({
        "id": [f"r{k}" for k in range(400)],
        "features": pa.array(values.tolist(), pa.list_(pa.float32())),
        "label": pa.array(labels.tolist(), pa.list_(pa.int8())),
        "split": ["test" if k % 4 == 0 else "train" for k in range(400)],
    }).replace_schema_metadata({"class_names": '["up", "right"]'})  # fmt: skip
    pq.write_table(table, tmp_path / "pool.parquet")
    model = campaign(tmp_path / "pool.parquet")
    frame = predicted(model, tmp_path / "pool.parquet", tmp_path / "o.parquet")
    said = np.array([[k in row for k in range(2)] for row in frame.labels])
    assert (said == (np.array(frame.probabilities.tolist()) > 0.5)).all()
    known = labels >= 0
    assert ((said == (labels == 1)) & known).sum() / known.sum() > 0.7
    assert {name for row in frame.label_names for name in row} <= {"up", "right"}
    predict(open_model(model), tmp_path / "pool.parquet", tmp_path / "o.csv", ImportSettings())
    read = pd.read_csv(tmp_path / "o.csv", index_col="id", dtype=str, keep_default_na=False)
    assert read.labels.tolist() == [";".join(map(str, row)) for row in frame.labels]
    assert read.label_names.tolist() == [";".join(row) for row in frame.label_names]
    narrow = table.set_column(1, "features", pa.array([[1.0]] * 400, pa.list_(pa.float32())))
    pq.write_table(narrow, tmp_path / "narrow.parquet")
    with pytest.raises(DataError, match="shape"):
        predicted(model, tmp_path / "narrow.parquet", tmp_path / "n.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"age,job\n40,cook\n", None])
def test_a_damaged_file_is_named(people, tmp_path, content):
    """None: a pool that was cut off."""
    whole = (people / "pool.parquet").read_bytes()
    (tmp_path / "new.parquet").write_bytes(whole[: len(whole) // 2] if content is None else content)
    model = people / "artifacts" / "made"
    with pytest.raises(DataError, match=r"new\.parquet"):
        predicted(model, tmp_path / "new.parquet", tmp_path / "o.parquet")
    assert not (tmp_path / "o.parquet").exists()


def test_what_does_not_fit_is_refused(people, tmp_path):
    model = people / "artifacts" / "made"
    other = pa.table({"id": ["a"], "features": pa.array([[1.0]], pa.list_(pa.float32()))})
    pq.write_table(other, tmp_path / "other.parquet")
    with pytest.raises(DataError, match="--like"):
        predicted(model, tmp_path / "other.parquet", tmp_path / "o.parquet")
    assert not (tmp_path / "o.parquet").exists()
    (tmp_path / "o.parquet").touch()
    for target in ("o.parquet", "o.txt"):
        with pytest.raises(DataError, match=target):
            predicted(model, people / "pool.parquet", tmp_path / target)
    assert (tmp_path / "o.parquet").stat().st_size == 0
    early = tmp_path / "early"
    shutil.copytree(model, early)
    record = json.loads((early / "campaign.json").read_text(encoding="utf-8"))
    del record["model"]
    (early / "campaign.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError, match="same command again"):
        open_model(early)
    with pytest.raises(DataError):
        open_model(tmp_path)
