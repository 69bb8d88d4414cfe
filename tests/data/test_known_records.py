"""Records are recognised under other names and with other contents."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data.known_index import IndexPart, read_index, write_index
from dpal.data.known_records import (
    UNKNOWN,
    KnownRecords,
    Marks,
    Overlap,
    first_of_owner,
    owners_in,
    scan,
)
from dpal.data.likeness import pictures
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError
from tests.conftest import owner_reads
from tests.data.copies import write_features

SALT = bytes(range(32))


def pool(
    path: Path, ids: list[str], values: list[int], people: list[object] | None = None
) -> Source:
    columns = {"id": ids, "features": [[float(one), 1.0] for one in values]}
    if people:
        columns["person"] = people
    pq.write_table(pa.table(columns), path)
    return open_source(path, Role.POOL, label_column="label")


def part(marks: Marks, block: int) -> IndexPart:
    blocks = np.full(marks.owners.size, block, np.int16)
    return marks.in_blocks(np.ones(blocks.size, bool), blocks, blocks)


def index(*parts: Marks) -> KnownRecords:
    """Blocks 0, 1, ... as they would be on file."""
    return KnownRecords.of_index([part(marks, block) for block, marks in enumerate(parts)])


def unread(marks: Marks, block: int) -> IndexPart:
    """What a version that knew contents only as they are stored had on file."""
    nothing = np.zeros((0, 0), np.uint8)
    return replace(part(marks, block), contents=np.zeros(0, np.uint64), way="", sketches=nothing)


def marks_of(owners: np.ndarray, contents: np.ndarray) -> Marks:
    """Records that only hashes tell apart."""
    return Marks(
        owners=owners,
        stored=contents,
        contents=contents,
        way=pictures.WAY,
        sketches=np.zeros((owners.size, pictures.WIDTH), np.uint8),
        telling=np.ones(owners.size, bool),
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
    parts = [marks_of(one, one + 1000) for one in (owners[:cut], owners[cut:])]
    plain: dict[int, int] = {}
    for number, part in enumerate(parts):
        for name in part.owners.tolist():
            plain.setdefault(name, number)
    asked = np.arange(40, dtype=np.uint64)
    found = index(*parts).assign(marks_of(asked, asked + 5000)).blocks.tolist()
    assert found == [plain.get(one, UNKNOWN) for one in range(40)]


def test_an_index_holds_hashes_and_hidden_sketches_and_reads_back(tmp_path):
    marks = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), SALT)
    written = replace(part(marks, 0), content_blocks=np.array([0, 1], np.int16))
    write_index(written, tmp_path / "index", salt=SALT)
    again = read_index(tmp_path / "index", salt=SALT)
    for field in fields(written):
        assert np.array_equal(getattr(again, field.name), getattr(written, field.name))
    stored = (tmp_path / "index").read_bytes()
    assert b"secret-name" not in stored
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o600
    shown = b"".join(pq.read_table(tmp_path / "index").column("sketch").to_pylist())
    assert len(shown) == marks.sketches.size
    assert shown != marks.sketches.tobytes()
    with_another = read_index(tmp_path / "index", salt=bytes(32))
    assert not np.array_equal(with_another.sketches, written.sketches)
    other = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), bytes(32))
    for name in ("owners", "stored", "contents"):
        assert not set(getattr(other, name).tolist()) & set(getattr(marks, name).tolist())


def test_an_index_of_an_earlier_version_knows_contents_as_they_are_stored(tmp_path):
    """18 bytes a record: owner, stored content, block."""
    marks = scan(pool(tmp_path / "a", ["a", "b"], [1, 2]), SALT)
    columns = {"owner": marks.owners, "content": marks.stored, "block": np.zeros(2, np.int16)}
    pq.write_table(pa.table(columns), tmp_path / "index")
    known = KnownRecords.of_index([read_index(tmp_path / "index", salt=SALT)])
    assert known.unread.tolist() == np.unique(marks.stored).tolist()
    #                     known name | new name, stored content | another last bit | all new
    later = pool(tmp_path / "b", ["a", "x", "y", "z"], [9, 2, np.nextafter(1, 2), 7])
    found = known.assign(scan(later, SALT))
    assert found.blocks.tolist() == [0, 0, 0, UNKNOWN]  # 64 bits are read as 32
    assert not found.copied.any()
    assert found.unindexed.all()  # and may be put on file as contents are read now
    assert known.overlap(scan(later, SALT)).owners
    both = KnownRecords.of_index([unread(marks, 0), part(marks, 1)])
    assert both.assign(marks).blocks.tolist() == [0, 0]  # what came first counts
    assert both.unread.size == 0


def test_a_content_that_only_looks_like_a_known_one_belongs_to_its_block(tmp_path):
    def vectors(name: str, ids: list[str], values: list[float]) -> Marks:
        source = write_features(
            tmp_path / name, np.array([[one, 1.0] for one in values], np.float32), prefix=""
        )
        table = pq.read_table(tmp_path / name).set_column(0, "id", pa.array(ids))
        pq.write_table(table, tmp_path / name)
        return scan(source, SALT)

    nearly = [float(np.nextafter(np.float32(one), np.float32(9))) for one in (1, 2, 3, 4)]
    first = vectors("a", ["a", "b"], [1, 2])
    second = vectors("b", ["c", "d"], [3, 4])
    known = index(first, second)
    # new id, like block 0 | like block 1 | id of block 0, like block 1 | of 1, like it | all new
    marks = vectors("c", ["x", "y", "a", "d", "z"], [nearly[0], nearly[2], nearly[3], nearly[3], 8])
    found = known.assign(marks)
    assert found.blocks.tolist() == [0, 1, 0, 1, UNKNOWN]
    assert found.content_blocks.tolist() == [0, 1, 1, 1, UNKNOWN]
    assert found.disputed.tolist() == [False, False, True, False, False]
    assert found.copied.tolist() == [True, True, False, False, False]
    assert found.strange.all()  # a changed record is put on file by its owner first
    strangers = vectors("d", ["p", "q", "r", "s"], [nearly[0], 11, 12, 13])
    assert known.overlap(strangers) == Overlap(owners=False, telling=0.25, contents=0.25)


def test_how_much_of_a_file_is_known(tmp_path):
    known = index(scan(pool(tmp_path / "a", ["a", "b"], [1, 2]), SALT))
    strange = pool(tmp_path / "b", ["x", "y", "z", "w"], [2, 5, 6, 7])
    quarter = Overlap(owners=False, telling=0.25, contents=0.25)
    assert known.overlap(scan(strange, SALT)) == quarter
    assert known.overlap(scan(strange, SALT, owner_column=None)) == quarter
    assert known.overlap(scan(pool(tmp_path / "c", ["a", "y"], [8, 9]), SALT)).owners


def test_a_lost_index_is_no_empty_one(tmp_path):
    with pytest.raises(DataError, match="recognised"):
        read_index(tmp_path / "none", salt=SALT)
    pq.write_table(pa.table({"owner": [1]}), tmp_path / "other")
    with pytest.raises(DataError, match="recognised"):
        read_index(tmp_path / "other", salt=SALT)


def test_who_is_protected_is_named_in_every_row_by_texts_or_whole_numbers(tmp_path):
    with pytest.raises(DataError, match="no column 'person'"):
        scan(pool(tmp_path / "a", ["a"], [1]), SALT, owner_column="person")
    for name in (None, ""):
        with owner_reads(DataError, match="row 1 .*whose"):
            nobody = pool(tmp_path / "b", ["a", "b"], [1, 2], ["x", name])
            scan(nobody, SALT, owner_column="person")
        with owner_reads(DataError, match="row 1 .*whose"):
            owners_in(nobody, "person")
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
    with pytest.raises(DataError, match="file twice"):
        open_source([together.paths[0]] * 2, Role.POOL, label_column="label")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no Parquet file"):
        open_source(tmp_path / "empty", Role.POOL, label_column="label")


def test_files_of_different_kinds_are_no_pool(tmp_path):
    one = pool(tmp_path / "a", ["a"], [1])
    pq.write_table(pa.table({"id": ["b"], "image": [b"x"]}), tmp_path / "b")
    with pytest.raises(DataError, match="differ in"):
        open_source([*one.paths, tmp_path / "b"], Role.POOL, label_column="label")
