"""Images that are cut short or altered: a row number and a sentence, whatever the byte."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from dpal.data.parquet import RowNumbers
from dpal.data.readers import decode
from dpal.data.sources import Content
from dpal.errors import DataError


def encoded(kind: str) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_no_altered_byte_ends_in_anything_but_a_sentence(kind):
    whole, refused = encoded(kind), 0
    numbers = RowNumbers(Path("p.parquet"), np.array([41]))
    broken = [whole[:length] for length in range(len(whole))]
    for at in range(len(whole)):
        for value in (0, 255, whole[at] ^ 1):
            broken.append(whole[:at] + bytes([value]) + whole[at + 1 :])
    for one in broken:
        try:
            decode(Content.IMAGE, pa.array([one], pa.binary()), rows=numbers)
        except DataError as error:
            refused += 1
            assert "row 41 holds no" in error.for_owner()
    assert refused > len(whole)
