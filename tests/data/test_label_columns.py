from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dpal.data.inspect_rows import inspect, require_match
from dpal.data.label_columns import classes_in, label_tensor, task_of
from dpal.data.labeling_state import (
    labels_of,
    load_all,
    load_labeled,
    read_labels,
    write_carried,
    write_labels,
    write_merged,
    write_start,
)
from dpal.data.parquet import RowNumbers
from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from dpal.labels import Task
from tests.conftest import owner_reads

BITS = pa.list_(pa.int8())
KINDS = [BITS, pa.list_(pa.int64()), pa.large_list(pa.uint8()), pa.list_(pa.int16(), 3)]
ROWS = [[0, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0]]


def pool(path, labels, kind=BITS, names=None):
    rows = range(len(labels))
    table = pa.table(
        {
            "id": [f"r{i}" for i in rows],
            "features": pa.array([[1.0, float(i)] for i in rows], pa.list_(pa.float32())),
            "label": pa.array(labels, kind),
        }
    )
    if names is not None:
        table = table.replace_schema_metadata({"class_names": json.dumps(names)})
    pq.write_table(table, path)
    return path


def source_of(path, role=Role.POOL, column="label"):
    return open_source(path, role, label_column=column)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_labels_are_lists_of_any_whole_numbers(tmp_path, kind):
    assert task_of(kind) is Task.MULTI_LABEL
    source = source_of(pool(tmp_path / "p", ROWS, kind), Role.VALIDATION)
    found = inspect(source)
    assert (found.task, found.classes, found.fully_labeled) == (Task.MULTI_LABEL, 3, True)
    _, labels = load_all(source)
    assert labels.dtype == torch.int8
    assert labels.tolist() == ROWS


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.string(), pa.list_(pa.string())])
def test_other_columns_hold_no_labels(kind):
    assert task_of(kind) is None


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[0, 1], None, [0, 1, 1]], "row 2 has 3 labels"),
        ([[], []], "row 0 has 0 labels"),
        (
            [None, [0, 1], [0, 2]],
            "row 2 .*number above 1",
        ),
        ([[0, 1], [-2, 1]], "row 1 .*neither 0 nor 1"),
        ([[0, 1], None, [None, 1]], "row 2 .*neither 0 nor 1"),
    ],
)
def test_a_bad_row_is_named(tmp_path, rows, sentence):
    with owner_reads(DataError, match=sentence):
        inspect(source_of(pool(tmp_path / "p", rows)))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint8()])
def test_a_label_that_is_not_known_is_read_as_such(tmp_path, kind):
    """Of unsigned numbers none is: 255 is no -1."""
    rows = [[0, 1, 1], [1, 0, 0]] if kind == pa.uint8() else [[0, -1, 1], [-1, -1, -1]]
    source = source_of(pool(tmp_path / "p", rows, pa.list_(kind)), Role.VALIDATION)
    assert inspect(source).fully_labeled
    _, labels = load_all(source)
    assert labels.tolist() == rows
    with owner_reads(DataError, match="above 1"):
        inspect(source_of(pool(tmp_path / "q", [[0, 255]], pa.list_(pa.uint8()))))


def test_later_rows_are_held_to_the_first(tmp_path):
    """Rows are checked batch by batch, and numbered over all of them."""
    with owner_reads(DataError, match="row 1024 has 3 labels"):
        inspect(source_of(pool(tmp_path / "p", [[0, 1]] * 1024 + [[0, 1, 1]] * 5)))


def test_unlabeled_rows_are_counted_apart(tmp_path):
    found = inspect(source_of(pool(tmp_path / "p", [None, [1, 0], None])))
    assert (found.classes, found.fully_labeled) == (2, False)
    nobody, numbers = pa.array([None, None], BITS), RowNumbers(tmp_path, np.arange(2))
    assert classes_in(nobody, Task.MULTI_LABEL, known=4, rows=numbers) == 4


def test_names_must_be_as_many_as_labels(tmp_path):
    with owner_reads(DataError, match="names 2 labels .*rows have 3"):
        inspect(source_of(pool(tmp_path / "p", ROWS, names=["a", "b"])))
    assert inspect(source_of(pool(tmp_path / "q", [[1]], names=["a"]))).classes == 1


def test_pool_and_validation_have_labels_of_one_kind(tmp_path):
    several = inspect(source_of(pool(tmp_path / "p", ROWS)))
    one = inspect(source_of(pool(tmp_path / "q", [0, 1], pa.int64())))
    fewer = inspect(source_of(pool(tmp_path / "r", [[0, 1]])))
    require_match(several, several)
    with owner_reads(DataError, match="pool are class numbers and those of the validation set l"):
        require_match(one, several)
    with owner_reads(DataError, match=r"2 labels, .*records 3"):
        require_match(fewer, several)


def test_bought_labels_travel_as_lists(tmp_path):
    """Answers, the pool's state, what is trained on, and what a later campaign starts with."""
    source, start, first, last = (
        source_of(pool(tmp_path / "p", ROWS)), *(tmp_path / name for name in ("s0", "s1", "s2"))
    )  # fmt: skip
    bought = {"r2": (1, 0, 1), "r0": (0, 1, 1)}
    write_labels(bought, tmp_path / "labels")
    assert read_labels(tmp_path / "labels") == bought
    write_start(source, start)
    write_merged(start, bought, 0, first)
    write_merged(first, {"r1": (0, 0, 0)}, 1, last)
    assert labels_of(last) == {"r0": (0, 1, 1), "r1": (0, 0, 0), "r2": (1, 0, 1)}
    labeled = load_labeled(source, last)
    assert labeled.labels.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 1]]
    assert labeled.cohorts.tolist() == [0, 1, 0]
    write_carried(last, start, tmp_path / "carried")
    assert pq.read_table(tmp_path / "carried").column("id").to_pylist() == ["r0", "r1", "r2"]


def test_nobody_may_be_labeled(tmp_path):
    source = source_of(pool(tmp_path / "p", ROWS))
    write_labels({}, tmp_path / "labels")
    write_start(source, tmp_path / "s0")
    write_merged(tmp_path / "s0", read_labels(tmp_path / "labels"), 0, tmp_path / "s1")
    labels = load_labeled(source, tmp_path / "s1").labels
    assert (labels.shape, labels.dtype) == ((0, 0), torch.int8)
    assert label_tensor(pa.array([], pa.int64()), Task.SINGLE_LABEL).shape == (0,)


def test_labels_of_another_kind_are_not_merged(tmp_path):
    for name, kind, rows, bought in (
        ("several", BITS, ROWS, {"r0": 1}),
        ("one", pa.int64(), [0, 1], {"r0": (0, 1)}),
    ):
        write_start(source_of(pool(tmp_path / name, rows, kind)), tmp_path / "s0")
        with owner_reads(DataError, match="another kind .*merged"):
            write_merged(tmp_path / "s0", bought, 0, tmp_path / "s1")
        assert not (tmp_path / "s1").exists()
