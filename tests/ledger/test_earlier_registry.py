"""Data sets of an earlier version: recognised as they were, and written on under one salt."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data import known_records, readers
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError, LedgerError, RecordsRegistered
from dpal.ledger.data_set_accounts import data_set, data_sets
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.ledger.owning import LIMIT

EARLIER = Path(__file__).parent / "earlier_registry"


@pytest.fixture
def registry(tmp_path) -> Iterator[Registry]:
    shutil.copytree(EARLIER, tmp_path / "earlier")
    store = LedgerStore(tmp_path / "earlier" / "ledger.sqlite")
    yield Registry(store, tmp_path / "earlier" / "datasets")
    store.close()


@pytest.fixture
def records(tmp_path):
    """Makes pools of records that only their numbers tell apart."""

    def make(first: int, count: int, *, people: int = 0, prefix: str = "r", nudge: bool = False):
        numbers = np.arange(first, first + count)
        values = np.stack([numbers, numbers**2 % 97, np.sin(numbers)], axis=1).astype(np.float32)
        if nudge:
            values = np.nextafter(values, np.float32(np.inf))
        columns = {
            "id": [f"{prefix}-{number}" for number in numbers],
            "features": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 3),
        }
        if people:
            columns["person"] = [f"person-{number // people}" for number in numbers]
        path = tmp_path / f"{prefix}-{first}-{count}-{nudge}.parquet"
        pq.write_table(pa.table(columns), path)
        return open_source(path, Role.POOL, label_column="label")

    return make


def test_records_are_in_the_blocks_they_were_in(registry, records):
    located = registry.locate("clinic", records(0, 60))
    assert located.blocks.tolist() == [0] * 40 + [1] * 20
    assert located.eligible.all()
    of_ward = registry.locate("ward", records(1000, 40, people=4))
    assert of_ward.sizes() == {0: 10}
    assert of_ward.owners.tolist() == [row // 4 * 4 for row in range(40)]
    with pytest.raises(DataError):
        registry.locate("clinic", records(59, 2))
    assert not (registry.folder / "salt").exists()  # looking writes nothing


def test_copies_are_recognised_by_sketches_of_the_earlier_version(registry, records):
    for copies in (records(0, 60, prefix="x"), records(0, 60, prefix="x", nudge=True)):
        with pytest.raises(RecordsRegistered):
            registry.require_unregistered(copies)
    with pytest.raises(DataError):
        registry.add("clinic", records(0, 60, prefix="x", nudge=True))
    assert registry.require_unregistered(records(5000, 60, prefix="x")) == 3


def test_files_that_come_again_are_on_file_as_this_version_writes_it(registry, records):
    before = registry.store.entries()
    old = {path: path.read_bytes() for path in registry.folder.rglob("*") if path.is_file()}
    added = registry.add("clinic", records(0, 60))
    assert (added.block, added.known, added.new, added.copied) == (None, 60, 0, 0)
    *same, entry = registry.store.entries()
    assert same == before
    assert entry.kind is EntryKind.INDEX
    assert (entry.body["format"], entry.body["records"]) == (3, 60)
    assert entry.body["salt"] == sha256((registry.folder / "salt").read_bytes()).hexdigest()
    assert {path: path.read_bytes() for path in old} == old
    assert registry.add("clinic", records(0, 60)).block is None
    assert len(registry.store.entries()) == len(before) + 1  # there was nothing left to write
    assert registry.locate("clinic", records(0, 60)).sizes() == {0: 40, 1: 20}
    more = registry.add("clinic", records(50, 30))
    assert (more.block, more.new, more.known) == (2, 20, 10)
    assert registry.locate("clinic", records(0, 80)).sizes() == {0: 40, 1: 20, 2: 20}
    assert len(registry.store.verified()) == len(before) + 2
    names = {file.name for file in data_set(registry.store.entries(), "clinic").index}
    assert names == {"part-0.parquet", "part-1.parquet", "part-2.arrow", "part-3.arrow"}


def test_what_is_there_to_be_stored_elsewhere(registry, records):
    registry.add("clinic", records(50, 30))
    registry.register("new", LIMIT)
    registry.add("new", records(9000, 5))
    known = data_sets(registry.store.entries())
    assert set(known["clinic"].files) == {
        "clinic/salt", "clinic/part-0.parquet", "clinic/part-1.parquet", "clinic/part-2.arrow",
        "salt",
    }  # fmt: skip
    assert set(known["new"].files) == {"salt", "new/part-0.arrow"}
    for each in known.values():
        for name, digest in each.files.items():
            assert sha256((registry.folder / name).read_bytes()).hexdigest() == digest


LOST = {
    "its own salt": ("clinic/salt", LedgerError),
    "the salt of all": ("salt", LedgerError),
    "an earlier index": ("clinic/part-0.parquet", DataError),
    "an index": ("clinic/part-2.arrow", DataError),
}


@pytest.mark.parametrize(("name", "error"), LOST.values(), ids=LOST)
def test_what_is_lost_or_altered_makes_nobody_new(registry, records, name, error):
    registry.add("clinic", records(50, 30))
    path, strange = registry.folder / name, records(7000, 3)
    content = path.read_bytes()
    for altered in (None, content[:-1] + bytes([content[-1] ^ 1])):
        if altered is None:
            path.unlink()
        else:
            path.write_bytes(altered)
        for asking in (
            lambda: registry.locate("clinic", records(0, 60)),
            lambda: registry.add("clinic", strange),
            lambda: registry.require_unregistered(strange),
        ):
            with pytest.raises(error if altered is None else LedgerError):
                asking()
    path.write_bytes(content)
    assert registry.locate("clinic", records(0, 60)).sizes() == {0: 40, 1: 20}


def test_an_index_of_a_later_version_is_refused(registry, records):
    registry.add("clinic", records(50, 30))
    later = {**registry.store.entries()[-1].body, "format": 4}
    registry.store.append(campaign="", kind=EntryKind.INDEX, release="clinic/part-3", body=later)
    shutil.copy(
        registry.folder / "clinic" / "part-2.arrow", registry.folder / "clinic" / "part-3.arrow"
    )
    with pytest.raises(LedgerError):
        registry.locate("clinic", records(0, 60))


def test_a_salt_that_was_lost_is_not_replaced(registry, records):
    registry.register("new", LIMIT)
    registry.add("new", records(9000, 5))
    (registry.folder / "salt").unlink()
    with pytest.raises(LedgerError, match="restore the folder"):
        registry.register("newer", LIMIT)
    assert not (registry.folder / "salt").exists()


def test_many_data_sets_are_one_pass_over_a_pool(registry, records, monkeypatch):
    """Under the salts of earlier versions, too."""
    for number in range(6):
        registry.register(f"new-{number}", LIMIT)
        registry.add(f"new-{number}", records(10_000 + 100 * number, 20))
    passes: list[Source] = []

    def counted(source, columns):
        passes.append(source)
        return readers.raw_batches(source, columns)

    monkeypatch.setattr(known_records, "raw_batches", counted)
    rows: list[int] = []
    strange = records(50_000, 30)
    registry.require_unregistered(strange, on_rows=rows.append)
    assert passes == [strange]
    assert sum(rows) == 30
    for first in (10, 1010, 10_010, 10_510):
        for nudge in (False, True):  # sketches are of each salt's own, too
            with pytest.raises(RecordsRegistered):
                registry.require_unregistered(records(first, 5, prefix="other", nudge=nudge))
