"""Private, public and polluted pools out of MNIST, notMNIST and CIFAR-10 in grey.

    python -m tests.accuracy.public_pools --data DIR --to data

Writes mnist-private.parquet (the first 40,000 training digits), mnist-public.parquet (the other
20,000), mnist-test.parquet, and polluted-notmnist.parquet and polluted-cifar.parquet (16,000 of
the public digits with 4,000 irrelevant pictures among them; `source` says which).
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

PRIVATE, POLLUTION = 40_000, 4_000
_COLUMNS = ["id", "image", "label"]


def write_pools(data: Path, to: Path) -> None:
    """Writes all five files.

    Args:
      data: folder of the Parquet files that they are made of.
      to: where to write.
    """
    digits = pq.read_table(data / "mnist-train.parquet").select(_COLUMNS)
    private, public = digits.slice(0, PRIVATE), digits.slice(PRIVATE)
    to.mkdir(parents=True, exist_ok=True)
    pq.write_table(private, to / "mnist-private.parquet", row_group_size=5000)
    pq.write_table(public, to / "mnist-public.parquet", row_group_size=5000)
    test = pq.read_table(data / "mnist-test.parquet").select(_COLUMNS)
    pq.write_table(test, to / "mnist-test.parquet")
    letters = pq.read_table(data / "notmnist-10k.parquet").select(_COLUMNS)
    pictures = pq.read_table(data / "cifar10-train.parquet").select(_COLUMNS)
    _write_polluted(public, letters, "notmnist", to)
    _write_polluted(public, _grey(pictures.slice(0, POLLUTION)), "cifar", to)


def _write_polluted(public: pa.Table, others: pa.Table, name: str, to: Path) -> None:
    relevant, irrelevant = public.slice(0, 16_000), others.slice(0, POLLUTION)
    source = ["mnist"] * relevant.num_rows + [name] * irrelevant.num_rows
    bare = [one.replace_schema_metadata(None) for one in (relevant, irrelevant)]
    mixed = pa.concat_tables(bare).append_column("source", pa.array(source))
    order = np.random.default_rng(0).permutation(mixed.num_rows)
    names = {b"class_names": public.schema.metadata[b"class_names"]}
    shuffled = mixed.take(pa.array(order)).replace_schema_metadata(names)
    pq.write_table(shuffled, to / f"polluted-{name}.parquet", row_group_size=5000)


def _grey(table: pa.Table) -> pa.Table:
    """Colour pictures of 32 pixels as grey ones of 28, their middle."""
    images = []
    for encoded in table["image"].to_pylist():
        stream = io.BytesIO()
        Image.open(io.BytesIO(encoded)).convert("L").crop((2, 2, 30, 30)).save(stream, "PNG")
        images.append(stream.getvalue())
    columns = {"id": table["id"], "image": pa.array(images, pa.binary()), "label": table["label"]}
    return pa.table(columns)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("data"))
    given = parser.parse_args()
    write_pools(given.data, given.to)


if __name__ == "__main__":
    main()
