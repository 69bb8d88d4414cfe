"""What becomes of pictures of every kind, and that what is not read is refused in a sentence."""

from __future__ import annotations

import io
import random
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from dpal.data import pictures
from dpal.data.parquet import RowNumbers
from dpal.data.pictures import MOST_PIXELS, decode_pictures
from dpal.errors import DataError
from tests.data.bombs import png

ROWS = RowNumbers(Path("p.parquet"), np.arange(40, 50))


def saved(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decoded(*encoded: bytes, **options) -> np.ndarray:
    found = decode_pictures(pa.array(encoded, pa.binary()), rows=ROWS, **options)
    assert found.dtype == np.uint8 and len(found) == len(encoded)
    return found[0]


def refused(*encoded: bytes, **options) -> str:
    with pytest.raises(DataError) as found:
        decoded(*encoded, **options)
    said = found.value.for_owner()
    assert "\n" not in said and said.startswith("p.parquet (") and "row 0): row 4" in said
    return said


def chunked(depth: int, colour: int, samples: bytes, side: int) -> bytes:
    """A PNG made by hand: Pillow writes no colours of 16 bits."""

    width = len(samples) // side
    lines = b"".join(b"\0" + samples[at * width : (at + 1) * width] for at in range(side))
    return made_of(depth, colour, side, side, zlib.compress(lines))


def made_of(depth: int, colour: int, width: int, height: int, packed: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", packed), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_sixteen_bits_are_scaled_and_not_clipped():
    """130 levels of grey over the whole range, of which clipping at 255 left two."""
    deep = np.linspace(0, 65535, 130 * 130).reshape(130, 130).astype(np.uint16)
    found = decoded(saved(Image.fromarray(deep)))
    assert found.shape == (1, 130, 130)
    assert len(np.unique(found)) == 256
    assert np.array_equal(found[0], deep >> 8)
    shallow = np.arange(256, dtype=np.uint16).reshape(16, 16)
    for made in (shallow * 257, shallow << 8):  # both ways to make 16 bits of 8
        assert np.array_equal(decoded(saved(Image.fromarray(made)))[0], shallow)


def test_grey_and_colours_of_sixteen_bits_are_scaled_alike():
    samples = np.random.default_rng(0).integers(0, 65536, (8, 8), dtype=np.uint16)
    grey = decoded(chunked(16, 0, samples.astype(">u2").tobytes(), 8))
    three = np.repeat(samples[..., None], 3, axis=2)
    colour = decoded(chunked(16, 2, three.astype(">u2").tobytes(), 8))
    assert grey.shape == (1, 8, 8) and colour.shape == (3, 8, 8)
    assert all(np.array_equal(channel, grey[0]) for channel in colour)


def test_few_bits_fill_the_whole_range():
    for depth in (1, 2, 4):
        levels = 2**depth
        packed = np.packbits(
            ((np.arange(16)[:, None] % levels) >> np.arange(depth - 1, -1, -1)) & 1
        ).tobytes()
        found = decoded(chunked(depth, 0, packed * 16, 16))
        assert np.unique(found).tolist() == [255 * one // (levels - 1) for one in range(levels)]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_pictures_of_eight_bits_are_what_they_were(mode):
    """The rule of earlier versions: grey as it is, everything else as RGB."""
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    encoded = saved(image, "JPEG" if mode == "CMYK" else "PNG")
    with Image.open(io.BytesIO(encoded)) as opened:
        before = np.array(opened.convert("L" if mode in ("1", "L") else "RGB"))
    found = decoded(encoded)
    assert np.array_equal(found[0] if before.ndim == 2 else np.moveaxis(found, 0, -1), before)


def test_no_pixel_is_decoded_of_what_differs_from_the_first(monkeypatch):
    first, second, made = png(8, 8, "L"), png(9, 8, "L"), []
    load = Image.Image.load

    def counted(image):
        made.append(image.size)
        return load(image)

    monkeypatch.setattr(Image.Image, "load", counted)
    said = refused(first, second)
    assert "shape (1, 8, 9), others have (1, 8, 8)" in said and "row 41 " in said
    said = refused(first, shape=(3, 8, 8))
    assert "shape (1, 8, 8), others have (3, 8, 8)" in said and "row 40 " in said
    assert (9, 8) not in made


def test_the_bound_on_pixels_holds_for_every_shape():
    side = int(MOST_PIXELS**0.5)
    assert decoded(png(side, side)).shape == (1, side, side)
    for width, height in ((side + 1, side), (MOST_PIXELS + 1, 1), (13_000, 13_000)):
        said = refused(made_of(1, 0, width, height, b""))
        assert f"{width:,} x {height:,} pixels" in said and f"most {MOST_PIXELS:,}" in said
    # Pillow opens these no more.
    assert "more than 16,777,216 pixels" in refused(made_of(16, 6, 60_000, 60_000, b""))


def test_of_several_pictures_in_one_file_none_is_chosen():
    frames = [Image.new("L", (8, 8), value) for value in (0, 100, 200)]
    animated = saved(frames[0], save_all=True, append_images=frames[1:])
    assert "an animation" in refused(animated)


def test_a_photograph_with_a_preview_is_the_photograph():
    """Cameras put a second, small picture into their JPEG files."""
    first, second = Image.new("RGB", (32, 24), "red"), Image.new("RGB", (8, 6), "blue")
    both = saved(first, "MPO", save_all=True, append_images=[second])
    assert decoded(both).shape == (3, 24, 32)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_no_altered_byte_of_any_kind_ends_in_anything_but_a_sentence(mode):
    choose = random.Random(mode)
    pixels = np.random.default_rng(2).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(pixels).convert(mode)
    whole = saved(image, "JPEG" if mode == "CMYK" else "PNG")
    said = 0
    for _ in range(200):
        broken = bytearray(whole)
        for _ in range(choose.choice((1, 1, 3, 20))):
            broken[choose.randrange(len(broken))] = choose.randrange(256)
        try:
            decoded(bytes(broken[: choose.choice((len(broken), choose.randrange(len(broken))))]))
        except DataError as error:
            said += 1
            assert "row 40" in error.for_owner() and "\n" not in str(error)
    assert said > 100


JPEGS = {
    "grey": ("L", {}),
    "colours": ("RGB", {}),
    "progressive": ("RGB", {"progressive": True}),
    "all colours kept": ("RGB", {"subsampling": 0, "quality": 100}),
    "a comment": ("RGB", {"comment": b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x03"}),
    "four inks": ("CMYK", {}),
}


def noise(mode: str, seed: int) -> Image.Image:
    colours = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 17, colours), np.uint8)
    return Image.frombytes(mode, (17, 24), pixels.tobytes())


@pytest.mark.parametrize(("mode", "options"), JPEGS.values(), ids=JPEGS)
def test_jpegs_are_read_quickly_and_as_pillow_reads_them(mode, options, monkeypatch):
    encoded = [saved(noise(mode, seed), "JPEG", **options) for seed in range(3)]
    opened, real = [], Image.open

    def watched(*given, **named):
        opened.append(given)
        return real(*given, **named)

    monkeypatch.setattr(Image, "open", watched)
    found = decode_pictures(pa.array(encoded, pa.binary()), rows=ROWS)
    # The first one's header says the shape.
    assert len(opened) == 1 + (3 if mode == "CMYK" else 0)
    for pixels, content in zip(found, encoded, strict=True):
        expected = np.asarray(real(io.BytesIO(content)).convert("L" if mode == "L" else "RGB"))
        assert np.array_equal(
            pixels, expected[None] if mode == "L" else expected.transpose(2, 0, 1)
        )


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_an_altered_jpeg_is_read_or_refused_as_by_pillow(mode, monkeypatch):
    first, whole = (saved(noise(mode, seed), "JPEG") for seed in (1, 2))
    random.seed(5)
    altered = [whole[:40], whole[:-30], whole[: len(whole) // 2]]
    for _ in range(300):
        place = random.randrange(len(whole))
        altered.append(whole[:place] + bytes([random.randrange(256)]) + whole[place + 1 :])

    def outcome(content: bytes) -> bytes | None:
        try:
            return decode_pictures(pa.array([first, content], pa.binary()), rows=ROWS).tobytes()
        except DataError:
            return None

    quick = [outcome(content) for content in altered]
    monkeypatch.setattr(pictures, "_plain_jpeg", lambda *given: None)
    assert quick == [outcome(content) for content in altered]
    assert None in quick and len(set(quick)) > 100


def test_threads_decode_the_same_and_tell_the_first_misfit(monkeypatch):
    kinds = ("PNG", "JPEG")
    encoded = [saved(noise("RGB", seed), kinds[seed % 2]) for seed in range(9)]
    whole, names = pa.array(encoded, pa.binary()), set[str]()
    plain = pictures._plain_jpeg

    def watched(content, shape):
        names.add(threading.current_thread().name)
        return plain(content, shape)

    monkeypatch.setattr(pictures, "_plain_jpeg", watched)
    alone = decode_pictures(whole, rows=ROWS, threads=4)
    assert names == {threading.current_thread().name}  # so few pixels are not worth a thread
    names.clear()
    monkeypatch.setattr(pictures, "_WORTH_A_THREAD", 1)
    assert np.array_equal(decode_pictures(whole, rows=ROWS, threads=4), alone)
    assert names and threading.current_thread().name not in names
    names.clear()
    monkeypatch.setattr(pictures, "_AT_ONCE", 1)
    assert np.array_equal(decode_pictures(whole, rows=ROWS, threads=4), alone)
    assert names == {threading.current_thread().name}  # large ones are decoded one by one
    monkeypatch.setattr(pictures, "_AT_ONCE", 2**25)
    misfit = saved(Image.new("L", (5, 5)))
    for first in (2, 4, 7):
        altered = [*encoded[:first], misfit, *encoded[first + 1 : 8], b"no picture"]
        said = refused(*altered, threads=4)
        assert f"row {40 + first} " in said and "(1, 5, 5)" in said
