"""A validation set of other classes, or of the pool's own records, is refused or said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data import hash_runs
from dpal.data.inspect_rows import Inventory, RowHashes, inspect
from dpal.data.sources import Content, Role, Source, open_source
from dpal.data.validation_checks import (
    class_remarks,
    require_numbering,
    require_other_records,
    require_same_names,
)
from dpal.errors import DataError
from dpal.labels import Task
from tests.conftest import owner_reads, write_blobs


def require_apart(pool: Source, validation: Source, *, protected: bool = False) -> None:
    seen = RowHashes(bytes(32)), RowHashes(bytes(32))
    for source, rows in zip((pool, validation), seen, strict=True):
        inspect(source, seen=rows)
    names = pool.name, validation.name
    require_other_records(*seen, names=names, protected=protected)


def holding(*present: int, fully: bool = True, task: Task = Task.SINGLE_LABEL) -> Inventory:
    return Inventory(
        rows=9,
        input_shape=(2,),
        task=task,
        classes=max(present, default=-1) + 1,
        fully_labeled=fully,
        present=present,
    )


TEN = tuple(range(10))
FROM_ONE = tuple(range(1, 11))


@pytest.mark.parametrize(
    ("pool", "validation", "names", "sentence"),
    [
        (FROM_ONE, FROM_ONE, 0, "from 1, .*subtract 1"),
        ((), FROM_ONE, 0, "run from 1"),
        ((1, 3), (1, 2), 0, "run from 1"),
        ((1, 4, 10), (2, 10), 10, "run from 1"),
        (TEN, FROM_ONE, 0, "from 0 .*validation set from 1"),
        (FROM_ONE, TEN, 0, "from 0 .*pool from 1"),
        (TEN, (0, 10), 10, "10 classes, 0 to 9"),
    ],
)
def test_labels_that_do_not_run_from_0_are_refused(pool, validation, names, sentence):
    with owner_reads(DataError, match=sentence):
        require_numbering(holding(*pool), holding(*validation), names=names)


@pytest.mark.parametrize(
    ("pool", "validation", "names"),
    [
        (TEN, TEN, 0),
        (TEN, TEN, 10),
        ((), TEN, 0),
        ((), (), 0),
        (TEN, tuple(range(1, 10)), 0),  # class 0 is rare
        (tuple(range(1, 10)), tuple(range(1, 10)), 10),  # and here it is named
        ((2, 5), (2, 5), 0),
        ((0, 1), (1,), 0),
        ((1,), (0, 1), 2),
    ],
)
def test_classes_may_be_missing(pool, validation, names):
    require_numbering(holding(*pool), holding(*validation), names=names)


def naming(*names: str) -> Source:
    return Source(
        paths=(Path("p.parquet"),),
        role=Role.POOL,
        content=Content.FEATURES,
        label_column="label",
        has_split=False,
        class_names=names,
    )


def test_a_class_has_one_name_where_both_files_name_it():
    for names in [("no", "yes"), ("no",), ()]:
        require_same_names(naming("no", "yes"), naming(*names))
        require_same_names(naming(*names), naming("no", "yes"))
    with pytest.raises(DataError):
        require_same_names(naming("no", "yes"), naming("yes", "no"))


def test_several_labels_have_no_numbers():
    several = holding(task=Task.MULTI_LABEL)
    require_numbering(several, several, names=3)
    assert class_remarks(several, several, ()) == ()


def test_classes_of_one_file_alone_are_said():
    unlearned, unmeasured = class_remarks(holding(0, 1, 2), holding(1, 2, 3), ("a", "b"))
    assert "pool has class 3" in unlearned
    assert "set has class 0 (a)" in unmeasured
    [many] = class_remarks(holding(0), holding(*TEN), ())
    assert "classes 1, 2, 3, 4, 5 and 4 more" in many
    assert class_remarks(holding(*TEN), holding(*TEN), ()) == ()
    assert class_remarks(holding(0, fully=False), holding(1), ()) == ()  # labels are to come


@pytest.fixture(params=["in memory", "on disk"])
def room(request, monkeypatch):
    """On disk all hashes are, and stretches are of some fifty rows."""
    if request.param == "on disk":
        monkeypatch.setattr(hash_runs, "IN_MEMORY", 0)
        monkeypatch.setattr(hash_runs, "_STRETCH", 50)


def source(path, role=Role.POOL):
    return open_source(path, role, label_column="label")


def write(path, values, *, prefix: str, seed: int = 0):
    labels = np.random.default_rng(seed).integers(0, 2, len(values))
    table = {"id": [f"{prefix}{at}" for at in range(len(values))], "features": list(values)}
    pq.write_table(pa.table({**table, "label": labels}), path)
    return path


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("taken", [8, 100, 300])
def test_rows_of_the_pool_are_no_validation_set(tmp_path, room, renamed, taken):
    write_blobs(tmp_path / "pool", 600, seed=1)
    own = pq.read_table(write_blobs(tmp_path / "own", 300, seed=2, prefix="v"))
    copied = pq.read_table(tmp_path / "pool").slice(0, taken)
    if renamed:
        copied = copied.set_column(0, "id", [[f"n{at}" for at in range(taken)]])
    mixed = pa.concat_tables([own.slice(taken), copied.cast(own.schema)])
    pq.write_table(mixed, tmp_path / "mixed")
    said = f"{taken} of 300 rows .*mixed"
    with owner_reads(DataError, match=said):
        require_apart(source(tmp_path / "pool"), source(tmp_path / "mixed"))
    require_apart(source(tmp_path / "pool"), source(tmp_path / "own"))


def test_no_protected_record_is_one_of_the_pool(tmp_path):
    """One of 300 is no sign that figures would flatter; but it would lose twice."""
    write_blobs(tmp_path / "pool", 600, seed=1)
    own = pq.read_table(write_blobs(tmp_path / "own", 300, seed=2, prefix="v"))
    copied = pq.read_table(tmp_path / "pool").slice(7, 1).cast(own.schema)
    pq.write_table(pa.concat_tables([own.slice(1), copied]), tmp_path / "mixed")
    pool, mixed = source(tmp_path / "pool"), source(tmp_path / "mixed")
    require_apart(pool, mixed)
    with pytest.raises(DataError) as refused:
        require_apart(pool, mixed, protected=True)
    assert refused.value.released is False
    require_apart(pool, source(tmp_path / "own"), protected=True)


def test_one_of_few_records_that_another_one_is_like_says_nothing(tmp_path, room):
    """As in iris, of which two flowers measure the same: one may be held out, of seventeen."""
    values = np.random.default_rng(3).normal(0, 1, (120, 4)).astype(np.float32)
    pool = source(write(tmp_path / "pool", values[:100], prefix="p"))
    few = np.concatenate([values[104:120], values[:1]])
    held_out = source(write(tmp_path / "few", few, prefix="v"))
    require_apart(pool, held_out)
    with pytest.raises(DataError, match="pool"):  # of protected ones it would lose twice
        require_apart(pool, held_out, protected=True)
    more = np.concatenate([values[104:120], values[:4]])
    with pytest.raises(DataError, match="pool"):
        require_apart(pool, source(write(tmp_path / "more", more, prefix="v")))


def test_rows_of_small_tables_are_alike_by_chance(tmp_path, room):
    """Ten yes-or-no questions, and two files that are numbered alike: nothing is shared."""
    rng = np.random.default_rng(3)
    answers = rng.integers(0, 2, (3000, 10)).astype(np.float32)
    pool = source(write(tmp_path / "pool", answers[:2000], prefix=""))
    other = source(write(tmp_path / "other", answers[2000:], prefix=""))
    require_apart(pool, other)
    half = np.concatenate([answers[2000:2900], answers[:100]])
    with owner_reads(DataError, match="are rows"):  # the same ids, too
        write(tmp_path / "copied", half, prefix="")
        table = pq.read_table(tmp_path / "copied")
        ids = [*table["id"].to_pylist()[:900], *(f"{at}" for at in range(100))]
        ids[:100] = [f"new{at}" for at in range(100)]
        pq.write_table(table.set_column(0, "id", [ids]), tmp_path / "copied")
        require_apart(pool, source(tmp_path / "copied"))
