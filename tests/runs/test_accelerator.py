"""A whole campaign on an accelerator: plan, training, scores, self-training, figures, certificate.

Skipped where there is none; see tests/training/test_accelerator.py for how to run it.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.data.importing.settings import ImportSettings
from dpal.runs.predict import open_model, predict

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
SIDE, CLASSES = 16, 3


def png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png")
    return file.getvalue()


def write_pictures(path: Path, count: int, *, start: int) -> Path:
    """Bright stripes, bars or neither on noise: a small net learns them at once."""
    rng = np.random.default_rng(start)
    labels = rng.integers(CLASSES, size=count)
    pixels = rng.integers(128, size=(count, SIDE, SIDE), dtype=np.uint8)
    pixels[labels == 0, 4:8] += 127
    pixels[labels == 1, :, 4:8] += 127
    table = pa.table(
        {
            "id": [f"r{start + number}" for number in range(count)],
            "image": [png(picture) for picture in pixels],
            "label": labels,
        }
    )
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_campaign_with_all_its_parts(precision, tmp_path):
    settings = dpal.settings(
        {
            "name": "there",
            "data": {
                "pool": str(write_pictures(tmp_path / "pool.parquet", 1500, start=0)),
                "validation": str(write_pictures(tmp_path / "judge.parquet", 400, start=5000)),
            },
            "validation": {"protected": True},
            "privacy": {"epsilon": 8},
            "schedule": {
                "initial": 400, "queries": [300], "batch_size": 200, "epochs_per_phase": 6
            },
            "acquisition": "margin",
            "search": {"trials": [{"learning_rate": 0.1}]},
            "self_training": {"epochs": 2},
            "model": {"name": "tutorial_cnn", "activation": "tanh"},
            "training": {"precision": precision, "averaging": {"kind": "exponential"}},
            "runtime": {
                "device": DEVICE, "artifacts": str(tmp_path / "artifacts"),
                "anchors": str(tmp_path / "anchors"),
            },
        }
    )  # fmt: skip
    folder = dpal.run(settings)
    checks = dpal.verify(folder, ledger=tmp_path / "artifacts" / "ledger.sqlite")
    assert not any_failed(checks)
    target = tmp_path / "predicted.parquet"
    pictures = write_pictures(tmp_path / "new.parquet", 500, start=9000)
    predict(open_model(folder.root), pictures, target, ImportSettings(), device=DEVICE)
    said, true = pq.read_table(target), pq.read_table(pictures)
    right = np.mean(said["label"].to_numpy() == true["label"].to_numpy())
    assert right >= 0.9, right
