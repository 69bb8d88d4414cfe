"""Pools of small images, and what is in them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from dpal.data.labeled_records import LabeledSet, load_labeled
from dpal.data.labeling_state import write_merged, write_start
from dpal.data.sources import Role, Source, open_source

SIDE = 8
# Labeled ones of 2,600: the first, the last, and those around the ends of batches.
ROWS = [0, 1, 7, 1023, 1024, 1500, 2047, 2048, 2599]


def picture(value: int, *, side: int = SIDE) -> bytes:
    """An image in which no pixel is like that of another value's."""
    pixels = np.random.default_rng(value).integers(0, 255, (side, side), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def expected(value: int) -> np.ndarray:
    return np.random.default_rng(value).integers(0, 255, (1, SIDE, SIDE), dtype=np.uint8)


def images(
    path: Path, rows: int, *, first: int = 0, replaced: dict[int, bytes | None] | None = None
) -> Path:
    content: list[bytes | None] = [picture(first + row) for row in range(rows)]
    for row, other in (replaced or {}).items():
        content[row] = other
    names = [f"r-{first + row:05d}" for row in range(rows)]
    pq.write_table(
        pa.table({"id": names, "image": content, "label": np.arange(rows) % 10}),
        path,
        row_group_size=500,
    )
    return path


def labeled_pool(tmp_path: Path, path: Path, rows: Sequence[int]) -> tuple[Source, Path]:
    """A source and a state in which `rows` are labeled, in two cohorts."""
    source = open_source(path, Role.POOL, label_column="label")
    write_start(source, tmp_path / "s0")
    new = {f"r-{row:05d}": row % 10 for row in rows}
    write_merged(tmp_path / "s0", new, 3, tmp_path / "s1")
    return source, tmp_path / "s1"


def on_disk(pool: tuple[Source, Path], tmp_path: Path, **settings: Any) -> LabeledSet:
    return load_labeled(*pool, cache_mib=0, scratch=tmp_path / "scratch", **settings)
