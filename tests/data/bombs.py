"""Small files that ask for gigabytes, and what looking at one takes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.data.image_pools import picture

MIB = 2**20


def png(width: int, height: int, mode: str = "1", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, "PNG", **options)
    return stream.getvalue()


def _written(path: Path, **columns: Any) -> Path:
    count = len(next(iter(columns.values())))
    table = {"id": [f"r{at}" for at in range(count)], **columns, "label": [0, 1] * (count // 2)}
    if count % 2:
        table["label"] = [0] * count
    pq.write_table(pa.table(table), path, compression="zstd")
    return path


def a_large_picture(path: Path) -> Path:
    """169 million pixels in a file of little more than a kilobyte."""
    return _written(path, image=[png(13_000, 13_000)])


def many_large_pictures(path: Path) -> Path:
    return _written(path, image=[png(13_000, 13_000)] * 600)


def pictures_at_the_bound(path: Path) -> Path:
    """Each one is read; all of a batch of 1,024 at once would be 50 GB."""
    return _written(path, image=[png(4096, 4096, "RGB")] * 60)


def one_large_among_small(path: Path) -> Path:
    return _written(path, image=[picture(at) for at in range(40)] + [png(13_000, 13_000)])


def cells_of_zeros(path: Path) -> Path:
    """Five cells of 300 MB, of which the file holds a dictionary of one."""
    return _written(path, image=pa.array([bytes(300_000_000)] * 5))


def a_cell_of_zeros(path: Path) -> Path:
    """One of 800 MB after many small ones."""
    return _written(path, image=pa.array([picture(1)] * 1000 + [bytes(800_000_000)]))


def a_repeated_cell(path: Path) -> Path:
    """A picture with 40 MB of nothing behind it, 500 times: 20 GB unpacked, 40 KB here."""
    once = pa.array([picture(1) + bytes(40_000_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500, np.int32)), once)
    path = _written(path, image=column)
    plain = pq.read_schema(path).remove_metadata()
    return _without_arrow_schema(path, plain)


def a_long_text(path: Path) -> Path:
    return _written(path, text_a=["short", "a" * 500_000_000])


def a_long_list(path: Path) -> Path:
    return _written(path, features=pa.array([np.zeros(150_000_000, np.float32)]))


def a_long_list_among_short(path: Path) -> Path:
    lists = [np.zeros(4, np.float32)] * 999 + [np.zeros(100_000_000, np.float32)]
    return _written(path, features=pa.array(lists))


def a_long_id(path: Path) -> Path:
    _written(path, features=[[1.0]] * 3)
    table = pq.read_table(path).set_column(0, "id", [["a", "b", "c" * 300_000_000]])
    pq.write_table(table, path, compression="zstd")
    return path


def _without_arrow_schema(path: Path, schema: pa.Schema) -> Path:
    """Written again, so that a dictionary of the file is no type of its column."""
    table = pq.read_table(path)
    writer = pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False)
    with writer:
        writer.write_table(table)
    assert schema.names == table.schema.names
    return path


BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a large picture": (a_large_picture, "row 0 has an image of 13,000 x 13,000 pixels"),
    "many large pictures": (many_large_pictures, "row 0 has an image of 13,000 x 13,000 pixels"),
    "one among small": (one_large_among_small, "row 40 has an image of 13,000 x 13,000 pixels"),
    "cells of zeros": (cells_of_zeros, "unpacks to 300,000,004 bytes for 1 values"),
    "a cell of zeros": (a_cell_of_zeros, "unpacks to 800,000,148 bytes for 2 values"),
    "a repeated cell": (a_repeated_cell, "row 0 has 40,000,"),
    "a long text": (a_long_text, "unpacks to 500,000,0"),
    "a long list": (a_long_list, "150,000,000 numbers"),
    "a long list among short": (a_long_list_among_short, "at most 67,108,864"),
    "a long id": (a_long_id, "unpacks to 300,000,0"),
}

_LOOK = r"""
import json, re, sys
from pathlib import Path
from dpal.data.sources import Role, open_source
from dpal.data.inspect_rows import inspect
from dpal.errors import DataError

def peak():
    # Not getrusage: that counts what the process had before it became this one.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) // 1024

before = peak()
try:
    source = open_source(Path(sys.argv[1]), Role.POOL, label_column="label")
    if len(sys.argv) > 2:
        from dataclasses import replace
        from dpal.data.known_records import scan
        scan(source, bytes(32))
        said = "scanned"
    else:
        said = str(inspect(source).input_shape)
except DataError as error:
    said = error.for_owner()
print(json.dumps({"said": said, "mib": peak() - before}))
"""


def look(path: Path, *arguments: str) -> tuple[str, int]:
    """What is said of a file, and the MiB that it took beyond what is loaded anyway."""
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(path), *arguments],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-300:]}", 0
    found = json.loads(done.stdout.splitlines()[-1])
    return found["said"], found["mib"]
