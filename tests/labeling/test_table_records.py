"""Whoever labels rows of a table sees what their cells hold, and not only an id."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pytest

from dpal.data.importing.column_encoding import CategoryColumn, NumberColumn
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.labeling_state import read_ids
from dpal.data.sources import Role, open_source
from dpal.errors import LabelsPending
from dpal.labeling.file import FileLabeler, accept_labels
from dpal.labeling.label_form import _shown
from dpal.labeling.record_display import shown_cells, shown_columns, shown_lines
from tests.conftest import write_blobs

RECORDS = 200
JOBS = ("nurse", "cook", "")


def written(row: int) -> dict[str, str]:
    """A row as its file has it; every 20th has no weight."""
    return {
        "name": f"p{row}", "age": str(20 + row % 60),
        "weight": "" if row % 20 == 7 else f"{50 + row / 8:g}",
        "job": JOBS[row % 3], "born": f"19{20 + row % 60}-03-0{1 + row % 9}",
        "annotator": "ab"[row % 2], "=sum": str(row % 5), "ill": ("no", "yes")[row % 2],
    }  # fmt: skip


@pytest.fixture
def pool(tmp_path):
    with (tmp_path / "people.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.DictWriter(stream, written(0))
        rows.writeheader()
        rows.writerows(map(written, range(RECORDS)))
    settings = ImportSettings(held_out=0.3, id="name", labels=("ill",))
    import_source(tmp_path / "people.csv", tmp_path / "pool.parquet", settings)
    return open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")


def some_ids(source, count=12):
    return list(read_ids(source))[:count]


def test_cells_are_those_of_the_file(pool):
    ids = some_ids(pool)
    names = shown_columns(pool)
    assert set(names) == {"age", "weight", "job", "born", "annotator", "=sum"}
    for name, cells in shown_cells(pool, ids).items():
        shown, wanted = dict(zip(names, cells, strict=True)), written(int(name[1:]))
        assert {key: shown[key] for key in ("job", "annotator")} == {
            key: wanted[key] for key in ("job", "annotator")
        }
        # Numbers and dates are brought between those of the held-out records, and rounded.
        assert float(shown["age"]) == pytest.approx(float(wanted["age"]), abs=2)
        assert (shown["weight"] == "") == (wanted["weight"] == "")
        assert abs(np.datetime64(shown["born"]) - np.datetime64(wanted["born"])).astype(int) < 800


def test_a_query_shows_them_and_takes_labels_back(pool, tmp_path):
    """A column that is called like an answer is shown under another name, and is none."""
    asked = some_ids(pool)
    labeler = FileLabeler(pool, tmp_path / "query", tmp_path / "labels.parquet", "dpal label x")
    with pytest.raises(LabelsPending):
        labeler.label(asked)
    query = tmp_path / "query" / "query.csv"
    with query.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert "annotator" not in rows[0]
    assert {"annotator (of the record)", "'=sum"} <= set(rows[0])
    with query.open("w", newline="", encoding="utf-8") as stream:
        answers = csv.DictWriter(stream, rows[0])
        answers.writeheader()
        answers.writerows(row | {"label": "yes"} for row in rows)
    given = accept_labels(query, asked, classes=2, class_names=["no", "yes"])
    assert given.labels == dict.fromkeys(asked, 1)


def test_pages_show_a_line_for_each_cell_that_holds_something(pool):
    ids = some_ids(pool)
    lines = shown_lines(pool, ids)
    without_job = next(name for name in ids if not written(int(name[1:]))["job"])
    assert "job:" not in lines[without_job]
    assert "annotator: " in lines[without_job]
    assert _shown(pool, [without_job])[0].startswith("    age: ")


def test_rows_of_numbers_without_columns_show_their_id(tmp_path):
    write_blobs(tmp_path / "pool.parquet", 20, seed=1)
    source = open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")
    ids = some_ids(source, 3)
    assert shown_columns(source) == ()
    assert shown_cells(source, ids) == {}
    assert _shown(source, ids) == [f"    {name}" for name in ids]


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("value", [3.0, 3.25, 1234.5, 99_000.0])
def test_a_number_comes_back_in_six_digits(value, logarithm):
    column = NumberColumn(
        name="n", low=1.0, high=1e5, mean=7.0, std=3.0, logarithm=logarithm, marks_missing=True
    )
    for cell, shown in ((value, f"{value:.6g}"), (np.nan, ""), (2e6, "100000"), (-5.0, "1")):
        features = column.encode(np.array([cell])).astype(np.float32).astype(np.float64)
        assert float(column.decode(features[0]) or "nan") == pytest.approx(
            float(shown or "nan"), rel=2e-6, nan_ok=True
        )


def test_a_category_comes_back_or_is_other_or_missing():
    column = CategoryColumn(name="job", values=("cook", "nurse"))
    features = column.encode(pa.array(["nurse", "spy", None, "cook"]))
    assert [column.decode(row) for row in features] == ["nurse", "(other)", "", "cook"]
