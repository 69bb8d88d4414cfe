"""Copies of records: the same content encoded anew, or nearly the same."""

from __future__ import annotations

import io
import random
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from dpal.data.sources import Role, Source, open_source

Resampling = Image.Resampling


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """A picture as a file's bytes."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def jpeg(quality: int) -> Callable[[Image.Image], bytes]:
    """Copies as JPEG; of a JPEG, a recompressed one."""
    return lambda image: encoded(image, "JPEG", quality=quality)


def resized(by: int, how: Resampling) -> Callable[[Image.Image], bytes]:
    """Copies that are some pixels larger or smaller on both sides."""
    return lambda image: encoded(image.resize((image.width + by, image.height + by), how))


def _with_alpha(image: Image.Image) -> bytes:
    copy = image.convert("RGBA")
    copy.putalpha(255)
    return encoded(copy)


def _rotated_by_a_tag(image: Image.Image) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = 6  # viewers turn it; what reads pixels does not
    return encoded(image, exif=tags.tobytes())


# The pixels of a picture, stored in other ways.
SAME_PIXELS: dict[str, Callable[[Image.Image], bytes]] = {
    "PNG again": lambda image: encoded(image, compress_level=1),
    "RGB": lambda image: encoded(image.convert("RGB")),
    "palette": lambda image: (
        encoded(image.convert("RGB").quantize(256, dither=Image.Dither.NONE))
        if image.mode == "L" and len(set(image.tobytes())) <= 256
        else encoded(image)
    ),
    "opaque alpha": _with_alpha,
    "EXIF orientation": _rotated_by_a_tag,
}
# Pictures that look the same, and have other pixels.
SAME_PICTURE: dict[str, Callable[[Image.Image], bytes]] = {
    **{f"JPEG {quality}": jpeg(quality) for quality in (50, 60, 75, 85, 95)},
    **{
        f"{by:+d} pixel, {how.name.lower()}": resized(by, how)
        for by in (-1, 1)
        for how in (Resampling.BILINEAR, Resampling.BICUBIC, Resampling.LANCZOS)
    },
}


def image_of(stored: bytes) -> Image.Image:
    """A picture, decoded."""
    return Image.open(io.BytesIO(stored))


def pictures(path: Path, rows: Sequence[int] | slice) -> list[Image.Image]:
    """Some pictures of a file."""
    column = pq.read_table(path, columns=["image"]).column("image").to_pylist()
    chosen = column[rows] if isinstance(rows, slice) else [column[row] for row in rows]
    return [image_of(one) for one in chosen]


def write_images(path: Path, images: Sequence[bytes], *, prefix: str) -> Source:
    """A pool of encoded pictures, with ids of its own."""
    ids = [f"{prefix}-{row}" for row in range(len(images))]
    pq.write_table(pa.table({"id": ids, "image": pa.array(images, pa.binary())}), path)
    return open_source(path, Role.POOL, label_column="label")


def write_features(path: Path, values: NDArray[Any], *, prefix: str) -> Source:
    """A pool of feature vectors, in the precision in which they come."""
    ids = [f"{prefix}-{row}" for row in range(len(values))]
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    pq.write_table(pa.table({"id": ids, "features": features}), path)
    return open_source(path, Role.POOL, label_column="label")


def write_texts(path: Path, texts: Sequence[tuple[str, ...]], *, prefix: str) -> Source:
    """A pool of texts, or of pairs of texts."""
    ids = [f"{prefix}-{row}" for row in range(len(texts))]
    columns = dict(zip(("text_a", "text_b"), map(list, zip(*texts, strict=True)), strict=False))
    pq.write_table(pa.table({"id": ids, **columns}), path)
    return open_source(path, Role.POOL, label_column="label")


def with_a_typo(text: str, draw: random.Random) -> str:
    """A text in which a letter was left out, doubled, replaced or swapped with the next."""
    places = [at for at, character in enumerate(text) if character.isalpha()]
    if not places:
        return text
    at, letter = draw.choice(places), draw.choice("abcdefghijklmnopqrstuvwxyz")
    kind = draw.choice(["leave out", "insert", "replace", "swap"])
    if kind == "leave out":
        return text[:at] + text[at + 1 :]
    if kind == "insert":
        return text[:at] + letter + text[at:]
    if kind == "replace":
        return text[:at] + letter + text[at + 1 :]
    return text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :]


def _with_other_punctuation(text: str, draw: random.Random) -> str:
    def changed(at: int) -> str:
        character = text[at]
        beside = text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
        if not unicodedata.category(character).startswith("P") or beside.isdigit():
            return character
        return draw.choice(["", ".", ",", character])

    if not any(character.isalnum() for character in text):
        return text
    return "".join(changed(at) for at in range(len(text))) + draw.choice(["", "!", " ;"])


# The same text, in another spelling.
SAME_TEXT: dict[str, Callable[[str, random.Random], str]] = {
    "upper case": lambda text, draw: text.upper(),
    "white space": lambda text, draw: f" {text.replace(' ', draw.choice(['  ', chr(9)]))} ",
    "punctuation": _with_other_punctuation,
}


def _next(values: Sequence[float], up: float) -> list[float]:
    return np.nextafter(np.array(values, np.float32), np.float32(up)).tolist()


# The same vector, but for the last places of single precision.
SAME_VALUES: dict[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "one place up": lambda values: _next(values, np.inf),
    "one place down": lambda values: _next(values, -np.inf),
    "-0.0 for 0.0": lambda values: [-0.0 if value == 0 else value for value in values],
    "times 3, by 3": lambda values: (np.array(values, np.float32) * 3 / 3).tolist(),
    "7 digits": lambda values: [float(f"{value:.7g}") for value in values],
}
