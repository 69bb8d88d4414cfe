"""Sources are read some records at a time: what comes out is the same, and memory stays flat."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.importing import write_pool
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError
from dpal.files.atomic_writes import write_private_parquet

RNG = np.random.default_rng(3)
ROWS, WIDTH = 80_000, 256
_WHOLE = ROWS * WIDTH * 4


def features(target: Path, place: Path) -> np.ndarray:
    """What became of the records, in their order."""
    import_source(place, target, ImportSettings(held_out=0.4))
    table = pq.read_table(target)
    assert table["id"].to_pylist() == [f"a-{number}" for number in range(table.num_rows)]
    return np.stack(table["features"].to_numpy())


@pytest.mark.parametrize("order", ["C", "F"])
def test_features_of_many_parts_are_those_of_the_array(tmp_path, order):
    values = np.array(RNG.normal(size=(5000, 300)), dtype=np.float32, order=order)
    np.savez(tmp_path / "a.npz", x=values, y=np.arange(5000) % 3)
    assert np.array_equal(features(tmp_path / "pool.parquet", tmp_path / "a.npz"), values)
    labels = pq.read_table(tmp_path / "pool.parquet")["label"].to_pylist()
    assert labels == [number % 3 for number in range(5000)]


def test_an_array_by_itself_is_read_in_parts_too(tmp_path):
    """A `.npy` has no labels, and so is only read for predictions."""
    values = RNG.normal(size=(3000, 400)).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "b.npz", x=values[:99], y=np.arange(99) % 2)
    import_source(tmp_path / "b.npz", tmp_path / "b.parquet", ImportSettings(held_out=0.4))
    like = recipe_in(tmp_path / "b.parquet")
    import_source(tmp_path / "a.npy", tmp_path / "a.parquet", ImportSettings(whole=True), like=like)
    stored = pq.read_table(tmp_path / "a.parquet")["features"].to_numpy()
    assert np.array_equal(np.stack(stored), values)


def test_an_array_that_is_cut_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", RNG.normal(size=(3000, 400)))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"a\.npy"):
        import_source(tmp_path / "a.npy", tmp_path / "a.parquet", ImportSettings(held_out=0.4))
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.slow
def test_neither_the_source_nor_what_was_read_of_it_is_held_as_a_whole(tmp_path, monkeypatch):
    np.savez(
        tmp_path / "a.npz",
        x=RNG.random((ROWS, WIDTH), dtype=np.float32),
        y=np.arange(ROWS) % 2,
    )
    held = []

    def watched(path, schema, batches):
        def sampled():
            for batch in batches():
                held.append(pa.total_allocated_bytes())
                yield batch

        return write(path, schema, sampled)

    np.savez(tmp_path / "few.npz", x=np.eye(9, dtype=np.float32), y=np.arange(9) % 2)
    import_source(tmp_path / "few.npz", tmp_path / "f.parquet", ImportSettings(held_out=0.4))
    # What modules hold that are imported on first use is not what is measured.
    write = write_private_parquet
    monkeypatch.setattr(write_pool, "write_private_parquet", watched)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        import_source(tmp_path / "a.npz", tmp_path / "p.parquet", ImportSettings(held_out=0.4))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < _WHOLE / 3
    assert len(held) > 10
    assert max(held) - before < _WHOLE / 3  # some batches, and not all that were read before
