"""Private, public, tuning and test records out of four real sets with several labels.

    python -m tests.accuracy.voting_pools --data DIR --to data

Writes votes-NAME-private.parquet, -public, -tuning and -test for yeast, scene, chest (NIH chest
X-rays, split by patient) and emotions (GoEmotions, texts as 128 directions of words and pairs
of words that were found on the public texts alone).
Records are taken in a fixed, public order. Public records are taken from the part for testing
where the training part is small, else from the training part.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

WIDTH = 128  # of texts
SETS = ("yeast", "scene", "chest", "emotions")
_TUNING = 150


def write_pools(data: Path, to: Path, names: tuple[str, ...] = SETS) -> None:
    """Writes four files for each set.

    Args:
      data: folder of the Parquet files that they are made of.
      to: where to write.
      names: which sets.
    """
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        parts = _PARTS[name](data)
        for part, table in parts.items():
            place = to / f"votes-{name}-{part}.parquet"
            pq.write_table(table, place, row_group_size=2000, compression="zstd")


def _tested(data: Path, name: str, public: int) -> dict[str, pa.Table]:
    """All training records are private; of the others some are public, the rest tests."""
    table = pq.read_table(data / f"{name}.parquet").select(["id", "features", "label", "split"])
    train = np.asarray(table["split"].to_numpy(zero_copy_only=False) == "train")
    test = np.flatnonzero(~train)
    test = test[np.random.default_rng(0).permutation(test.size)]
    cuts = np.split(test, [_TUNING, _TUNING + public])
    kept = table.drop_columns(["split"])
    rows = dict(zip(("tuning", "public", "test"), cuts, strict=True))
    return {part: kept.take(np.sort(at)) for part, at in rows.items()} | {
        "private": kept.filter(pa.array(train))
    }


def _chest(data: Path) -> dict[str, pa.Table]:
    """Patients are on one side only."""
    table = pq.read_table(data / "nih-cxr14-small.parquet").select(
        ["id", "image", "label", "split", "group"]
    )
    split = table["split"].to_numpy(zero_copy_only=False)
    side = np.array([_hash(one) for one in table["group"].to_pylist()])
    train = split == "train"
    public = train & (side < 0.3)
    tuning = train & (side >= 0.3) & (side < 0.4)
    masks = {
        "private": train & (side >= 0.4),
        "public": public,
        "tuning": tuning,
        "test": split == "test",
    }
    kept = table.drop_columns(["split"])
    return {part: kept.filter(pa.array(mask)) for part, mask in masks.items()}


def _emotions(data: Path) -> dict[str, pa.Table]:
    table = pq.read_table(data / "goemotions.parquet").select(["id", "text_a", "label", "split"])
    train = np.flatnonzero(table["split"].to_numpy(zero_copy_only=False) == "train")
    test = np.flatnonzero(table["split"].to_numpy(zero_copy_only=False) == "test")
    cuts = np.split(train, [40_000, 40_000 + 836])
    rows = dict(zip(("private", "tuning", "public"), cuts, strict=True)) | {"test": test}
    public = table.take(rows["public"])["text_a"].to_pylist()
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True).fit(public)
    directions = TruncatedSVD(WIDTH, random_state=0).fit(words.transform(public))
    parts = {}
    for part, at in rows.items():
        some = table.take(at)
        seen = directions.transform(words.transform(some["text_a"].to_pylist()))
        length = np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-9)
        features = (4 * seen / length).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), WIDTH)
        made = pa.table({"id": some["id"], "features": column, "label": some["label"]})
        names = {b"class_names": table.schema.metadata[b"class_names"]}
        parts[part] = made.replace_schema_metadata(names)
    return parts


def _hash(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


_PARTS = {
    "yeast": lambda data: _tested(data, "yeast", 450),
    "scene": lambda data: _tested(data, "scene", 600),
    "chest": _chest,
    "emotions": _emotions,
}


def main() -> None:
    """Writes the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("data"))
    asked = parser.parse_args()
    write_pools(asked.data, asked.to)


if __name__ == "__main__":
    main()
