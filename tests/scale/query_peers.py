"""What one query of a pool takes plain pandas and baal, beside what `tests.scale.pool` measures.

    OMP_NUM_THREADS=1 python -m tests.scale.query_peers --peers pandas --records 100000 1000000
    pip install baal==2.0.0 && OMP_NUM_THREADS=1 python -m tests.scale.query_peers --peers baal

Each reads the same file, applies the same linear model, takes the records of the highest entropies,
one of each thousand, and writes who has a label now. Nothing of it is private: no record is drawn
by chance, nothing is noted or can be continued, and the pool is not looked at first. Prints figures
as JSON: CPU seconds, imports left out, and the peak of a process that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

from tests.scale.ledger_entries import in_own_process
from tests.scale.pool import PART, WIDTH, scored_model, write_pool

_READ = 1024  # records that a model reads at once
_KIB = 1024


def by_pandas(pool: Path, folder: Path, model: nn.Module, wanted: int) -> None:
    """A table of all records, of which the highest scores are taken and labels are joined."""
    table = pd.read_parquet(pool, columns=["id", "features"])
    values = torch.from_numpy(np.stack(table["features"].to_list()))
    table["score"] = _entropies(model, values)
    chosen = table.nlargest(wanted, "score")[["id"]]
    chosen.to_parquet(folder / "selection.parquet")
    state = table[["id"]].merge(chosen.assign(label=1), on="id", how="left")
    state.to_parquet(folder / "state.parquet")


def by_baal(pool: Path, folder: Path, model: nn.Module, wanted: int) -> None:
    """A step of its loop over all records in memory, of which nothing has a label yet."""
    from baal.active import ActiveLearningDataset
    from baal.active.active_loop import ActiveLearningLoop
    from baal.active.heuristics import Entropy
    from baal.modelwrapper import ModelWrapper, TrainingArgs

    column = pq.read_table(pool, columns=["features"]).column(0).combine_chunks()
    values = torch.from_numpy(column.flatten().to_numpy().reshape(-1, WIDTH).copy())
    active = ActiveLearningDataset(TensorDataset(values, torch.zeros(len(values))))
    arguments = TrainingArgs(batch_size=_READ, workers=0, use_cuda=False)
    loop = ActiveLearningLoop(
        active,
        ModelWrapper(model, arguments).predict_on_dataset,
        Entropy(),
        query_size=wanted,
        iterations=1,
        verbose=False,
    )
    assert loop.step() and active.n_labelled == wanted
    (folder / "state.pickle").write_bytes(pickle.dumps(active.state_dict()))


PEERS: dict[str, Callable[[Path, Path, nn.Module, int], None]] = {
    "pandas": by_pandas,
    "baal": by_baal,
}


def measure_peer(folder: Path, peer: str, records: int) -> dict[str, Any]:
    """CPU seconds of a query of a pool that lies there, and peaks of memory before and after it."""
    torch.set_num_threads(1)
    model, warm = scored_model("logistic").model, folder / "warm"
    warm.mkdir(exist_ok=True)
    write_pool(warm / "pool.parquet", PART)
    PEERS[peer](warm / "pool.parquet", warm, model, 1)  # imports are none of it
    before = _peak_mib()
    began = time.process_time()
    PEERS[peer](folder / "pool.parquet", folder, model, records // PART)
    taken = round(time.process_time() - began, 3)
    return {"peer": peer, "records": records, "cpu_s": taken, "before_mib": before,
            "mib": _peak_mib()}  # fmt: skip


def _entropies(model: nn.Module, values: torch.Tensor) -> NDArray[np.float32]:
    found = []
    with torch.no_grad():
        for part in torch.split(values, _READ):
            logs = model(part).log_softmax(1)
            found.append(-(logs.exp() * logs).sum(1))
    return torch.cat(found).numpy()


def _peak_mib() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=["pandas"])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    asked = parser.parse_args()
    for size in asked.records:
        with tempfile.TemporaryDirectory() as place:
            in_own_process(write_pool, Path(place) / "pool.parquet", size)
            for peer in asked.peers:
                figures = in_own_process(measure_peer, Path(place), peer, size)
                print(json.dumps(figures), flush=True)  # noqa: T201
