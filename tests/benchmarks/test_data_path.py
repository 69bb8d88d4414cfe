"""Images that are decoded while a model works, beside images in memory and torch's own loader.

All passes meet the same records and do the same work on them, in turns and in the same run.
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
from torch.utils.data import DataLoader, Dataset

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.encoded_records import EncodedRecords
from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.labeled_records import LabeledSet, load_labeled
from dpal.data.labeling_state import write_merged, write_start
from dpal.data.readers import decoded_of, to_input
from dpal.data.sources import Role, open_source
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.score_inputs import ScoredModel

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


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """4,096 JPEGs of 64 x 64 in colour, as smooth as photographs are."""
    folder, generator = tmp_path_factory.mktemp("jpegs"), np.random.default_rng(2)
    content = []
    for blot in generator.integers(0, 256, (4096, 8, 8, 3), dtype=np.uint8):
        image, stream = (
            Image.fromarray(blot).resize((64, 64), Image.Resampling.BICUBIC),
            io.BytesIO(),
        )
        image.save(stream, "JPEG", quality=90)
        content.append(stream.getvalue())
    table = {"id": [f"r-{i}" for i in range(len(content))], "image": content}
    pq.write_table(pa.table(table), folder / "p.parquet")
    return open_source(folder / "p.parquet", Role.POOL, label_column="label"), content


class Decoding(Dataset[torch.Tensor]):
    """The same records for torch's loader."""

    def __init__(self, content: list[bytes]) -> None:
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def __getitem__(self, at: int) -> torch.Tensor:
        with Image.open(io.BytesIO(self._content[at])) as image:
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_scoring_pictures_waits_for_no_decoder(photographs, one_core):
    """Beside torch's loader with a process that decodes, and decoding and model in turns."""
    source, content = photographs
    spec = ModelSpec(name="tutorial_cnn", input_shape=(3, 64, 64), classes=10)
    model = ScoredModel(
        model=build_model(spec).eval(), task=Task.SINGLE_LABEL, classes=10, physical_batch=256
    )
    loader = DataLoader(Decoding(content), batch_size=256, num_workers=1, persistent_workers=True)
    (shard,) = shards_of(source, 1)

    def ours() -> None:
        for _, decoded in decoded_ahead(
            source, shard_batches(source, shard, ["image"], large=True)
        ):
            model.read(decoded)

    def in_turns() -> None:
        for batch in shard_batches(source, shard, ["image"], large=True):
            model.read(decoded_of(source, batch.table.column(0), rows=batch.numbers))

    def torchs() -> None:
        for records in loader:
            model.read(records)

    ways = {"dpal": ours, "in turns": in_turns, "torch's loader": torchs}
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    each = {name: round(1e6 * taken / len(content)) for name, taken in seconds.items()}
    print(f"data path: microseconds a picture that is scored {each}")  # noqa: T201
    assert seconds["dpal"] < 1.05 * seconds["torch's loader"]
