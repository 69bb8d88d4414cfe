"""Parts of teachers: disjoint, of one size, groups whole, and from public facts alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpal.data.partitions import assign_parts, read_parts, write_given_parts, write_parts
from dpal.data.sources import Role, open_source
from dpal.errors import DataError, ParameterError
from dpal.randomness import seeded
from tests.conftest import nothing_released, write_blobs


def dealt_out(keys: list[str], parts: int, *, seed: int) -> np.ndarray:
    return assign_parts(pa.chunked_array([keys], pa.large_string()), parts, seed=seed)


def dealt_out_as_ever(keys: list[str], parts: int, seed: int) -> np.ndarray:
    """Where accounts of earlier versions have their records."""
    names, positions = np.unique(np.array(keys, dtype=object), return_inverse=True)
    part = np.empty(names.size, dtype=np.int64)
    order = seeded(seed, "parts of teachers").permutation(names.size)
    part[order] = np.arange(names.size) % parts
    return part[positions]


@given(st.lists(st.text(max_size=4), min_size=4, max_size=60), st.integers(0, 5))
def test_records_are_dealt_out_as_ever_whatever_they_are_called(keys, seed):
    assume(len(set(keys)) >= 4)
    assert np.array_equal(dealt_out(keys, 4, seed=seed), dealt_out_as_ever(keys, 4, seed))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 9), st.integers(0, 5))
def test_keys_are_dealt_out_evenly_and_whole(numbers, parts, seed):
    keys = [f"k{one}" for one in numbers]
    if len(set(keys)) < parts:
        with pytest.raises(ParameterError, match=r"dealt out .* lower teachers\.count"):
            dealt_out(keys, parts, seed=seed)
        return
    dealt = dealt_out(keys, parts, seed=seed)
    owner = dict(zip(keys, dealt.tolist(), strict=True))
    assert [owner[key] for key in keys] == dealt.tolist()
    sizes = np.bincount(list(owner.values()), minlength=parts)
    assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(dealt, dealt_out(keys, parts, seed=seed))


def test_where_a_record_lies_does_not_depend_on_the_order_of_others():
    keys = [f"r{at}" for at in range(50)]
    forth, back = dealt_out(keys, 7, seed=3), dealt_out(keys[::-1], 7, seed=3)
    assert np.array_equal(forth, back[::-1])
    assert not np.array_equal(forth, dealt_out(keys, 7, seed=4))


@pytest.fixture
def pool(tmp_path):
    """Sixty records; a patient has three of them."""
    path = write_blobs(tmp_path / "pool.parquet", 60, seed=1)
    table = pq.read_table(path).append_column("patient", [[f"p{at // 3}" for at in range(60)]])
    pq.write_table(table, path)
    return open_source(path, Role.POOL, label_column="label")


def owners(path: Path) -> set[tuple[str, int]]:
    table = pq.read_table(path)
    return set(zip(table["group"].to_pylist(), table["teacher"].to_pylist(), strict=True))


def test_parts_are_private_and_salted(pool, tmp_path):
    path = tmp_path / "inside" / "parts.parquet"
    write_parts(path, pool, 5, group_column=None, seed=0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(pq.read_schema(path).metadata[b"dpal.salt"]) == 32
    assert np.bincount(read_parts(path)).tolist() == [12] * 5
    assert len(owners(path)) == 60  # without groups every record is its own


def test_groups_stay_together(pool, tmp_path):
    path = tmp_path / "parts.parquet"
    write_parts(path, pool, 4, group_column="patient", seed=0)
    assert len(owners(path)) == 20
    assert np.bincount(read_parts(path)).tolist() == [15] * 4


def test_a_pool_without_groups_is_refused(pool, tmp_path):
    with pytest.raises(DataError, match="no column 'ward'"):
        write_parts(tmp_path / "parts.parquet", pool, 4, group_column="ward", seed=0)
    table = pq.read_table(pool.paths[0])
    patients = pa.array([None, *table["patient"].to_pylist()[1:]])
    at = table.schema.get_field_index("patient")
    pq.write_table(table.set_column(at, "patient", patients), pool.paths[0])
    with pytest.raises(DataError, match="record without patient"):
        write_parts(tmp_path / "parts.parquet", pool, 4, group_column="patient", seed=0)
    assert not (tmp_path / "parts.parquet").exists()


def given_parts(tmp_path: Path, teachers: list[str | None], ids: list[str] | None = None) -> Path:
    path = tmp_path / "given.parquet"
    names = ids or [f"r-{at:05d}" for at in range(60)]
    pq.write_table(pa.table({"id": names, "teacher": teachers}), path)
    return path


def test_given_parts_are_taken_over(pool, tmp_path):
    path = tmp_path / "parts.parquet"
    given = given_parts(tmp_path, [f"site-{at // 3 % 4}" for at in range(60)])
    write_given_parts(path, pool, given, 4, group_column="patient")
    assert read_parts(path).tolist() == [at // 3 % 4 for at in range(60)]


WRONG = {
    "another number": ([f"s{at % 5}" for at in range(60)], None, "names 5 teachers"),
    "a split group": ([f"s{at % 4}" for at in range(60)], None, "two teachers"),
    "strangers": (
        [f"s{at // 3 % 4}" for at in range(60)],
        [f"x-{at}" for at in range(60)],
        "60 records",
    ),
    "record of two": (
        [f"s{at // 3 % 4}" for at in range(60)],
        ["r-00000", "r-00000", "r-00000", "r-00000", *[f"r-{at:05d}" for at in range(4, 60)]],
        "1 records were seen",
    ),
    "nobody's": ([None, *[f"s{at // 3 % 4}" for at in range(1, 60)]], None, "without id"),
}


@pytest.mark.parametrize(("teachers", "ids", "says"), WRONG.values(), ids=WRONG)
def test_given_parts_that_are_none_leave_nothing_behind(pool, tmp_path, teachers, ids, says):
    """What lies there would be taken for good by the next run."""
    path = tmp_path / "parts.parquet"
    with pytest.raises(DataError, match=says) as refused:
        write_given_parts(path, pool, given_parts(tmp_path, teachers, ids), 4,
                          group_column="patient")  # fmt: skip
    assert "r-000" not in str(refused.value)  # errors reach the orchestrator
    assert nothing_released(refused.value)
    assert not path.exists()


def test_a_teacher_without_a_record_is_refused(pool, tmp_path):
    given = given_parts(
        tmp_path,
        [*[f"s{at // 3 % 3}" for at in range(60)], "s3"],
        [*[f"r-{at:05d}" for at in range(60)], "stranger"],
    )
    with pytest.raises(DataError, match="teacher without"):
        write_given_parts(tmp_path / "parts.parquet", pool, given, 4, group_column="patient")
