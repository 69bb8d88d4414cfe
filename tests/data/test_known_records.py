"""Records are recognised under other names and with other contents."""

from __future__ import annotations

import random
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data import hash_runs, known_records, likeness, parquet
from dpal.data.find_record_blocks import place_records
from dpal.data.groups import OUTSIDE
from dpal.data.hash_runs import WIDE
from dpal.data.known_records import (
    KnownRecords,
    MarkKey,
    Marks,
    Overlap,
    owners_in,
    scan,
    slabs,
)
from dpal.data.likeness import pictures
from dpal.data.recognition_index import UNKNOWN, IndexPart, IndexPartMaker, open_index, write_index
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError
from tests.conftest import ROOT, owner_reads
from tests.data.copies import (
    SAME_PICTURE,
    encoded,
    with_a_typo,
    write_features,
    write_images,
    write_texts,
)
from tests.data.copies import pictures as pictures_of

SALT = bytes(range(32))
KEY, EARLIER_KEY = MarkKey(SALT), MarkKey(SALT, 64)
PERSON = MarkKey(SALT, owner_column="person")
HERE = Path(tempfile.gettempdir())


def pool(
    path: Path, ids: list[str], values: list[int], people: list[object] | None = None
) -> Source:
    columns = {"id": ids, "features": [[float(one), 1.0] for one in values]}
    if people:
        columns["person"] = people
    pq.write_table(pa.table(columns), path)
    return open_source(path, Role.POOL, label_column="label")


def part(marks: Marks, block: int, contents: list[int] | None = None) -> IndexPart:
    maker = IndexPartMaker(HERE, way=marks.way, width=marks.sketches.shape[1], salt=SALT)
    blocks = np.full(marks.owners.size, block, np.int32)
    of_contents = blocks if contents is None else np.array(contents, np.int32)
    marks.put(maker, slice(None), rows=np.arange(blocks.size), content_blocks=of_contents)
    return maker.part(blocks)


def index(*parts: Marks, key: MarkKey = KEY) -> KnownRecords:
    """Blocks 0, 1, ... as they would be on file."""
    return KnownRecords({key: [part(marks, block) for block, marks in enumerate(parts)]}, key)


def write_earliest(path: Path, source: Source, *, salt: bytes = SALT) -> None:
    """What a version that knew contents only as they are stored had on file; block 0."""
    key = MarkKey(salt, 64)
    (marks,) = (marks[key] for _, marks in slabs(source, [key]))
    owners, stored = marks.owners["high"], marks.stored["high"]
    columns = {"owner": owners, "content": stored, "block": np.zeros(owners.size, np.int16)}
    pq.write_table(pa.table(columns), path)


def wide(numbers: np.ndarray) -> np.ndarray:
    """Hashes whose upper halves are the same in tens: the lower ones tell them apart."""
    hashes = np.zeros(numbers.size, WIDE)
    hashes["high"], hashes["low"] = numbers // 10, numbers % 10
    return hashes


def marks_of(owners: np.ndarray, contents: np.ndarray) -> Marks:
    """Records that only hashes tell apart."""
    return Marks(
        owners=wide(owners),
        stored=wide(contents),
        contents=wide(contents),
        way=pictures.WAY,
        sketches=np.zeros((owners.size, pictures.WIDTH), np.uint8),
        telling=np.ones(owners.size, bool),
    )


def assigned(known: KnownRecords, source: Source):
    placed = place_records(source, known, HERE)
    marks = scan(source, SALT, owner_column=known.current.owner_column)
    unindexed = ~known.look_up({known.current: marks}).indexed
    return placed.blocks.tolist(), placed.disputed.tolist(), unindexed.tolist()


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
    known = index(first, key=PERSON)
    blocks, disputed, _ = assigned(known, later)
    assert blocks == [0, 0, 0, UNKNOWN]
    assert not any(disputed)
    placed = place_records(later, known, HERE)
    assert placed.eligible.tolist() == [True, True, False, True]
    assert placed.owners.tolist() == [0, 1, 1, 3]
    assert placed.new == 1


def test_the_first_record_of_an_owner_that_is_not_disputed_speaks_for_it(tmp_path):
    first, second = (
        scan(pool(tmp_path / name, [name], [value], [name]), SALT, owner_column="person")
        for name, value in (("anna", 1), ("ben", 2))
    )
    known = index(first, second, key=PERSON)
    later = pool(tmp_path / "c", ["p", "q", "r", "s"], [5, 1, 2, 6], ["cy", "ben", "ben", "cy"])
    placed = place_records(later, known, HERE)
    assert placed.blocks.tolist() == [UNKNOWN, 1, 1, UNKNOWN]
    assert placed.disputed.tolist() == [False, True, False, False]
    assert placed.eligible.tolist() == [True, False, True, False]
    assert placed.owners.tolist() == [0, OUTSIDE, 2, 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 39))
@settings(max_examples=50, deadline=None)
def test_blocks_are_those_of_a_plain_dictionary(names, cut):
    owners = np.array(names, np.uint64)
    several = (owners[:cut], owners[cut:])
    plain: dict[int, int] = {}
    for number, some in enumerate(several):
        for name in some.tolist():
            plain.setdefault(name, number)
    known = index(*(marks_of(some, some + np.uint64(1000)) for some in several))
    asked = np.arange(40, dtype=np.uint64)
    found = known.look_up({KEY: marks_of(asked, asked + np.uint64(5000))}).owners.tolist()
    assert found == [plain.get(one, UNKNOWN) for one in range(40)]


def test_an_index_holds_hashes_and_hidden_sketches_and_reads_back(tmp_path):
    marks = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), SALT)
    written, path = part(marks, 0, [0, 70_000]), tmp_path / "index.arrow"
    write_index(written, path)
    again = open_index(path, salt=SALT, folder=tmp_path)
    for name in ("owners", "stored", "contents"):
        own, read = getattr(written, name), getattr(again, name)
        for field in fields(own):
            assert np.array_equal(getattr(read, field.name), getattr(own, field.name))
        assert not read.high.flags.owndata  # but mapped
    assert again.contents.find(marks.contents).tolist() == [0, 70_000]
    assert again.owners.find(marks.owners).tolist() == [0, 0]
    assert again.sketches.read(0, 2).tolist() == marks.sketches.tolist()
    stored = path.read_bytes()
    assert b"secret-name" not in stored
    assert path.stat().st_mode & 0o777 == 0o600
    assert marks.sketches[0].tobytes() not in stored
    with_another = open_index(path, salt=bytes(32), folder=tmp_path)
    assert not np.array_equal(with_another.sketches.read(0, 2), marks.sketches)
    other = scan(pool(tmp_path / "a", ["secret-name", "b"], [1, 2]), bytes(32))
    for name in ("owners", "stored", "contents"):
        assert not set(getattr(other, name).tolist()) & set(getattr(marks, name).tolist())


def test_an_index_of_an_earlier_version_knows_contents_as_they_are_stored(tmp_path):
    """18 bytes a record: owner, stored content, block."""
    first = pool(tmp_path / "a", ["a", "b"], [1, 2])
    path = tmp_path / "index.parquet"
    write_earliest(path, first)
    earliest = open_index(path, salt=SALT, folder=tmp_path)
    known = KnownRecords({EARLIER_KEY: [earliest]}, KEY)
    assert known.unread().size == 2
    #                     known name | new name, stored content | another last bit | all new
    later = pool(tmp_path / "b", ["a", "x", "y", "z"], [9, 2, np.nextafter(1, 2), 7])
    maker = IndexPartMaker(tmp_path, way="vector-1", width=32, salt=SALT)
    found = place_records(later, known, tmp_path, maker=maker)
    assert found.blocks.tolist() == [0, 0, 0, UNKNOWN]  # 64 bits are read as 32
    assert found.copied == 0
    assert maker.size == 4  # all may be put on file as contents are read now
    assert found.unread == 0  # both came, under other names
    assert known.overlap(later).owners
    marks = scan(first, SALT)
    both = KnownRecords({EARLIER_KEY: [earliest], KEY: [part(marks, 1)]}, KEY)
    assert place_records(first, both, tmp_path).blocks.tolist() == [0, 0]  # what came first counts
    assert place_records(first, both, tmp_path).unread == 0


def test_a_content_that_only_looks_like_a_known_one_belongs_to_its_block(tmp_path):
    def vectors(name: str, ids: list[str], values: list[float]) -> Source:
        source = write_features(
            tmp_path / name, np.array([[one, 1.0] for one in values], np.float32), prefix=""
        )
        table = pq.read_table(tmp_path / name).set_column(0, "id", pa.array(ids))
        pq.write_table(table, tmp_path / name)
        return source

    nearly = [float(np.nextafter(np.float32(one), np.float32(9))) for one in (1, 2, 3, 4)]
    first = scan(vectors("a", ["a", "b"], [1, 2]), SALT)
    second = scan(vectors("b", ["c", "d"], [3, 4]), SALT)
    known = index(first, second)
    # new id, like block 0 | like block 1 | id of block 0, like block 1 | of 1, like it | all new
    later = vectors("c", ["x", "y", "a", "d", "z"], [nearly[0], nearly[2], nearly[3], nearly[3], 8])
    found = place_records(later, known, tmp_path)
    assert found.blocks.tolist() == [0, 1, 0, 1, UNKNOWN]
    contents = known.look_up({KEY: scan(later, SALT)}).contents
    assert contents.tolist() == [0, 1, 1, 1, UNKNOWN]
    assert found.disputed.tolist() == [False, False, True, False, False]
    assert found.copied == 2
    assert found.strange == 5  # a changed record is put on file by its owner first
    strangers = vectors("d", ["p", "q", "r", "s"], [nearly[0], 11, 12, 13])
    assert known.overlap(strangers) == Overlap(owners=False, telling=0.25, contents=0.25)


def test_how_much_of_a_file_is_known(tmp_path):
    known = index(scan(pool(tmp_path / "a", ["a", "b"], [1, 2]), SALT))
    strange = pool(tmp_path / "b", ["x", "y", "z", "w"], [2, 5, 6, 7])
    quarter = Overlap(owners=False, telling=0.25, contents=0.25)
    assert known.overlap(strange) == quarter
    nobody = MarkKey(SALT, owner_column=None)
    assert KnownRecords({nobody: known.parts[KEY]}, nobody).overlap(strange) == quarter
    other = pool(tmp_path / "c", ["a", "y"], [8, 9])
    assert known.overlap(other).owners
    assert not known.overlap(other, rows=np.array([False, True])).owners


def test_a_lost_index_is_no_empty_one(tmp_path):
    with pytest.raises(DataError, match="recognised"):
        open_index(tmp_path / "none.parquet", salt=SALT, folder=tmp_path)
    with pytest.raises(DataError, match="recognised"):
        open_index(tmp_path / "none.arrow", salt=SALT, folder=tmp_path)
    pq.write_table(pa.table({"owner": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="recognised"):
        open_index(tmp_path / "other.parquet", salt=SALT, folder=tmp_path)
    (tmp_path / "other.arrow").write_bytes(b"ARROW1")
    with pytest.raises(DataError, match="recognised"):
        open_index(tmp_path / "other.arrow", salt=SALT, folder=tmp_path)


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


@pytest.mark.parametrize("way", ["vectors", "texts", "pictures"])
def test_slabs_windows_and_disks_change_nothing(tmp_path, monkeypatch, way):
    """A pool of many slabs, looked up in many files, with nothing in memory, as at once."""
    known_first, known_second, later = _pools(tmp_path, way)
    once = _placed(tmp_path, known_first, known_second, later)
    assert {0, 1, UNKNOWN} == set(once[0])  # of all kinds there are some
    assert once[-1]  # and copies that are only alike
    monkeypatch.setattr(known_records, "SLAB_ROWS", 1)
    monkeypatch.setattr(known_records, "BATCH_ROWS", 1)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 16)
    monkeypatch.setattr(known_records, "_WINDOW", 7)
    monkeypatch.setattr(hash_runs, "IN_MEMORY", 0)
    monkeypatch.setattr(hash_runs, "_STRETCH", 5)
    folder = tmp_path / "none"
    assert _placed(folder, known_first, known_second, later) == once
    assert list(folder.iterdir()) == []


def _placed(folder: Path, *sources: Source) -> tuple[Any, ...]:
    *before, later = sources
    parts: list[IndexPart] = []
    for number, source in enumerate(before):
        known = KnownRecords({KEY: parts}, KEY)
        kind = likeness.KINDS[source.content]
        maker = IndexPartMaker(folder, way=kind.WAY, width=kind.WIDTH, salt=SALT)
        placed = place_records(source, known, folder, maker=maker)
        blocks = np.where(placed.fresh, np.int32(number), placed.blocks)
        parts.append(maker.part(blocks))
    found = place_records(later, KnownRecords({KEY: parts}, KEY), folder)
    columns = (found.blocks, found.disputed, found.eligible, found.owners)
    return (*(column.tolist() for column in columns), found.strange, found.new, found.copied)


def _pools(folder: Path, way: str) -> list[Source]:
    """Two that become known, and one of copies of both, the same and nearly so, and new records."""
    draw = random.Random(1)
    if way == "vectors":
        values = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
        nearly = np.nextafter(values, np.float32(9))
        new = np.concatenate([values[5:25], nearly[:20], nearly[30:40], values[50:]])
        return [
            write_features(folder / f"{name}.parquet", own, prefix=name)
            for name, own in (("a", values[:30]), ("b", values[20:45]), ("c", new))
        ]
    if way == "texts":
        words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
        texts = [(" ".join(draw.choices(words, k=9)),) for _ in range(60)]
        nearly_texts = [(with_a_typo(text, draw),) for (text,) in texts]
        later = [*texts[5:25], *nearly_texts[:20], *nearly_texts[30:40], *texts[50:]]
        return [
            write_texts(folder / f"{name}.parquet", own, prefix=name)
            for name, own in (("a", texts[:30]), ("b", texts[20:45]), ("c", later))
        ]
    shown = pictures_of(ROOT / "data" / "digits-pool.parquet", slice(0, 60))
    stored = [encoded(one) for one in shown]
    compressed = [SAME_PICTURE["JPEG 75"](one) for one in shown]
    copies = [*stored[5:25], *compressed[:20], *compressed[30:40], *stored[50:]]
    return [
        write_images(folder / f"{name}.parquet", own, prefix=name)
        for name, own in (("a", stored[:30]), ("b", stored[20:45]), ("c", copies))
    ]


@pytest.mark.parametrize("way", ["vectors", "pictures"])
def test_a_copy_belongs_to_the_block_in_which_its_content_came_first(tmp_path, way):
    """The same content came twice in one file, under names of two blocks."""
    if way == "vectors":
        values = np.ones((2, 3), np.float32)
        twice = write_features(tmp_path / "a", values, prefix="a")
        copy = write_features(tmp_path / "b", np.nextafter(values[:1], np.float32(2)), prefix="b")
    else:
        (shown,) = pictures_of(ROOT / "data" / "digits-pool.parquet", slice(3, 4))
        twice = write_images(tmp_path / "a", [encoded(shown)] * 2, prefix="a")
        copy = write_images(tmp_path / "b", [SAME_PICTURE["JPEG 85"](shown)], prefix="b")
    known = KnownRecords({KEY: [part(scan(twice, SALT), 0, [0, 1])]}, KEY)
    looked_up = known.look_up({KEY: scan(copy, SALT)})
    assert not looked_up.same.any()
    assert looked_up.contents.tolist() == [0]


def test_a_picture_belongs_to_the_block_of_the_one_that_is_most_alike(tmp_path, monkeypatch):
    """Not to that of the first one that is alike, however few are read at a time."""
    (shown,) = pictures_of(ROOT / "data" / "digits-pool.parquet", slice(3, 4))
    pools = [
        write_images(tmp_path / name, [content], prefix=name)
        for name, content in (
            ("a", SAME_PICTURE["JPEG 50"](shown)),
            ("b", encoded(shown)),
            ("c", SAME_PICTURE["JPEG 95"](shown)),
        )
    ]
    first, second, copy = (scan(pool, SALT) for pool in pools)
    monkeypatch.setattr(known_records, "_WINDOW", 1)
    assert index(first).look_up({KEY: copy}).contents.tolist() == [0]
    assert index(first, second).look_up({KEY: copy}).contents.tolist() == [1]
