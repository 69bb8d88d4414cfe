"""Records are recognised under other names and with other contents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data.catalog import Role, Source, open_source
from dpal.data.known import (
    UNKNOWN,
    KnownRecords,
    Marks,
    first_of_owner,
    read_index,
    scan,
    write_index,
)
from dpal.errors import DataError
from tests.conftest import owner_reads

SALT = bytes(range(32))


def pool(
    path: Path, ids: list[str], values: list[int], people: list[object] | None = None
) -> Source:
    columns = {"id": ids, "features": [[float(one), 1.0] for one in values]}
    if people:
        columns["person"] = people
    pq.write_table(pa.table(columns), path)
    return open_source(path, Role.POOL, label_column="label")


def index(*parts: Marks) -> KnownRecords:
    """Blocks 0, 1, ... as they would be on file."""
    return KnownRecords.of_index(
        [(one, np.full(one.owners.size, b, np.int16)) for b, one in enumerate(parts)]
    )


def assigned(known: KnownRecords, source: Source, owner: str = "id"):
    found = known.assign(scan(source, SALT, owner_column=owner))
    return found.blocks.tolist(), found.disputed.tolist(), found.unindexed.tolist()


def test_an_owners_block_never_changes_and_known_content_is_not_new(tmp_path):
    first = scan(pool(tmp_path / "a", ["a", "b"], [1, 2]), SALT)
    second = scan(pool(tmp_path / "b", ["c", "d"], [3, 4]), SALT)
    #   known id, new content | new id, known content | known id, content of block 0 | all new
    later = pool(tmp_path / "c", ["d", "x", "c", "y"], [9, 2, 1, 8])
    blocks, disputed, unindexed = assigned(index(first, second), later)
    assert blocks == [1, 0, 1, UNKNOWN]
    assert disputed == [False, False, True, False]
    assert unindexed == [True, True, False, True]
    assert assigned(index(), later)[0] == [UNKNOWN] * 4


def test_all_records_of_a_person_belong_to_one_block(tmp_path):
    first = scan(pool(tmp_path / "a", ["a"], [1], ["anna"]), SALT, owner_column="person")
    later = pool(tmp_path / "b", ["p", "q", "r", "s"], [5, 6, 1, 7], ["anna", "ben", "ben", "cy"])
    # ben is new and has a record that is anna's known one: all of ben is as old as that.
    blocks, disputed, _ = assigned(index(first), later, "person")
    assert blocks == [0, 0, 0, UNKNOWN]
    assert not any(disputed)
    marks = scan(later, SALT, owner_column="person")
    everyone = np.ones(4, dtype=bool)
    assert first_of_owner(marks, everyone).tolist() == [True, True, False, True]
    assert first_of_owner(marks, ~np.array([0, 1, 0, 0], bool)).tolist() == [
        True,
        False,
        True,
        True,
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 39))
@settings(max_examples=50, deadline=None)
def test_blocks_are_those_of_a_plain_dictionary(names, cut):
    owners = np.array(names, np.uint64)
    parts = [Marks(one, one + 1000) for one in (owners[:cut], owners[cut:])]
    plain: dict[int, int] = {}
    for number, part in enumerate(parts):
        for name in part.owners.tolist():
            plain.setdefault(name, number)
    asked = np.arange(40, dtype=np.uint64)
    found = index(*parts).assign(Marks(asked, asked + 5000)).blocks.tolist()
    assert found == [plain.get(one, UNKNOWN) for one in range(40)]


def test_an_index_holds_hashes_alone_and_reads_back(tmp_path):
    marks = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), SALT)
    write_index(marks, np.array([0, 1], np.int16), tmp_path / "index")
    again, blocks = read_index(tmp_path / "index")
    assert (again.owners == marks.owners).all()
    assert (again.contents == marks.contents).all()
    assert blocks.tolist() == [0, 1]
    assert b"secret-name" not in (tmp_path / "index").read_bytes()
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o600
    other = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), bytes(32))
    assert not set(other.owners.tolist()) & set(marks.owners.tolist())


def test_how_much_of_a_file_is_known(tmp_path):
    known = index(scan(pool(tmp_path / "a", ["a", "b"], [1, 2]), SALT))
    strange = pool(tmp_path / "b", ["x", "y", "z", "w"], [2, 5, 6, 7])
    assert known.overlap(scan(strange, SALT)) == 0.25
    assert known.overlap(scan(strange, SALT, owner_column=None)) == 0.25
    assert known.overlap(scan(pool(tmp_path / "c", ["a", "y"], [8, 9]), SALT)) == 1.0


def test_a_lost_index_is_no_empty_one(tmp_path):
    with pytest.raises(DataError, match="cannot be recognised, restore it"):
        read_index(tmp_path / "none")


def test_who_is_protected_is_named_in_every_row_by_texts_or_whole_numbers(tmp_path):
    with pytest.raises(DataError, match="no column 'person'"):
        scan(pool(tmp_path / "a", ["a"], [1]), SALT, owner_column="person")
    for name in (None, ""):
        with owner_reads(DataError, match=r"row 1 .* does not say whose it is"):
            nobody = pool(tmp_path / "b", ["a", "b"], [1, 2], ["x", name])
            scan(nobody, SALT, owner_column="person")
    with pytest.raises(DataError, match="holds double"):  # 5 and 5.0 would be two people
        scan(pool(tmp_path / "c", ["a"], [1], [5.0]), SALT, owner_column="person")
    numbers, texts = (
        scan(pool(tmp_path / "d", ["a"], [1], [name]), SALT, owner_column="person")
        for name in (5, "5")
    )
    assert (numbers.owners == texts.owners).all()


def test_several_files_are_one_pool(tmp_path):
    (tmp_path / "pool").mkdir()
    pool(tmp_path / "pool" / "b.parquet", ["c"], [3])
    pool(tmp_path / "pool" / "a.parquet", ["a", "b"], [1, 2])
    together = open_source(tmp_path / "pool", Role.POOL, label_column="label")
    assert [path.name for path in together.paths] == ["a.parquet", "b.parquet"]
    listed = open_source(list(together.paths), Role.POOL, label_column="label")
    assert scan(together, SALT).owners.tolist() == scan(listed, SALT).owners.tolist()
    with pytest.raises(DataError, match="names a file twice"):
        open_source([together.paths[0]] * 2, Role.POOL, label_column="label")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no Parquet file"):
        open_source(tmp_path / "empty", Role.POOL, label_column="label")


def test_files_of_different_kinds_are_no_pool(tmp_path):
    one = pool(tmp_path / "a", ["a"], [1])
    pq.write_table(pa.table({"id": ["b"], "image": [b"x"]}), tmp_path / "b")
    with pytest.raises(DataError, match="differ in columns"):
        open_source([*one.paths, tmp_path / "b"], Role.POOL, label_column="label")
