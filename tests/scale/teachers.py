"""Reading and training of teachers, for pools of ten thousand to a million records.

    OMP_NUM_THREADS=1 python -m tests.scale.teachers --records 10000 1000000 --teachers 100 1000

Prints CPU seconds and peak memory as JSON, beside what it was before: each teacher scanned the
pool, and one was trained after the other. That is measured on some teachers, and multiplied. Every
measurement is made in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from dpal.config.pate_sections import TeachersConfig
from dpal.data.partitions import read_parts, write_parts
from dpal.data.pool_by_teacher import GroupedPool, made_of, write_grouped
from dpal.data.sources import Role, Source, open_source
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.runs.teachers import _companies, load_rows
from dpal.training.plain_training import fine_tune
from dpal.training.side_by_side import fine_tune_together
from tests.scale.ledger_entries import _peak_mib, in_own_process

WIDTH, CLASSES, EPOCHS = 32, 10, 40
_ROWS = 1 << 16  # written at a time
_SCANS, _ALONE, _BLOCKS = 3, 10, 8  # of which the rest is multiplied


def write_pool(path: Path, records: int) -> None:
    """A pool of so many records of 32 features."""
    draw = np.random.default_rng(records)
    kind = pa.list_(pa.float32(), WIDTH)
    schema = pa.schema([("id", pa.string()), ("features", kind), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, records, _ROWS):
            rows = np.arange(first, min(first + _ROWS, records))
            values = draw.normal(size=(rows.size, WIDTH)).astype(np.float32)
            columns = {
                "id": [f"record-{row:09d}" for row in rows],
                "features": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), WIDTH),
                "label": values[:, :CLASSES].argmax(axis=1),
            }
            file.write_table(pa.table(columns, schema=schema))


def measure(folder: Path, pool: Path, teachers: int) -> dict[str, Any]:
    """CPU seconds of each step as it is done, and the peak memory of all of them in MiB."""
    torch.set_num_threads(1)
    source, parts_file, grouped = _opened(folder, pool)
    before = _peak_mib()
    figures: dict[str, Any] = {}
    with _timed(figures, "deal_s"):
        write_parts(parts_file, source, teachers, group_column=None, seed=0)
        parts = read_parts(parts_file)
    with _timed(figures, "group_s"):
        made = made_of(source, parts_file)
        write_grouped(grouped, source, parts, made_of=made)
    sizes, about = np.bincount(parts), _settings(teachers)
    companies = _companies(sizes, about.to_training(0), 2**27 // (4 * WIDTH))
    trained, read, of_teachers = 0.0, 0.0, 0
    with GroupedPool(grouped, source, made) as file:
        for number, company in enumerate(companies):
            began = time.process_time()
            records = [file.load(teacher) for teacher in company]
            read += time.process_time() - began
            if number >= _BLOCKS:
                continue
            models = [_model(teacher) for teacher in company]
            began = time.process_time()
            fine_tune_together(
                models,
                [inputs for inputs, _ in records],
                [labels for _, labels in records],
                [about.to_training(teacher) for teacher in company],
                task=Task.SINGLE_LABEL,
            )
            trained += time.process_time() - began
            of_teachers += len(company)
    figures |= {"read_s": round(read, 2), "train_s": round(trained * teachers / of_teachers, 2)}
    return {**figures, "peak_mib": _peak_mib(), "before_it_mib": before}


def measure_before(folder: Path, pool: Path, teachers: int) -> dict[str, Any]:
    """The same as earlier versions did it: a scan for each teacher, and one after the other."""
    torch.set_num_threads(1)
    source, parts_file, _ = _opened(folder, pool)
    write_parts(parts_file, source, teachers, group_column=None, seed=0)
    parts, about = read_parts(parts_file), _settings(teachers)
    read = trained = 0.0
    for teacher in range(min(_ALONE, teachers)):
        began = time.process_time()
        records = load_rows(source, np.flatnonzero(parts == teacher), Task.SINGLE_LABEL)
        read += (time.process_time() - began) if teacher < _SCANS else 0.0
        model, training = _model(teacher), about.to_training(teacher)
        began = time.process_time()
        fine_tune(model, *records, training, task=Task.SINGLE_LABEL)
        trained += time.process_time() - began
    return {
        "read_s": round(read * teachers / _SCANS, 1),
        "train_s": round(trained * teachers / min(_ALONE, teachers), 1),
        "peak_mib": _peak_mib(),
    }


def report(folder: Path, records: list[int], teachers: list[int]) -> Iterator[dict[str, Any]]:
    """Figures for each size of a pool and each number of teachers."""
    for size in records:
        pool = folder / f"{size}.parquet"
        write_pool(pool, size)
        for count in teachers:
            asked = {"records": size, "teachers": count}
            for what in (measure, measure_before):
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    told = in_own_process(what, Path(place), pool, count)
                yield {**asked, "way": what.__name__, **told}
        pool.unlink()


class _timed:  # noqa: N801
    def __init__(self, figures: dict[str, Any], name: str) -> None:
        self._figures, self._name = figures, name

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *error: object) -> None:
        self._figures[self._name] = round(time.process_time() - self._began, 2)


def _opened(folder: Path, pool: Path) -> tuple[Source, Path, Path]:
    source = open_source(pool, Role.POOL, label_column="label")
    return source, folder / "parts.parquet", folder / "grouped.parquet"


def _settings(teachers: int) -> TeachersConfig:
    return TeachersConfig(count=teachers, epochs=EPOCHS)


def _model(teacher: int) -> nn.Module:
    return build_model(
        ModelSpec(name="logistic", input_shape=(WIDTH,), classes=CLASSES, seed=teacher)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--teachers", type=int, nargs="+", default=[100])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for figures in report(Path(place), asked.records, asked.teachers):
            print(json.dumps(figures), flush=True)
