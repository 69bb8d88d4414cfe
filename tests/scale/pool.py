"""What a pool costs by its size, from the plan's look at it to the merge of a query's labels.

    OMP_NUM_THREADS=1 python -m tests.scale.pool --records 100000 1000000 10000000

Prints figures as JSON: CPU seconds of each step, and the peak of a process that does all of them.
Every size is measured in a process of its own. Records have 32 features; `bare` is what reading and
unpacking these takes pyarrow alone, and `stream` what dpal takes until they are a model's input.
`first` is the plan of a campaign's beginning, which compares pool and validation set besides.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from dpal.acquisition.scores import score
from dpal.acquisition.selection import select_at_random
from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.inspect_rows import RowHashes, inspect
from dpal.data.labeling_state import (
    UNLABELED,
    cohort_column,
    read_selection,
    write_merged,
    write_selection,
    write_start,
)
from dpal.data.readers import apply_extractor, raw_batches, records_of, usual_batches
from dpal.data.sources import Role, Source, open_source
from dpal.data.validation_checks import require_other_records
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import Acquisition
from dpal.randomness import secure
from dpal.training.score_inputs import ScoredModel
from tests.scale.ledger_entries import in_own_process

WIDTH, CLASSES = 32, 10
PART = 1000  # one record of so many is selected
_GROUP = 2**18  # rows of a row group
_ROUNDS = 5
_VALIDATION = 10_000  # records of the set that figures are measured on
_KIB = 1024


def write_pool(path: Path, records: int, *, seed: int = 0) -> Source:
    """A pool of so many records of 32 features."""
    draw, kind = np.random.default_rng(seed), pa.list_(pa.float32())
    schema = pa.schema([("id", pa.string()), ("features", kind), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, records, _GROUP):
            rows = np.arange(first, min(first + _GROUP, records))
            values = pa.array(draw.standard_normal(rows.size * WIDTH, dtype=np.float32))
            columns = {
                "id": pa.array(rows).cast(pa.string()),
                "features": pa.FixedSizeListArray.from_arrays(values, WIDTH).cast(kind),
                "label": rows % CLASSES,
            }
            file.write_table(pa.table(columns, schema=schema))
    return open_source(path, Role.POOL, label_column="label")


def bare(path: Path) -> None:
    """Reads and unpacks the features, and looks at none of them."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(2**16, columns=["features"], use_threads=False):
            np.asarray(batch.column(0).flatten()).reshape(batch.num_rows, -1)


def stream(source: Source) -> None:
    """The same until they are records as a model reads them."""
    for batch in raw_batches(source, ["features"], large=True):
        records_of(source, batch.table.column(0), rows=batch.numbers)


def scored_model(name: str) -> ScoredModel:
    """A model of fresh weights."""
    hidden = (512, 512) if name == "mlp" else ()
    spec = ModelSpec(name=name, input_shape=(WIDTH,), classes=CLASSES, hidden=hidden)
    return ScoredModel(
        model=build_model(spec).eval(),
        task=Task.SINGLE_LABEL,
        classes=CLASSES,
        physical_batch=256,
    )


def scores(source: Source, model: ScoredModel) -> Iterator[NDArray[np.float64]]:
    """Entropies of all records, as a campaign's scorer yields them."""
    for shard in shards_of(source, 1):
        batches = shard_batches(source, shard, ["features"], large=True)
        for batch, decoded in decoded_ahead(source, batches):
            for part in usual_batches(batch):
                read = model.read(apply_extractor(source, decoded[part]))
                yield score(
                    Acquisition.ENTROPY, read.probabilities, task=Task.SINGLE_LABEL, clipped=False
                )


def first_plan(pool: Source, validation: Source) -> None:
    """Looks at both, and requires that the one is not made of the other's records."""
    salt = secrets.token_bytes(32)
    seen = RowHashes(salt), RowHashes(salt)
    for source, rows in zip((pool, validation), seen, strict=True):
        inspect(source, seen=rows)
    require_other_records(*seen, names=("pool", "validation set"))


def measure(folder: Path, records: int) -> dict[str, Any]:
    """What one query of a pool of so many records takes, step by step."""
    torch.set_num_threads(1)
    pool = write_pool(folder / "pool.parquet", records)
    figures: dict[str, Any] = {"records": records}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = work()
        taken = time.process_time() - began
        figures[step] = round(min(taken, figures.get(step, taken)), 4)
        return result

    for _ in range(_ROUNDS):
        timed("bare", lambda: bare(folder / "pool.parquet"))
        timed("stream", lambda: stream(pool))
    validation = write_pool(folder / "validation.parquet", _VALIDATION, seed=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed("first", lambda: first_plan(pool, validation))
    planned = replace(pool, known=timed("plan", lambda: inspect(pool)).files)
    timed("start", lambda: write_start(planned, folder / "start.parquet"))
    model = scored_model("logistic")
    timed("score", lambda: [None for _ in scores(planned, model)])

    def draw() -> NDArray[np.int64]:
        cohorts = cohort_column(folder / "start.parquet")
        batches = raw_batches(planned, ["id"], large=True)
        unlabeled = (batch.rows[cohorts[batch.rows] == UNLABELED] for batch in batches)
        return select_at_random(unlabeled, records // PART, rng=secure()).rows

    rows = timed("draw", draw)
    chosen, nobody = folder / "selection.parquet", np.zeros(0, np.int64)
    timed("write", lambda: write_selection(planned, rows, nobody, chosen))
    labels = dict.fromkeys(read_selection(chosen), 1)
    merged = folder / "merged.parquet"
    timed("merge", lambda: write_merged(folder / "start.parquet", labels, 0, merged))
    figures["before_mib"] = round(before / _KIB)
    figures["mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB)
    return figures


def forward_share(folder: Path, name: str, records: int = 2**18) -> dict[str, Any]:
    """What scoring takes beside the forward passes alone, and beside these and reading.

    By the processor's time and, as the next records are read while the model looks at these, by the
    clock where a second core does that.
    """
    torch.set_num_threads(1)
    pool, model = write_pool(folder / "pool.parquet", records), scored_model(name)
    inputs = torch.randn(records, WIDTH)

    def forward() -> None:
        with torch.no_grad():
            for first in range(0, records, model.physical_batch):
                model.model(inputs[first : first + model.physical_batch]).softmax(1)

    steps: dict[str, Callable[[], Any]] = {
        "reading": lambda: stream(pool),
        "forward": forward,
        "scoring": lambda: list(scores(pool, model)),
    }
    used, clock = dict.fromkeys(steps, np.inf), dict.fromkeys(steps, np.inf)
    for _ in range(_ROUNDS):
        for step, work in steps.items():
            began = time.process_time(), time.perf_counter()
            work()
            used[step] = min(used[step], time.process_time() - began[0])
            clock[step] = min(clock[step], time.perf_counter() - began[1])
    each = {f"{step}_us": round(1e6 * taken / records, 3) for step, taken in used.items()}
    both = (used["reading"] + used["forward"]) / used["scoring"]
    return {
        "model": name,
        **each,
        "ratio": round(used["forward"] / used["scoring"], 2),
        "with_reading": round(both, 2),
        "by_the_clock": round(clock["forward"] / clock["scoring"], 2),
    }


def report(sizes: list[int], models: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    """Figures for each size, and for each model."""
    for function, values in ((measure, sizes), (forward_share, models)):
        for value in values:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                yield in_own_process(function, Path(place), value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="*", default=[])
    parser.add_argument("--models", nargs="*", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        for line in report(asked.records, asked.models, Path(root)):
            print(json.dumps(line), flush=True)  # noqa: T201
