from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.catalog import Role, open_source
from dpal.data.pool import write_labels
from dpal.errors import LabelError, LabelsPending
from dpal.labelers.file import FileLabeler, accept_labels
from dpal.labelers.oracle import OracleLabeler
from tests.conftest import write_blobs

QUERY = ["a", "b", "c"]
NAMES = ["cat", "dog"]


def answers(tmp_path, text: str):
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


def accept(path):
    return accept_labels(path, QUERY, classes=2, class_names=NAMES)


def test_numbers_and_names_are_understood(tmp_path):
    path = answers(tmp_path, "\ufeffid,label,comment\nb, dog ,x\na,0,\nc,1,\n")
    assert accept(path) == {"a": 0, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\na,0\nb,1\nc,1\nz,0\n", "row 5 gives an id that was not asked for"),
        ("id,label\na,0\nb,1\nc,1\na,0\n", "row 5 gives an id a second time"),
        ("id,label\na,0\nb,1\nc,1\na,1\n", "row 5 gives another label for an id above"),
        ("id,label\na,2\nb,1\nc,-1\n", r"rows 2, 4 give a label that is no class \(0 to 1"),
        ("id,label\na,\nb,1\nc,1\n", r"1 of 3 ids has no label, row 2 of query\.csv"),
        ("id,label\na,0\nb,1.0\nc,1\n", "row 3 gives a label that is no class"),
        ("id,label\na,0\n", r"2 of 3 ids have no label, rows 3, 4 of query\.csv"),
        ("id,label\na,0\n\n\nb,7\nc,1\n", "row 5 gives a label that is no class"),
        ("name,label\na,0\n", "needs the columns id and label"),
        ("", "needs the columns id and label"),
    ],
)
def test_what_does_not_fit_is_refused_with_row_numbers(tmp_path, text, sentence):
    with pytest.raises(LabelError, match=sentence):
        accept(answers(tmp_path, text))


def test_many_bad_rows_are_counted(tmp_path):
    text = "id,label\n" + "".join(f"z{i},0\n" for i in range(9))
    with pytest.raises(LabelError, match=r"rows 2, 3, 4, 5, 6 and 4 more give.*nothing was merged"):
        accept(answers(tmp_path, text))


def test_a_missing_or_unreadable_file_is_said(tmp_path):
    with pytest.raises(LabelError, match="does not exist"):
        accept(tmp_path / "none.csv")
    binary = tmp_path / "labels.csv"
    binary.write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(LabelError):
        accept(binary)


def image_pool(path, count=6):
    def png(i):
        stream = io.BytesIO()
        Image.fromarray(np.full((16, 16), 40 * i, dtype=np.uint8)).save(stream, format="PNG")
        return stream.getvalue()

    table = pa.table(
        {
            "id": [f"../odd id {i}" for i in range(count)],
            "image": pa.array([png(i) for i in range(count)]),
        }
    )
    pq.write_table(table, path)
    return open_source(path, Role.POOL, label_column="label")


def test_a_query_shows_pictures_and_waits(tmp_path):
    source = image_pool(tmp_path / "pool.parquet")
    asked = ["../odd id 4", "../odd id 1"]
    labeler = FileLabeler(source, tmp_path / "query", tmp_path / "labels.parquet", "dpal label x")
    for _ in range(2):  # asking again repeats the message, not the work
        with pytest.raises(LabelsPending, match=r"query\.csv; fill in .* then: dpal label x"):
            labeler.label(asked)
    with (tmp_path / "query" / "query.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == asked
    assert [row["label"] for row in rows] == ["", ""]
    shown = [np.asarray(Image.open(tmp_path / "query" / row["image"]))[0, 0] for row in rows]
    assert shown == [160, 40]
    assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "query").rglob("*.*"))
    write_labels({"../odd id 4": 1, "../odd id 1": 0}, tmp_path / "labels.parquet")
    assert labeler.label(asked) == {"../odd id 4": 1, "../odd id 1": 0}


def test_the_oracle_answers_from_the_pool(tmp_path):
    path = write_blobs(tmp_path / "pool.parquet", 50, seed=1)
    source = open_source(path, Role.POOL, label_column="label")
    truth = dict(
        zip(*pq.read_table(path, columns=["id", "label"]).to_pydict().values(), strict=True)
    )
    asked = ["r-00007", "r-00003"]
    assert OracleLabeler(source, 3).label(asked) == {name: truth[name] for name in asked}
    with pytest.raises(LabelError, match="a selected record is not in the pool"):
        OracleLabeler(source, 3).label([*asked, "unknown"])
    with pytest.raises(LabelError, match="has no label from 0 to 0"):
        OracleLabeler(source, 1).label([name for name, label in truth.items() if label == 2][:1])


def test_an_oracle_without_labels_says_what_to_do(tmp_path):
    path = write_blobs(tmp_path / "pool.parquet", 5, seed=1, labeled=False)
    source = open_source(path, Role.POOL, label_column="label")
    with pytest.raises(LabelError, match=r"set labeler\.kind: file"):
        OracleLabeler(source, 3).label(["r-00001"])
