"""A query of texts shows them to the person who labels, and to nobody else."""

from __future__ import annotations

import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.sources import Role, open_source
from dpal.errors import LabelsPending
from dpal.labeling.file import FileLabeler, accept_labels


def ask(place, asked, **columns):
    names = [f"r{i}" for i in range(len(next(iter(columns.values()))))]
    pq.write_table(pa.table({"id": names, **columns}), place / "pool.parquet")
    source = open_source(place / "pool.parquet", Role.POOL, label_column="label")
    with pytest.raises(LabelsPending):
        FileLabeler(source, place / "query", place / "labels.parquet", "dpal label x").label(asked)
    with (place / "query" / "query.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_query_shows_both_texts_of_a_pair_and_takes_labels_back(tmp_path):
    first, second = ["a, b", 'said "no"', "line\nbreak"], ["é", "", "x"]
    rows = ask(tmp_path, ["r2", "r0"], text_a=first, text_b=second)
    assert rows == [
        {"id": "r2", "label": "", "text_a": "line\nbreak", "text_b": "x"},
        {"id": "r0", "label": "", "text_a": "a, b", "text_b": "é"},
    ]
    query = tmp_path / "query" / "query.csv"
    assert query.stat().st_mode & 0o077 == 0
    with query.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "label": "1"} for row in rows)
    given = accept_labels(query, ["r2", "r0"], classes=2, class_names=())
    assert given.labels == {"r2": 1, "r0": 1}


def test_a_text_is_no_formula(tmp_path):
    texts = ['=HYPERLINK("x")', "+1", "-lrb-", "@x", "a=b"]
    rows = ask(tmp_path, [f"r{i}" for i in range(5)], text_a=texts)
    shown = ['\'=HYPERLINK("x")', "'+1", "'-lrb-", "'@x", "a=b"]
    assert [row["text_a"] for row in rows] == shown
