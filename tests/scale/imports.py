"""Imports of many pictures: seconds, CPU seconds and peak memory of `dpal import`.

    python -m tests.scale.imports --pictures 10000 100000
    python -m tests.scale.imports --pictures 10000 --kinds npz

Prints figures as JSON. Sources are made beforehand and not timed: `classes` is one folder of JPEGs
a class, `tree` the same folders with a table that names every picture and its label, `folder` such
a table beside all JPEGs in one folder, `npz` pictures of 28 x 28 in one array. Every import is a
process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from tests.conftest import command

SIDE, CLASSES = 64, 10
_KIB = 1024  # what `ru_maxrss` counts in, on Linux


def measure(kind: str, pictures: int, folder: Path) -> dict[str, Any]:
    """Makes a source, imports it, and looks at what came of it.

    Args:
      kind: of `SOURCES`.
      pictures: how many.
      folder: an empty one.

    Returns:
      Wall seconds, CPU seconds (of all threads, user and system) and peak memory in MiB.
    """
    folder.mkdir(exist_ok=True)
    source = SOURCES[kind](folder, pictures)
    target = folder / "pool.parquet"
    began = time.perf_counter()
    process = subprocess.Popen(
        [command(), "import", str(source), "--to", str(target), "--split", "0.2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    assert os.waitstatus_to_exitcode(status) == 0
    assert pq.read_metadata(target).num_rows == pictures
    return {
        "kind": kind,
        "pictures": pictures,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": round(used.ru_maxrss / _KIB),
        "file_mib": round(target.stat().st_size / 2**20),
    }


def _class_folders(folder: Path, pictures: int) -> Path:
    _write_pictures(folder / "pictures", pictures)
    return folder / "pictures"


def _tree(folder: Path, pictures: int) -> Path:
    source = folder / "pictures"
    _write_table(source, _write_pictures(source, pictures))
    return source


def _one_folder(folder: Path, pictures: int) -> Path:
    source = folder / "pictures"
    _write_table(source, _write_pictures(source, pictures, "{number:06d}.jpg"))
    return source


def _write_table(source: Path, names: Sequence[str]) -> None:
    with (source / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label"])
        writer.writerows([name, number % CLASSES] for number, name in enumerate(names))


def _arrays(folder: Path, pictures: int) -> Path:
    generator = np.random.default_rng(0)
    blots = generator.integers(0, 256, (pictures, 7, 7), dtype=np.uint8)
    images = blots.repeat(4, axis=1).repeat(4, axis=2)
    np.savez(folder / "digits.npz", images=images, labels=np.arange(pictures) % CLASSES)
    return folder / "digits.npz"


SOURCES: Mapping[str, Callable[[Path, int], Path]] = {
    "classes": _class_folders,
    "tree": _tree,
    "folder": _one_folder,
    "npz": _arrays,
}


def _write_pictures(
    source: Path, pictures: int, named: str = "class-{kind}/{number:06d}.jpg"
) -> list[str]:
    """Writes JPEGs of 64 x 64 and returns their names below the source."""
    generator = np.random.default_rng(0)
    names = [named.format(kind=number % CLASSES, number=number) for number in range(pictures)]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(_jpeg(generator))
    return names


def _jpeg(generator: np.random.Generator) -> bytes:
    blots: NDArray[np.uint8] = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    picture = Image.fromarray(blots).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    picture.save(stream, "JPEG", quality=85)
    return stream.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    asked = parser.parse_args()
    for kind in asked.kinds:
        for count in asked.pictures:
            with tempfile.TemporaryDirectory() as place:
                print(json.dumps(measure(kind, count, Path(place))), flush=True)
