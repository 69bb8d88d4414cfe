"""Records on disk: read ahead, nobody else's to see, gone with the process, no memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dpal.data.encoded_records import EncodedRecords, ReadAhead
from dpal.data.labeled_records import load_labeled
from dpal.errors import StorageError
from tests.data.image_pools import ROWS, images, labeled_pool, on_disk, picture


@pytest.fixture(scope="module")
def image_pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return labeled_pool(folder, images(folder / "p.parquet", 2600), ROWS)


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_parts_are_what_a_tensor_would_give(image_pool, tmp_path, size):
    """In order, out of order, twice, and of another size than was prepared."""
    whole = load_labeled(*image_pool).inputs[:]
    rows = np.array([4, 4, 0, 8, 2, 7, 1])
    with on_disk(image_pool, tmp_path) as labeled:
        batch = labeled.batch(rows)
        assert isinstance(batch, ReadAhead)
        batch.prepare(2)
        parts = [batch[start : start + size] for start in range(0, len(batch), size)]
        assert torch.equal(torch.cat(parts), whole[rows])
        for part in (slice(5, 7), slice(0, 2), slice(0, 2), slice(3, 3), slice(None, None, 2)):
            assert torch.equal(batch[part], whole[rows][part])


def test_the_next_part_and_the_next_batch_are_decoded_ahead_and_no_more(image_pool, tmp_path):
    asked: list[list[int]] = []
    with on_disk(image_pool, tmp_path) as labeled:
        inputs: Any = labeled.inputs
        begin = inputs.begin

        def told(rows):
            asked.append(rows.tolist())
            return begin(rows)

        inputs.begin = told
        drawn = [np.array([0, 1, 2, 3, 4]), np.array([5, 6, 7]), np.array([], dtype=int)]
        batches = labeled.batches(iter(drawn), part=2)
        rows, first = next(batches)
        assert rows.tolist() == [0, 1, 2, 3, 4]
        assert asked == [[0, 1], [5, 6]]
        first[0:2]
        assert asked[2:] == [[2, 3]]
        first[2:4], first[4:5]
        assert asked[3:] == [[4]]
        rows, second = next(batches)
        second[0:2]
        assert asked[4:] == [[7]]
        rest = list(batches)
        assert [rows.size for rows, _ in rest] == [0]


def test_nothing_is_left_in_a_folder_of_its_owner_alone(image_pool, tmp_path):
    """No name to find, also while the records are in use."""
    with on_disk(image_pool, tmp_path) as labeled:
        scratch = tmp_path / "scratch"
        assert scratch.stat().st_mode & 0o777 == 0o700
        assert list(scratch.iterdir()) == []
        assert len(labeled.inputs[:]) == len(ROWS)
    with pytest.raises(RuntimeError, match="shutdown"):
        labeled.inputs[:]


def test_a_folder_that_cannot_be_written_is_said(image_pool, tmp_path):
    (tmp_path / "scratch").write_text("a file")
    with pytest.raises(StorageError, match=r"scratch .*make room"):
        on_disk(image_pool, tmp_path)


KILLED = """
import sys
from pathlib import Path
from dpal.data.sources import Role, open_source
from dpal.data.labeled_records import load_labeled
pool, state, scratch = map(Path, sys.argv[1:])
labeled = load_labeled(open_source(pool, Role.POOL, label_column="label"), state,
                       cache_mib=0, scratch=scratch)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_behind(image_pool, tmp_path):
    source, state = image_pool
    scratch = tmp_path / "scratch"
    arguments = [str(source.paths[0]), str(state), str(scratch)]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == b"ready\n"
            maps = Path(f"/proc/{run.pid}/maps").read_text(encoding="utf-8").splitlines()
            assert any(str(scratch) in one and one.endswith("(deleted)") for one in maps)
        finally:
            os.kill(run.pid, signal.SIGKILL)
    assert list(scratch.iterdir()) == []


MEASURED = """
import sys, gc
from pathlib import Path
import numpy as np
from dpal.data.sources import Role, open_source
from dpal.data.labeled_records import load_labeled
pool, state, scratch = map(Path, sys.argv[1:])

def anonymous():
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

source = open_source(pool, Role.POOL, label_column="label")
with load_labeled(source, state, cache_mib=0, scratch=scratch) as labeled:
    for start in range(0, len(labeled.inputs), 256):  # once: what libraries take on first use
        labeled.batch(np.arange(start, min(start + 256, len(labeled.inputs))))[:]
        if start > 512:
            break
before = anonymous()
with load_labeled(source, state, cache_mib=0, scratch=scratch) as labeled:
    rows = np.random.default_rng(0).permutation(len(labeled.inputs))
    batch = labeled.batch(rows)
    for start in range(0, len(rows), 256):
        batch[start : start + 256]
    print(anonymous() - before, len(rows))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_labels(tmp_path):
    """60,000 images, 47 MB decoded and 12 MB encoded: less than 8 MB more are held."""
    generator = np.random.default_rng(0)
    few = [picture(i, side=28) for i in range(200)]
    rows = 60_000
    picked = generator.integers(0, len(few), rows)
    table = {"id": [f"r-{i:05d}" for i in range(rows)], "image": [few[i] for i in picked]}
    pq.write_table(pa.table({**table, "label": picked % 10}), tmp_path / "p.parquet")
    source, state = labeled_pool(tmp_path, tmp_path / "p.parquet", range(rows))
    arguments = [str(source.paths[0]), str(state), str(tmp_path / "scratch")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True
    )
    grown, count = map(int, done.stdout.split())
    assert count == rows
    print(f"{grown / 1024:.1f} MiB more for {rows:,} records")  # noqa: T201
    assert grown < 8 * 1024


def test_the_next_part_is_decoded_while_something_else_computes(tmp_path):
    """Not only queued: the decoder has run before anybody asks for its result."""
    decoded = {row: threading.Event() for row in range(6)}

    def decoder(values: pa.Array) -> torch.Tensor:
        lengths = [len(one.as_py()) for one in values]
        for row in lengths:
            decoded[row].set()
        return torch.tensor(lengths)[:, None]

    records = EncodedRecords(
        [pa.array([b"x" * row for row in range(6)])],
        pa.binary(),
        decoder=decoder,
        count=6,
        like=torch.zeros(1, 1, dtype=torch.int64),
        scratch=tmp_path,
        workers=2,
    )
    batch = records.batch(np.array([5, 0, 3, 1]))
    assert batch[:2].tolist() == [[5], [0]]
    assert all(decoded[row].wait(10) for row in (3, 1))
    assert not decoded[2].is_set()
    assert batch[2:].tolist() == [[3], [1]]
    records.close()
