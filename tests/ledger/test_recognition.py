"""Copies of known records under new ids get no budget of their own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dpal.errors import DataError
from dpal.ledger.entries import Kind
from dpal.ledger.registry import Registry
from dpal.ledger.store import LedgerStore
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
    assert registry.store.entries()[-1].kind is Kind.INDEX


@pytest.mark.parametrize("how", ["JPEG 50", "JPEG 95", "-1 pixel, bicubic", "+1 pixel, bilinear"])
def test_pictures_that_look_the_same_are_refused_as_new_ones(registry, digits, tmp_path, how):
    copies = [SAME_PICTURE[how](one) for one in digits]
    source = write_images(tmp_path / "copy.parquet", copies, prefix="new")
    before = len(registry.store.entries())
    with pytest.raises(DataError, match="look like records of data set clinic under other ids"):
        registry.add("clinic", source)
    assert len(registry.store.entries()) == before


def test_features_with_another_last_bit_are_refused_as_new_ones(registry, tmp_path):
    values = np.random.default_rng(1).normal(size=(COUNT, 12)).astype(np.float32)
    registry.add("clinic", write_features(tmp_path / "first.parquet", values, prefix="a"))
    moved = np.nextafter(values, np.float32(np.inf))
    with pytest.raises(DataError, match="look like records of data set clinic under other ids"):
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
    with pytest.raises(DataError, match="look like records of data set clinic under other ids"):
        registry.add("clinic", write_texts(tmp_path / "copy.parquet", copies, prefix="new"))
