"""Whose records are whose, read off a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.groups import OUTSIDE, count_groups, read_groups, rows_of_groups, within_cap
from dpal.data.labeling_state import (
    ASIDE,
    EXCLUDED,
    RETIRED,
    UNLABELED,
    cohort_column,
    group_column,
    load_labeled,
    write_merged,
    write_pseudo_labeled,
    write_start,
)
from dpal.data.process_share import Share
from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from tests.conftest import write_blobs

PERSONS = ["b", "a", "b", "c", "a", "b"]
GROUPS = [0, 1, 0, 3, 1, 0]


def pool(tmp_path, persons=PERSONS):
    path = tmp_path / "pool.parquet"
    write_blobs(path, len(persons), seed=1)
    table = pq.read_table(path)
    pq.write_table(table.append_column("person", pa.array(persons)), path)
    return open_source(path, Role.POOL, label_column="label")


@pytest.mark.parametrize("persons", [PERSONS, [2, 1, 2, 7, 1, 2]])
def test_a_group_is_the_row_of_its_first_record(tmp_path, persons):
    groups = read_groups(pool(tmp_path, persons), "person")
    assert groups.tolist() == GROUPS
    assert count_groups(groups) == 3


def test_records_of_nobody_are_refused(tmp_path):
    with pytest.raises(DataError) as refused:
        read_groups(pool(tmp_path, ["a", None, "b"]), "person")
    assert "data.group_column" in str(refused.value)
    for wrong in ("patient", "features"):
        with pytest.raises(DataError) as refused:
            read_groups(pool(tmp_path), wrong)
        assert "data.group_column" in str(refused.value)


def test_the_first_records_of_each_take_part():
    groups = np.array(GROUPS)
    assert within_cap(groups, None).tolist() == GROUPS
    assert within_cap(groups, 2).tolist() == [0, 1, 0, 3, 1, OUTSIDE]
    assert within_cap(groups, 1).tolist() == [0, 1, OUTSIDE, 3, OUTSIDE, OUTSIDE]
    some = np.array([OUTSIDE, 1, OUTSIDE, 3, 1, 3])  # rows that take no part before
    assert within_cap(some, 1).tolist() == [OUTSIDE, 1, OUTSIDE, 3, OUTSIDE, OUTSIDE]
    assert within_cap(some, 2).tolist() == some.tolist()
    assert rows_of_groups(groups, np.array([3, 0])).tolist() == [0, 2, 3, 5]
    assert rows_of_groups(within_cap(groups, 2), np.array([0])).tolist() == [0, 2]


def started(tmp_path, most=None):
    source = pool(tmp_path)
    start = tmp_path / "start.parquet"
    write_start(source, start, groups=within_cap(read_groups(source, "person"), most))
    return source, start, pq.read_table(start)["id"].to_pylist()


def test_a_group_joins_a_cohort_with_the_records_of_its_own(tmp_path):
    source, start, ids = started(tmp_path, most=2)
    assert cohort_column(start).tolist() == [
        UNLABELED, UNLABELED, EXCLUDED, UNLABELED, EXCLUDED, EXCLUDED,
    ]  # fmt: skip
    after = tmp_path / "after.parquet"
    write_merged(start, {ids[0]: 1, ids[2]: 0}, 0, after, retired=[ids[1]])
    assert cohort_column(after).tolist() == [0, RETIRED, 0, UNLABELED, EXCLUDED, EXCLUDED]
    assert np.asarray(group_column(after)).tolist() == [0, 1, 0, 3, 1, OUTSIDE]
    with load_labeled(source, after) as labeled:
        assert np.asarray(labeled.owners).tolist() == [0, 0]
    # A person is one process's, whichever rows are hers.
    for rank, count in ((0, 2), (1, 0)):
        with load_labeled(source, after, share=Share(rank=rank, processes=2)) as labeled:
            assert len(labeled.labels) == count


def test_whose_first_record_was_skipped_joins_with_the_others(tmp_path):
    _, start, ids = started(tmp_path)
    after = tmp_path / "after.parquet"
    write_merged(start, {ids[2]: 1}, 0, after, retired=[ids[0], ids[5]])
    assert cohort_column(after)[[0, 2, 5]].tolist() == [RETIRED, 0, RETIRED]


@pytest.mark.parametrize("labeled", [[2], [3, 4], [0, 5]])
def test_nobody_joins_without_being_selected(tmp_path, labeled):
    """Row 5 is beyond the labels of its group."""
    _, start, ids = started(tmp_path, most=2)
    with pytest.raises(DataError):
        write_merged(start, {ids[row]: 0 for row in labeled}, 0, tmp_path / "after.parquet")


def test_groups_that_nobody_labeled_train_themselves_whole(tmp_path):
    _, start, ids = started(tmp_path, most=2)
    between, after = tmp_path / "between.parquet", tmp_path / "after.parquet"
    write_merged(start, {ids[1]: 1, ids[4]: 1}, 0, between, retired=[ids[3]])
    write_pseudo_labeled(between, np.array([2, 2, 2, 2, 2, 2]), 1, after)
    assert cohort_column(after).tolist() == [1, 0, 1, RETIRED, 0, EXCLUDED]
    assert pq.read_table(after)["label"].to_pylist()[:5] == [2, 1, 2, None, 1]
    assert ASIDE not in cohort_column(after)


def test_groups_of_a_pool_of_several_batches_train_themselves(tmp_path):
    """Arrow hands over at most 65,536 rows of a state at a time."""
    rows = 70_000
    source = pool(tmp_path, [row // 2 for row in range(rows)])
    start, after = tmp_path / "start.parquet", tmp_path / "after.parquet"
    write_start(source, start, groups=read_groups(source, "person"))
    write_pseudo_labeled(start, np.arange(rows) % 3, 1, after)
    assert (cohort_column(after) == 1).all()
    assert pq.read_table(after)["label"].to_pylist() == [row % 3 for row in range(rows)]
