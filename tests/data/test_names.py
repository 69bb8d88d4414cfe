"""Names: none may be there twice, and a pool may have to hold all of an earlier one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpal.data import hash_runs, inspect_rows, labeling_state
from dpal.data.inspect_rows import inspect
from dpal.data.labeling_state import holds_all, write_start
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError

names_of_rows = st.lists(st.text("abc", max_size=3), min_size=1, max_size=40)
many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["in memory", "on disk"])
def room(request, monkeypatch):
    """On disk all hashes are, stretches are of a few rows, and of two hashes names are compared."""
    if request.param == "on disk":
        monkeypatch.setattr(hash_runs, "IN_MEMORY", 0)
        monkeypatch.setattr(hash_runs, "_STRETCH", 4)
        monkeypatch.setattr(inspect_rows, "_COMPARED", 2)


def lengths(names: pa.Array) -> np.ndarray:
    """What an adversary may hope for: most names have the hash of others."""
    return np.array([len(name) for name in names.to_pylist()], np.uint64) << np.uint64(62)


def pool(path, names: list[str]) -> Source:
    table = {
        "id": pa.array(names, pa.string()),
        "features": pa.array([[1.0, 2.0]] * len(names), pa.list_(pa.float32())),
        "label": [0] * len(names),
    }
    pq.write_table(pa.table(table), path, row_group_size=7)
    return open_source(path, Role.POOL, label_column="label")


@pytest.mark.parametrize("weak", [False, True])
@given(names=names_of_rows)
@many
def test_a_pool_is_refused_exactly_where_a_name_is_there_twice(tmp_path, room, weak, names):
    with pytest.MonkeyPatch.context() as patch:
        if weak:
            patch.setattr(inspect_rows, "hashes_of_names", lengths)
        source = pool(tmp_path / "pool.parquet", names)
        if len(set(names)) == len(names):
            assert inspect(source).rows == len(names)
            return
        with pytest.raises(DataError) as caught:
            inspect(source)
    _, second, first = map(int, re.findall(r"row (\d+)", caught.value.for_owner()))
    assert first != second
    assert names[first] == names[second]


@given(earlier=names_of_rows, later=names_of_rows)
@many
def test_a_pool_holds_all_of_an_earlier_one_or_does_not(tmp_path, room, earlier, later):
    state = tmp_path / "state.parquet"
    write_start(pool(tmp_path / "earlier.parquet", earlier), state)
    assert holds_all(pool(tmp_path / "later.parquet", later), state) is set(earlier).issubset(later)


def test_hashes_of_names_are_told_apart_from_hashes_of_an_earlier_state(tmp_path, monkeypatch):
    """A name that only the state has twice is still missing in the pool."""
    monkeypatch.setattr(labeling_state, "hashes_of_names", lengths)
    state = tmp_path / "state.parquet"
    write_start(pool(tmp_path / "earlier.parquet", ["aa", "bb"]), state)
    assert holds_all(pool(tmp_path / "later.parquet", ["cc"]), state)
    assert not holds_all(pool(tmp_path / "shorter.parquet", ["c"]), state)
