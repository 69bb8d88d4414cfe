"""Copies of known records under new ids get no budget of their own."""

from __future__ import annotations

import random

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpal.canonical import file_digest
from dpal.errors import DataError
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.reports.ledger_words import describe_entry
from tests.conftest import ROOT
from tests.data.copies import (
    SAME_PICTURE,
    SAME_PIXELS,
    encoded,
    pictures,
    with_a_typo,
    write_features,
    write_images,
    write_texts,
)
from tests.data.test_known_records import write_earliest
from tests.ledger.owning import LIMIT

COUNT = 300
WORDS = ["patient", "ward", "fever", "cough", "night", "morning", "pain", "chest", "blood"]
WORDS += ["pressure", "tablet", "doctor", "nurse", "window", "summer", "train", "letter"]


@pytest.fixture
def registry(tmp_path):
    store = LedgerStore(tmp_path / "ledger.sqlite")
    one = Registry(store, tmp_path / "datasets")
    one.register("clinic", LIMIT)
    yield one
    store.close()


def add_as_an_earlier_version_did(registry, source) -> None:
    """Puts records on file by their owners and by their contents as they are stored."""
    path = registry.folder / "clinic" / "part-0.parquet"
    salt = (registry.folder / "salt").read_bytes()  # whose digest stands in the ledger
    (registry.folder / "clinic" / "salt").write_bytes(salt)
    (registry.folder / "salt").unlink()
    write_earliest(path, source, salt=salt)
    count = pq.read_metadata(path).num_rows
    facts = {"dataset": "clinic", "records": count, "index": file_digest(path)}
    registry.store.append(
        campaign="",
        kind=EntryKind.BLOCK,
        release="clinic/part-0",
        body={**facts, "block": 0, "size": count},
    )


@pytest.fixture
def digits(registry, tmp_path):
    """A data set of 300 handwritten digits, and the digits."""
    images = pictures(ROOT / "data" / "digits-pool.parquet", slice(0, COUNT))
    first = write_images(tmp_path / "first.parquet", [encoded(one) for one in images], prefix="a")
    registry.add("clinic", first)
    return images


def sentences(count: int) -> list[tuple[str, ...]]:
    draw = random.Random(5)
    return [(" ".join(draw.choices(WORDS, k=9)).capitalize() + ".",) for _ in range(count)]


@pytest.mark.parametrize("how", SAME_PIXELS)
def test_the_same_pixels_under_new_ids_are_no_new_records(registry, digits, tmp_path, how):
    copies = [SAME_PIXELS[how](one) for one in digits]
    added = registry.add("clinic", write_images(tmp_path / "copy.parquet", copies, prefix="new"))
    assert (added.block, added.new, added.known) == (None, 0, COUNT)
    assert registry.store.entries()[-1].kind is EntryKind.INDEX


@pytest.mark.parametrize("how", ["JPEG 50", "JPEG 95", "-1 pixel, bicubic", "+1 pixel, bilinear"])
def test_pictures_that_look_the_same_are_refused_as_new_ones(registry, digits, tmp_path, how):
    copies = [SAME_PICTURE[how](one) for one in digits]
    source = write_images(tmp_path / "copy.parquet", copies, prefix="new")
    before = len(registry.store.entries())
    with pytest.raises(DataError, match="other ids"):
        registry.add("clinic", source)
    assert len(registry.store.entries()) == before


def test_features_with_another_last_bit_are_refused_as_new_ones(registry, tmp_path):
    values = np.random.default_rng(1).normal(size=(COUNT, 12)).astype(np.float32)
    registry.add("clinic", write_features(tmp_path / "first.parquet", values, prefix="a"))
    moved = np.nextafter(values, np.float32(np.inf))
    with pytest.raises(DataError, match="other ids"):
        registry.add("clinic", write_features(tmp_path / "copy.parquet", moved, prefix="new"))
    other = values.astype(np.float64)
    added = registry.add("clinic", write_features(tmp_path / "wide.parquet", other, prefix="w"))
    assert (added.block, added.known) == (None, COUNT)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(str.upper, id="case"),
        pytest.param(lambda text: "  ".join(text.split()) + "\n", id="white space"),
        pytest.param(lambda text: text.replace(".", " !?"), id="punctuation"),
    ],
)
def test_texts_in_another_spelling_are_no_new_records(registry, tmp_path, change):
    texts = sentences(COUNT)
    registry.add("clinic", write_texts(tmp_path / "first.parquet", texts, prefix="a"))
    copies = [(change(text),) for (text,) in texts]
    added = registry.add("clinic", write_texts(tmp_path / "copy.parquet", copies, prefix="new"))
    assert (added.block, added.known) == (None, COUNT)


def test_texts_with_a_typo_are_refused_as_new_ones(registry, tmp_path):
    texts, draw = sentences(COUNT), random.Random(7)
    registry.add("clinic", write_texts(tmp_path / "first.parquet", texts, prefix="a"))
    copies = [(with_a_typo(text, draw),) for (text,) in texts]
    with pytest.raises(DataError, match="other ids"):
        registry.add("clinic", write_texts(tmp_path / "copy.parquet", copies, prefix="new"))


def jpegs(images) -> list[bytes]:
    return [SAME_PICTURE["JPEG 75"](one) for one in images]


def other_digits(count: int):
    images = pictures(ROOT / "data" / "digits-public.parquet", slice(0, count))
    return [encoded(one) for one in images]


def test_a_few_copies_among_new_records_belong_to_their_originals(registry, digits, tmp_path):
    """As many as coincidence explains, one in a hundred of those that came as new."""
    new = [*other_digits(300), *jpegs(digits[:3])]
    added = registry.add("clinic", write_images(tmp_path / "new.parquet", new, prefix="n"))
    assert (added.block, added.new, added.known, added.copied) == (1, 300, 3, 3)
    there = registry.locate("clinic", write_images(tmp_path / "new.parquet", new, prefix="n"))
    assert there.sizes() == {0: 3, 1: 300}
    blocks = data_set(registry.store.entries(), "clinic").blocks
    assert [one.size for one in blocks] == [COUNT, 300]


def test_known_records_do_not_dilute_copies(registry, digits, tmp_path):
    stored = [*(encoded(one) for one in digits), *jpegs(digits[:3]), *other_digits(297)]
    source = write_images(tmp_path / "mixed.parquet", stored, prefix="m")
    registry.add("clinic", write_images(tmp_path / "new.parquet", stored[303:], prefix="n"))
    with pytest.raises(DataError, match=r"3 of 3 new rows .*1%"):
        registry.add("clinic", source)
    with pytest.raises(DataError, match="3 of 3 new rows"):
        registry.require_new("clinic", source)


def test_the_owner_may_say_that_similar_records_are_other_peoples(registry, digits, tmp_path):
    """The reason stands in the ledger; what looks like a known record spends its budget even so."""
    new = write_images(
        tmp_path / "new.parquet", [*jpegs(digits[:30]), *other_digits(30)], prefix="n"
    )
    with pytest.raises(DataError, match="--similar REASON"):
        registry.add("clinic", new)
    added = registry.add("clinic", new, similar="twins\n were scanned twice")
    assert (added.block, added.new, added.copied) == (1, 30, 30)
    *_, entry = registry.store.entries()
    assert (entry.kind, entry.body["similar"]) == (EntryKind.BLOCK, 30)
    assert describe_entry(entry) == (
        "added block 1 of 30 with the whole limit, 30 rows that look like known ones among them: "
        '"twins\\n were scanned twice"'
    )
    assert registry.add("clinic", new).block is None  # all of them are on file now


def test_a_copy_under_an_id_of_another_block_stays_disputed(registry, digits, tmp_path):
    """Also when it is on file: whichever block paid, the other one's record would be used."""
    second = write_images(tmp_path / "second.parquet", other_digits(10), prefix="b")
    registry.add("clinic", second)
    changed = [*other_digits(9), *jpegs(digits[:1])]
    source = write_images(tmp_path / "second.parquet", changed, prefix="b")
    with pytest.raises(DataError, match="have changed") as refused:
        registry.locate("clinic", source)
    assert refused.value.for_owner().startswith("1 of 10 rows of")
    assert registry.add("clinic", source).block is None  # known ids: a correction, no copies
    assert registry.locate("clinic", source).eligible.tolist() == [True] * 9 + [False]


def test_copies_are_in_no_other_data_set_and_in_no_validation_set(registry, digits, tmp_path):
    copies = write_images(tmp_path / "copy.parquet", jpegs(digits), prefix="new")
    with pytest.raises(DataError, match="or copies"):
        registry.require_unregistered(copies)
    with pytest.raises(DataError, match="or copies"):
        registry.require_unregistered(copies, coincidence=0.5)
    registry.register("mirror", LIMIT)
    with pytest.raises(DataError, match="or copies"):
        registry.add("mirror", copies)
    others = [*other_digits(300), *jpegs(digits[:2])]
    registry.require_unregistered(write_images(tmp_path / "o.parquet", others, prefix="o"))


def test_what_many_people_say_is_no_copy(registry, tmp_path):
    """Two in a hundred thank; without them nothing is shared."""
    first = [*sentences(294), *[("Thank you!",)] * 6]
    registry.add("clinic", write_texts(tmp_path / "first.parquet", first, prefix="a"))
    draw = random.Random(8)
    others = [(" ".join(draw.choices(WORDS, k=8)),) for _ in range(294)]
    thanks = write_texts(tmp_path / "b.parquet", [*others, *[("thank you",)] * 6], prefix="b")
    registry.require_unregistered(thanks)
    more = write_texts(tmp_path / "c.parquet", [*others[:100], *[("thanks",)] * 30], prefix="c")
    registry.require_unregistered(more)
    many = write_texts(tmp_path / "d.parquet", [*others[:100], *[("thank you",)] * 30], prefix="d")
    with pytest.raises(DataError, match="holds records"):
        registry.require_unregistered(many)


def test_a_table_of_few_values_can_grow(registry, tmp_path):
    """Rows that are the same as known ones are as old as these; nothing is refused."""
    draw = np.random.default_rng(2)
    values = draw.integers(0, 7, (2, COUNT, 3)).astype(np.float32)
    values[..., 0] += draw.choice([0, 1e-3, 0.5], (2, COUNT))
    registry.add("clinic", write_features(tmp_path / "first.parquet", values[0], prefix="a"))
    added = registry.add("clinic", write_features(tmp_path / "b.parquet", values[1], prefix="b"))
    assert added.block == 1
    assert 0 < added.known < COUNT
    assert added.copied == 0


def test_an_index_of_an_earlier_version_recognises_files_and_learns_more(registry, tmp_path):
    images = pictures(ROOT / "data" / "digits-pool.parquet", slice(0, COUNT))
    stored = [encoded(one) for one in images]
    first = write_images(tmp_path / "first.parquet", stored, prefix="a")
    add_as_an_earlier_version_did(registry, first)
    assert registry.locate("clinic", first).sizes() == {0: COUNT}
    with pytest.raises(DataError, match="holds records"):
        registry.require_unregistered(first)
    renamed = write_images(tmp_path / "renamed.parquet", stored[:100], prefix="r")
    with pytest.raises(DataError, match="are not in data set clinic") as refused:
        registry.locate("clinic", renamed)
    assert refused.value.for_owner().startswith("100 of 100 rows of")
    added = registry.add("clinic", renamed)  # of these, contents are read now
    assert (added.block, added.known, added.unread) == (None, 100, COUNT - 100)
    again = registry.add("clinic", first)
    assert (again.block, again.known, again.unread) == (None, COUNT, 0)
    before = len(registry.store.entries())
    for copies in ([SAME_PIXELS["RGB"](one) for one in images], stored):
        source = write_images(tmp_path / "c.parquet", copies, prefix=f"c{len(copies[0])}")
        assert registry.add("clinic", source).block is None
    compressed = write_images(tmp_path / "j.parquet", jpegs(images), prefix="j")
    with pytest.raises(DataError, match="300 of 300 new rows"):
        registry.add("clinic", compressed)
    assert len(registry.store.entries()) == before + 2
    assert registry.locate("clinic", first).sizes() == {0: COUNT}
