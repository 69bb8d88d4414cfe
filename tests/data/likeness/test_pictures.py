"""Pictures are recognised when they are encoded anew or resized a little, and only then."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from dpal.data.likeness import pictures
from dpal.data.likeness.record_sketches import Described
from dpal.data.parquet import RowNumbers
from dpal.data.readers import decode
from dpal.errors import DataError
from tests.conftest import ROOT, owner_reads
from tests.data.copies import SAME_PICTURE, SAME_PIXELS, encoded, image_of
from tests.data.copies import pictures as read_pictures
from tests.data.rates import Share, is_at_least, is_at_most

KNOWN, COPIED = 3000, 300


def described(stored: list[bytes]) -> Described:
    return pictures.describe(pa.array(stored, pa.binary()), rows=None, salt=bytes(32))


def grey(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels.astype(np.uint8)))


@pytest.fixture(scope="module")
def digits() -> list[bytes]:
    return [encoded(one) for one in read_pictures(ROOT / "data/digits-pool.parquet", slice(KNOWN))]


@pytest.fixture(scope="module")
def known(digits) -> Described:
    return described(digits)


@pytest.mark.parametrize("way", SAME_PICTURE)
def test_copies_are_recognised_as_what_they_are_copies_of(digits, known, way):
    """Fails by chance below once in 10,000 times, if 99 % are recognised."""
    copies = described([SAME_PICTURE[way](image_of(one)) for one in digits[:COPIED]])
    found = pictures.find(known.sketches, copies.sketches)
    hits = Share(int((found == np.arange(COPIED)).sum()), COPIED)
    assert is_at_least(hits, 0.99), hits
    assert copies.contents[0] != known.contents[0]


@pytest.mark.parametrize("way", SAME_PIXELS)
def test_how_pixels_are_stored_makes_no_difference(digits, known, way):
    copies = described([SAME_PIXELS[way](image_of(one)) for one in digits[:50]])
    assert copies.contents == known.contents[:50]
    assert np.array_equal(copies.sketches, known.sketches[:50])


def test_new_pictures_are_no_copies(known):
    """Fails by chance below once in 10,000 times, if 1 in 10,000 is taken for a copy."""
    new = read_pictures(ROOT / "data" / "digits-public.parquet", slice(3000))
    found = pictures.find(known.sketches, described([encoded(one) for one in new]).sketches)
    alarms = Share(int((found >= 0).sum()), len(new))
    assert is_at_most(alarms, 1e-4), alarms


def test_these_tests_reject_a_coarser_fingerprint_and_other_tolerances(digits, known, monkeypatch):
    """An average hash of 64 bits, within 2 of them, and sketches compared too loosely."""

    def bits(stored: list[bytes]) -> np.ndarray:
        small = [image_of(one).resize((8, 8), Image.Resampling.BILINEAR) for one in stored]
        values = np.stack([np.asarray(one, float).ravel() for one in small])
        return 2.0 * (values > values.mean(axis=1, keepdims=True)) - 1

    new = [encoded(one) for one in read_pictures(ROOT / "data/digits-public.parquet", slice(1000))]
    apart = (64 - bits(new) @ bits(digits).T) / 2
    assert not is_at_most(Share(int((apart.min(axis=1) <= 2).sum()), len(new)), 1e-4)
    sketches = described(new).sketches
    monkeypatch.setattr(pictures, "_TOLERANCE", 6.0)
    loose = int((pictures.find(known.sketches, sketches) >= 0).sum())
    assert not is_at_most(Share(loose, len(new)), 1e-4)
    monkeypatch.setattr(pictures, "_TOLERANCE", 0.5)
    copies = described([SAME_PICTURE["JPEG 60"](image_of(one)) for one in digits[:COPIED]])
    strict = pictures.find(known.sketches, copies.sketches) == np.arange(COPIED)
    assert not is_at_least(Share(int(strict.sum()), COPIED), 0.99)


def test_a_colour_picture_is_itself_and_its_grey_copy_is_like_it():
    noise = np.random.default_rng(3).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    colour = Image.fromarray(noise).resize((40, 32), Image.Resampling.BICUBIC)
    one, other, flat = described([encoded(colour)]), described([encoded(colour.convert("L"))]), None
    assert one.contents != other.contents
    assert pictures.find(one.sketches, other.sketches).tolist() == [0]
    flat = described([encoded(colour.rotate(90, expand=True))])
    assert pictures.find(one.sketches, flat.sketches).tolist() == [-1]


def test_pictures_without_structure_are_compared_with_none():
    bar = np.zeros((28, 28))
    bar[:, 10:14] = 255
    plain = described([grey(np.full((28, 28), 7)), grey(bar), grey(bar * 0.9)])
    assert not plain.telling.any()
    assert not plain.sketches.any()
    assert pictures.find(plain.sketches, plain.sketches).tolist() == [-1] * 3
    small = np.random.default_rng(1).integers(0, 255, (8, 8))
    tiny = described([grey(small), grey(np.zeros((8, 8)))])
    assert tiny.telling.tolist() == [True, False]  # told apart by their pixels alone
    assert not tiny.sketches.any()


def test_large_pictures_are_decoded_one_by_one(monkeypatch):
    read = []

    def counted(*arguments, **options):
        read.append(len(arguments[1]))
        return decode(*arguments, **options)

    monkeypatch.setattr(pictures, "decode", counted)
    noise = np.random.default_rng(2).integers(0, 255, (5, 64, 64))
    monkeypatch.setattr(pictures, "_VALUES_AT_ONCE", 2 * 64 * 64)
    together = described([grey(one) for one in noise])
    assert read == [1, 2, 2]
    monkeypatch.undo()
    assert together.contents == described([grey(one) for one in noise]).contents


def test_a_picture_that_cannot_be_read_is_named_by_its_row():
    stored = pa.array([grey(np.eye(28) * 255), b"no picture"], pa.binary())
    rows = RowNumbers(Path("pool.parquet"), np.array([3, 8]))
    with owner_reads(DataError, match="row 8 .*readable PNG"):
        pictures.describe(stored, rows=rows, salt=bytes(32))


def test_how_many_are_compared_at_once_makes_no_difference(known, monkeypatch):
    stream = [SAME_PICTURE["JPEG 75"](Image.open(io.BytesIO(grey(np.tri(28) * 200))))]
    copies = np.concatenate([known.sketches[::-7], described(stream).sketches])
    found = pictures.find(known.sketches, copies)
    monkeypatch.setattr(pictures, "_KNOWN_AT_ONCE", 700)
    monkeypatch.setattr(pictures, "_NEW_AT_ONCE", 11)
    monkeypatch.setattr(pictures, "_PAIRS_AT_ONCE", 5)
    monkeypatch.setattr(pictures, "_CLOSEST", 40)
    assert np.array_equal(pictures.find(known.sketches, copies), found)
    assert found[:-1].tolist() == list(range(KNOWN - 1, -1, -7))
    assert found[-1] == -1
    nothing = np.zeros((0, pictures.WIDTH), np.uint8)
    assert pictures.find(nothing, copies).tolist() == [-1] * len(copies)
    assert pictures.find(known.sketches, nothing).size == 0
