from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from dpal.canonical import file_digest
from dpal.data.inspect_rows import inspect, require_match
from dpal.data.labeling_state import (
    RETIRED,
    UNLABELED,
    cohort_column,
    load_all,
    load_labeled,
    read_labels,
    read_retired,
    read_selection,
    write_labels,
    write_merged,
    write_selection,
    write_start,
)
from dpal.data.readers import BATCH_ROWS, raw_batches, to_input
from dpal.data.sources import Content, Role, open_source
from dpal.errors import DataError
from tests.conftest import owner_reads, write_blobs

NOBODY = np.empty(0, dtype=np.int64)


def png(value: int, mode: str = "L", side: int = 16) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (side, side), value if mode == "L" else (value,) * 3).save(stream, "PNG")
    return stream.getvalue()


def pool(path, **columns):
    given = {"id": ["a", "b", "c"], "features": [[1.0, 2.0]] * 3, "label": [0, 1, 0], **columns}
    arrays = {name: values for name, values in given.items() if values is not None}
    if isinstance(arrays.get("features"), list):
        arrays["features"] = pa.array(arrays["features"], pa.list_(pa.float32()))
    pq.write_table(pa.table(arrays), path)
    return path


def look(path, role=Role.POOL, label_column="label"):
    return inspect(open_source(path, role, label_column=label_column))


def test_a_sound_file_is_described(tmp_path):
    found = look(pool(tmp_path / "p.parquet"))
    assert (found.rows, found.input_shape, found.classes, found.fully_labeled) == (3, (2,), 2, True)


def test_large_numbers_are_numbers(tmp_path):
    assert look(pool(tmp_path / "p.parquet", features=[[3e38, -3e38]] * 3)).input_shape == (2,)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": None}, "column 'id' .*features, label"),
        ({"id": pa.array(["a"] * 3).dictionary_encode()}, "dictionary<.*texts"),
        ({"id": [1, 2, 3]}, "whole numbers, .*write them"),
        ({"id": ["a", None, "c"]}, "row 1 .*no id"),
        ({"id": ["a", "b", "a"]}, "row 2 and row 0 .*same id"),
        ({"features": [[1.0, 2.0], [1.0, float("nan")], [0.0, 0.0]]}, "row 1 .*feature"),
        ({"features": [[1.0, 2.0], [1.0, float("inf")], [0.0, 0.0]]}, "row 1 .*feature"),
        ({"features": [[3e38, 3e38], [3e38, float("-inf")], [0.0, 0.0]]}, "row 1 .*feature"),
        ({"features": [[1.0, 2.0], None, [0.0, 0.0]]}, "row 1 has no features"),
        ({"features": [[1.0, 2.0], [1.0], [0.0] * 3]}, "row 1 has 1 features .*have 2"),
        ({"features": [[], [], []]}, "row 0 has 0 features"),
        ({"split": [1, 2, 3]}, "column 'split' .*'train' and 'test'"),
        ({"features": pa.array([[1, 2]] * 3)}, "float32 lists"),
        ({"features": None}, "neither 'image' .* nor 'features'"),
        ({"features": None, "text_a": ["x", "y", "z"]}, "holds texts"),
        ({"features": None, "image": [png(1), b"no image", png(2)]}, "row 1 .*readable"),
        ({"features": None, "image": [png(1), png(2, side=20), png(3)]}, "row 1 .*image of"),
        ({"features": None, "image": [png(1), None, png(3)]}, "row 1 has no image"),
        ({"label": [0, -1, 2]}, "row 1 .*negative"),
        ({"label": ["x", "y", "z"]}, "whole class"),
        ({"label": [["x"]] * 3}, "0 or 1"),
    ],
)
def test_what_a_campaign_cannot_rely_on_is_one_sentence(tmp_path, columns, sentence):
    with owner_reads(DataError, match=sentence):
        look(pool(tmp_path / "p.parquet", **columns))


def test_files_that_are_none_are_said(tmp_path):
    with owner_reads(DataError, match="exist; .*make data"):
        look(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 but not really")
    with owner_reads(DataError, match="readable Parquet"):
        look(tmp_path / "bad.parquet")
    empty = pool(
        tmp_path / "e.parquet",
        id=pa.array([], pa.string()),
        features=[],
        label=pa.array([], pa.int64()),
    )
    with owner_reads(DataError, match="has no rows"):
        look(empty)


def test_a_pool_may_lack_labels_and_a_validation_set_may_not(tmp_path):
    path = pool(tmp_path / "p.parquet", label=None)
    assert not look(path).fully_labeled
    with owner_reads(DataError, match="column 'label' .*data.label_column"):
        look(path, Role.VALIDATION)
    partly = pool(tmp_path / "q.parquet", label=[0, None, 1])
    assert not look(partly).fully_labeled


def test_a_split_column_is_obeyed(tmp_path):
    path = pool(tmp_path / "p.parquet", split=["train", "test", "train"])
    assert look(path).rows == 2
    assert look(path, Role.VALIDATION).rows == 1
    only = pool(tmp_path / "q.parquet", split=["train"] * 3)
    with owner_reads(DataError, match="no rows with split 'test'"):
        look(only, Role.VALIDATION)


def test_pool_and_validation_must_fit(tmp_path):
    wide = look(pool(tmp_path / "p.parquet", features=[[1.0, 2.0, 3.0]] * 3))
    with owner_reads(DataError, match=r"shape \(3,\), validation records \(2,\)"):
        require_match(wide, look(pool(tmp_path / "q.parquet")))


def test_grey_and_colour_images_become_tensors(tmp_path):
    grey = open_source(
        pool(tmp_path / "g.parquet", features=None, image=[png(0), png(255), png(51)]),
        Role.VALIDATION,
        label_column="label",
    )
    inputs, labels = load_all(grey)
    assert inputs.shape == (3, 1, 16, 16)
    assert inputs.dtype == torch.uint8
    assert to_input(inputs)[:, 0, 0, 0].tolist() == pytest.approx([-1, 1, -0.6])
    assert labels.tolist() == [0, 1, 0]
    colour = pool(tmp_path / "c.parquet", features=None, image=[png(7, "RGB")] * 3)
    assert look(colour).input_shape == (3, 16, 16)


def source_of(path):
    return open_source(path, Role.POOL, label_column="label")


def test_records_are_read_in_batches_and_in_order(tmp_path):
    rows = 2 * BATCH_ROWS + 10
    source = source_of(write_blobs(tmp_path / "p.parquet", rows, seed=0))
    batches = list(raw_batches(source, ["id"]))
    assert [batch.table.num_rows for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 10]
    assert np.concatenate([batch.rows for batch in batches]).tolist() == list(range(rows))
    assert source.content is Content.FEATURES


def test_a_pool_grows_cohort_by_cohort(tmp_path):
    source = source_of(write_blobs(tmp_path / "p.parquet", 1500, seed=0))
    write_start(source, tmp_path / "s0")
    assert (cohort_column(tmp_path / "s0") == UNLABELED).all()
    write_merged(tmp_path / "s0", {"r-00003": 2, "r-01400": 0}, 0, tmp_path / "s1")
    write_merged(tmp_path / "s1", {"r-00700": 1}, 1, tmp_path / "s2")
    cohorts = cohort_column(tmp_path / "s2")
    assert {row: int(cohorts[row]) for row in np.flatnonzero(cohorts != UNLABELED)} == {
        3: 0,
        700: 1,
        1400: 0,
    }
    labeled = load_labeled(source, tmp_path / "s2")
    assert labeled.labels.tolist() == [2, 1, 0]
    assert labeled.cohorts.tolist() == [0, 1, 0]
    stored = pq.read_table(tmp_path / "p.parquet").column("features").to_pylist()
    assert labeled.inputs[:].tolist() == [stored[3], stored[700], stored[1400]]


def test_a_record_enters_once_and_only_from_the_pool(tmp_path):
    source = source_of(write_blobs(tmp_path / "p.parquet", 20, seed=0))
    write_start(source, tmp_path / "s0")
    write_merged(tmp_path / "s0", {"r-00003": 2}, 0, tmp_path / "s1")
    with owner_reads(DataError, match="labeled already"):
        write_merged(tmp_path / "s1", {"r-00003": 1}, 1, tmp_path / "s2")
    with owner_reads(DataError, match="labeled record"):
        write_merged(tmp_path / "s1", {"unknown": 1}, 1, tmp_path / "s2")
    assert not (tmp_path / "s2").exists()
    assert not list(tmp_path.glob(".staged-*"))


def test_a_selection_says_who_and_not_in_which_rank(tmp_path):
    source = source_of(write_blobs(tmp_path / "p.parquet", 1500, seed=0))
    write_selection(source, np.array([1300, 5, 600]), np.array([1400, 7]), tmp_path / "sel")
    assert read_selection(tmp_path / "sel") == ["r-00005", "r-00600", "r-01300"]
    assert read_retired(tmp_path / "sel") == ["r-00007", "r-01400"]


def test_nobody_may_be_selected(tmp_path):
    """A hidden gate may let nobody pass."""
    source = source_of(write_blobs(tmp_path / "p.parquet", 20, seed=0))
    write_selection(source, NOBODY, NOBODY, tmp_path / "sel")
    assert read_selection(tmp_path / "sel") == read_retired(tmp_path / "sel") == []
    write_labels({}, tmp_path / "labels")
    assert read_labels(tmp_path / "labels") == {}
    write_start(source, tmp_path / "s0")
    write_merged(tmp_path / "s0", {}, 0, tmp_path / "s1")
    assert (cohort_column(tmp_path / "s1") == UNLABELED).all()


def test_the_retired_leave_the_pool_without_a_label(tmp_path):
    source = source_of(write_blobs(tmp_path / "p.parquet", 20, seed=0))
    write_start(source, tmp_path / "s0")
    write_merged(tmp_path / "s0", {"r-00003": 2}, 0, tmp_path / "s1", retired=["r-00005"])
    write_merged(tmp_path / "s1", {"r-00004": 1}, 1, tmp_path / "s2")
    cohorts = cohort_column(tmp_path / "s2")
    assert (cohorts[5], cohorts[3], cohorts[4]) == (RETIRED, 0, 1)
    labeled = load_labeled(source, tmp_path / "s2")
    assert labeled.labels.tolist() == [2, 1]
    with owner_reads(DataError, match="labeled already"):
        write_merged(tmp_path / "s1", {"r-00005": 1}, 1, tmp_path / "s3")


def test_digests_of_private_files_confirm_no_guess(tmp_path):
    """The same selection, written twice: whoever guesses it cannot check the guess."""
    source = source_of(write_blobs(tmp_path / "p.parquet", 20, seed=0))
    for name in ("one", "two"):
        write_selection(source, np.array([1, 2]), NOBODY, tmp_path / name)
    assert file_digest(tmp_path / "one") != file_digest(tmp_path / "two")
    assert (tmp_path / "one").stat().st_mode & 0o077 == 0


def test_a_damaged_file_is_said(tmp_path):
    path = write_blobs(tmp_path / "p.parquet", 5000, seed=0)
    content = bytearray(path.read_bytes())
    content[2000:60000] = bytes(58000)
    path.write_bytes(content)
    with owner_reads(DataError, match=r"row \d+ on .*damaged"):
        look(path)


def test_arrows_large_types_are_read_too(tmp_path):
    values = pa.array([[1.0, 2.0]] * 3, pa.large_list(pa.float32()))
    path = pool(
        tmp_path / "p.parquet", id=pa.array(["a", "b", "c"], pa.large_string()), features=values
    )
    assert look(path).input_shape == (2,)
    pictures = pa.array([png(1)] * 3, pa.large_binary())
    assert look(pool(tmp_path / "q.parquet", features=None, image=pictures)).rows == 3


@pytest.mark.parametrize("names", ["no json", "{}", '["one"]'])
def test_class_names_that_are_none_are_said(tmp_path, names):
    path = pool(tmp_path / "p.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata({"class_names": names}), path)
    with owner_reads(DataError, match="JSON list"):
        look(path)


def test_class_names_come_from_the_file(tmp_path):
    path = pool(tmp_path / "p.parquet")
    named = pq.read_table(path).replace_schema_metadata({"class_names": json.dumps(["no", "yes"])})
    pq.write_table(named, path)
    assert source_of(path).class_names == ("no", "yes")
