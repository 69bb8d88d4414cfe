"""Registering, finding and comparing records of data sets: time and memory by their number.

    OMP_NUM_THREADS=1 python -m tests.scale.registry --records 100000 1000000 10000000
    OMP_NUM_THREADS=1 python -m tests.scale.registry --data-sets 1 10 100

Prints figures as JSON: CPU seconds, and the peak of anonymous memory, which does not count pages of
mapped files, as the system takes those back. Every size is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpal.data.sources import Role, Source, open_source
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.ledger_store import LedgerStore
from tests.ledger.owning import LIMIT
from tests.scale.ledger_entries import in_own_process

WIDTH = 8
_ROWS = 1 << 16  # written at a time
_COMPARED = 100_000  # records that are in no data set
_EACH = 1000  # records of a data set, where there are many
_EVERY_SECONDS = 0.01  # memory is looked at


def write_pool(path: Path, records: int, *, prefix: str = "r", seed: int = 0) -> Source:
    """A pool of so many records of 8 features."""
    draw = np.random.default_rng(seed)
    kind = pa.list_(pa.float32(), WIDTH)
    schema = pa.schema([("id", pa.string()), ("features", kind), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, records, _ROWS):
            rows = np.arange(first, min(first + _ROWS, records))
            values = draw.normal(size=rows.size * WIDTH).astype(np.float32)
            columns = {
                "id": [f"{prefix}-{row}" for row in rows],
                "features": pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH),
                "label": rows % 10,
            }
            file.write_table(pa.table(columns, schema=schema))
    return open_source(path, Role.POOL, label_column="label")


def measure(folder: Path, records: int) -> dict[str, Any]:
    """What one data set of so many records takes; MiB, and bytes a record on disk."""
    pool = write_pool(folder / "pool.parquet", records)
    strange = write_pool(folder / "strange.parquet", min(records, _COMPARED), prefix="s", seed=1)
    figures: dict[str, Any] = {"records": records, "before_it_mib": _anonymous()}
    with closing(LedgerStore(folder / "ledger.sqlite", anchors=folder / "anchors")) as store:
        registry = Registry(store, folder / "datasets")
        registry.register("clinic", LIMIT)
        figures |= _watched("add", lambda: registry.add("clinic", pool))
        figures |= _watched("locate", lambda: registry.locate("clinic", pool))
        figures |= _watched("compare", lambda: registry.require_unregistered(strange))
    files = [path for path in (folder / "datasets").rglob("*") if path.is_file()]
    figures["bytes_a_record"] = round(sum(path.stat().st_size for path in files) / records)
    return figures


def measure_many(folder: Path, data_sets: int) -> dict[str, Any]:
    """What comparing a pool with so many data sets takes."""
    strange = write_pool(folder / "strange.parquet", _COMPARED, prefix="s", seed=1)
    with closing(LedgerStore(folder / "ledger.sqlite", anchors=folder / "anchors")) as store:
        registry = Registry(store, folder / "datasets")
        for number in range(data_sets):
            name = f"clinic-{number}"
            pool = write_pool(folder / "one.parquet", _EACH, prefix=name, seed=2 + number)
            registry.register(name, LIMIT)
            registry.add(name, pool)
        figures = _watched("compare", lambda: registry.require_unregistered(strange))
    return {"data_sets": data_sets, **figures}


def _watched(name: str, work: Callable[[], object]) -> dict[str, Any]:
    """CPU seconds and the peak of anonymous memory of what is done."""
    done, peak = threading.Event(), [_anonymous()]

    def look() -> None:
        while not done.wait(_EVERY_SECONDS):
            peak[0] = max(peak[0], _anonymous())

    watcher = threading.Thread(target=look)
    watcher.start()
    began = time.process_time()
    try:
        work()
    finally:
        took = time.process_time() - began
        done.set()
        watcher.join()
    return {f"{name}_s": round(took, 2), f"{name}_mib": peak[0]}


def _anonymous() -> int:
    """MiB of this process that no file holds."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon"))
    return round(int(line.split()[1]) / 1024)


def report(records: list[int], data_sets: list[int], place: Path) -> Iterator[dict[str, Any]]:
    """Figures for each number of records, and of data sets."""
    for function, sizes in ((measure, records), (measure_many, data_sets)):
        for size in sizes:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                yield in_own_process(function, Path(folder), size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="*", default=[])
    parser.add_argument("--data-sets", type=int, nargs="*", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for figures in report(asked.records, asked.data_sets, Path(place)):
            print(json.dumps(figures), flush=True)
