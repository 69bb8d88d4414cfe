"""Training on images that are decoded whenever they are drawn, beside images in memory.

Both passes meet the same batches and do the same work on them, in turns and in the same run.
Seconds depend on the machine, ratios hardly do: those are asserted.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from dpal.data.encoded_records import EncodedRecords
from dpal.data.labeling_state import write_merged, write_start
from dpal.data.readers import to_input
from dpal.data.records import LabeledSet, load_labeled
from dpal.data.sources import Role, open_source
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec

pytestmark = pytest.mark.slow

ROUNDS, STEPS, PHYSICAL = 5, 6, 256
DRAWN = 512  # records of a batch: two parts


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """3,000 grey PNGs of 28 x 28 that compress like digits: a smooth blot on black."""
    folder, generator = tmp_path_factory.mktemp("pngs"), np.random.default_rng(0)
    blots = generator.integers(0, 256, (3000, 4, 4), dtype=np.uint8)
    content = []
    for blot in blots:
        image, stream = Image.new("L", (28, 28)), io.BytesIO()
        image.paste(Image.fromarray(blot).resize((14, 14), Image.Resampling.BILINEAR), (7, 7))
        image.save(stream, "PNG")
        content.append(stream.getvalue())
    names = [f"r-{i}" for i in range(len(content))]
    table = {"id": names, "image": content, "label": np.arange(len(content)) % 10}
    pq.write_table(pa.table(table), folder / "p.parquet")
    source = open_source(folder / "p.parquet", Role.POOL, label_column="label")
    write_start(source, folder / "s0")
    labels = {name: i % 10 for i, name in enumerate(names)}
    write_merged(folder / "s0", labels, 0, folder / "s1")
    return source, folder / "s1"


def batches() -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.choice(3000, DRAWN, replace=False) for _ in range(STEPS)]


def training(labeled: LabeledSet, work: Callable[[torch.Tensor, torch.Tensor], None]) -> float:
    """Seconds of one pass over the batches, read as training reads them."""
    start = time.perf_counter()
    for rows, records in labeled.batches(batches(), part=PHYSICAL):
        labels = labeled.labels[torch.from_numpy(rows)]
        for at in range(0, len(rows), PHYSICAL):
            part = slice(at, at + PHYSICAL)
            work(to_input(records[part]), labels[part])
    return time.perf_counter() - start


def best(pool, folder: Path, work: Callable[[torch.Tensor, torch.Tensor], None]) -> list[float]:
    """Seconds in memory and from disk: the best of interleaved rounds."""
    seconds = [float("inf"), float("inf")]
    with load_labeled(*pool, cache_mib=0, scratch=folder) as encoded:
        decoded = load_labeled(*pool)
        assert isinstance(decoded.inputs, torch.Tensor)
        assert isinstance(encoded.inputs, EncodedRecords)
        for _ in range(ROUNDS):
            for i, labeled in enumerate((decoded, encoded)):
                seconds[i] = min(seconds[i], training(labeled, work))
    return seconds


@pytest.fixture
def one_core():
    """The other core decodes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_decoding_on_demand_hides_behind_a_plain_step(pool, tmp_path, one_core):
    """The least work there is: a forward and a backward pass that are not private."""
    spec = ModelSpec(name="tutorial_cnn", input_shape=(1, 28, 28), classes=10)
    model = build_model(spec)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()

    in_memory, on_demand = best(pool, tmp_path, step)
    alone = best(pool, tmp_path, lambda inputs, labels: None)[1]
    records = STEPS * DRAWN
    line = (
        f"data path: {1e6 * in_memory / records:.0f} us a record in memory, "
        f"{1e6 * on_demand / records:.0f} decoded on demand, ratio {on_demand / in_memory:.3f}; "
        f"decoding alone {1e6 * alone / records:.0f}"
    )
    print(line)  # noqa: T201
    # Measured: 1.24 to 1.32 while others kept both cores busy, and nothing could be hidden: that
    # is the sum of both. With a core to spare it is below the bound; a private step takes longer.
    assert on_demand < 1.3 * in_memory
