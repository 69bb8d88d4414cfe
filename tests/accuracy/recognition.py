"""How many copies of real records are recognised, and how many new records are taken for copies.

Constants for pictures and texts were chosen on the records whose ids hash to 0; they are measured
on the others. Those for feature vectors follow from single precision, and all records are measured.

    python -m tests.accuracy.recognition
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from dpal.data.likeness import KINDS, Described, Likeness
from dpal.data.sources import Content
from tests.conftest import shared_file
from tests.data.copies import (
    SAME_PICTURE,
    SAME_PIXELS,
    SAME_TEXT,
    SAME_VALUES,
    image_of,
    with_a_typo,
)
from tests.data.rates import Share

SALT = bytes(range(32))
COPIED = 3000  # records of each set of which copies are made
IMAGES = ["mnist", "usps", "notmnist", "cifar10", "bloodcells", "nih-chest"]
TEXTS = ["sst2", "goemotions", "snli"]
FEATURES = ["adult", "yeast", "scene"]
FILES = {
    "mnist": ["mnist-train", "mnist-test"],
    "cifar10": ["cifar10-train", "cifar10-test"],
    "notmnist": ["notmnist-10k"],
    "bloodcells": ["bloodcells-pbc"],
    "nih-chest": ["nih-cxr14-small"],
    "snli": ["snli-small"],
}


@dataclass
class Found:
    """What was found in one data set.

    Attributes:
      records: that are measured.
      telling: among them, those that are compared with others.
      repeated: records that have the same content as another, as they came.
      copies: by kind, how many are recognised as what they are copies of.
      telling_copies: the same of telling records alone.
      alarms: records that are only like another one, among those that are the same as none.
    """

    records: int
    telling: int
    repeated: int
    alarms: Share
    copies: dict[str, Share] = field(default_factory=dict)
    telling_copies: dict[str, Share] = field(default_factory=dict)


def column_of(name: str) -> tuple[Content, pa.Array]:
    """Records of a data set on which no constant was chosen."""
    content = Content.IMAGE if name in IMAGES else Content.TEXT
    content = Content.FEATURES if name in FEATURES else content
    tables = [pq.read_table(shared_file(f"{one}.parquet")) for one in FILES.get(name, [name])]
    names = [
        one for one in ("image", "features", "text_a", "text_b") if one in tables[0].schema.names
    ]
    table = pa.concat_tables([one.select(["id", *names]) for one in tables])
    if content is not Content.FEATURES:
        ids = table["id"].to_pylist()
        halves = [hashlib.sha256(f"half{one}".encode()).digest()[0] & 1 for one in ids]
        table = table.filter(pa.array(halves, pa.int8()).cast(pa.bool_()))
    table = table.combine_chunks()
    arrays = [table[one].chunk(0) for one in names]
    return content, pa.StructArray.from_arrays(
        arrays, names
    ) if content is Content.TEXT else arrays[0]


def kinds_of_copies(content: Content, seed: int = 1) -> Mapping[str, Callable[[Any], Any]]:
    """Ways to copy a record of this content."""
    draw = random.Random(seed)

    def one_text(change: Callable[[str], str], record: dict[str, str]) -> dict[str, str]:
        at = draw.choice(list(record))
        return {**record, at: change(record[at])}

    if content is Content.IMAGE:
        ways = {**SAME_PIXELS, **SAME_PICTURE}

        def one_image(way: Callable[[Image.Image], bytes], stored: bytes) -> bytes:
            return way(image_of(stored))

        return {name: partial(one_image, way) for name, way in ways.items()}
    if content is Content.TEXT:
        every = {
            name: lambda record, way=way: {key: way(one, draw) for key, one in record.items()}
            for name, way in SAME_TEXT.items()
        }
        return {
            **every,
            "one typo": lambda one: one_text(lambda text: with_a_typo(text, draw), one),
        }
    return SAME_VALUES


def measure(name: str, *, copied: int = COPIED) -> Found:
    """Makes copies of records and looks them up; looks up each half of the records in the other."""
    content, column = column_of(name)
    kind = KINDS[content]

    def described(values: pa.Array) -> Described:
        parts = [
            kind.describe(values.slice(start, 1024), rows=None, salt=SALT)
            for start in range(0, len(values), 1024)
        ]
        return Described(
            [one for part in parts for one in part.contents],
            np.concatenate([part.sketches for part in parts]),
            np.concatenate([part.telling for part in parts]),
        )

    known = described(column)
    keys = np.array([hash(one) for one in known.contents])
    unique, counts = np.unique(keys, return_counts=True)
    found = Found(
        records=len(keys),
        telling=int(known.telling.sum()),
        repeated=int(np.isin(keys, unique[counts > 1]).sum()),
        alarms=_alarms(kind, known, keys),
    )
    chosen = np.random.default_rng(7).permutation(len(keys))[:copied]
    originals = column.take(pa.array(chosen)).to_pylist()
    for way, copy in kinds_of_copies(content).items():
        copies = described(pa.array([copy(one) for one in originals], column.type))
        own = np.array([hash(one) for one in copies.contents])
        at = kind.find(known.sketches, copies.sketches)
        hit = (own == keys[chosen]) | ((at >= 0) & (keys[at] == keys[chosen]))
        telling = known.telling[chosen]
        found.copies[way] = Share(int(hit.sum()), hit.size)
        found.telling_copies[way] = Share(int(hit[telling].sum()), int(telling.sum()))
    return found


def _alarms(kind: Likeness, known: Described, keys: NDArray[np.int64]) -> Share:
    """Each half as if it came after the other."""
    first = np.random.default_rng(8).random(keys.size) < 0.5
    alarms = new = 0
    for there in (first, ~first):
        here = ~there & ~np.isin(keys, keys[there])
        found = kind.find(known.sketches[there], known.sketches[here])
        alarms, new = alarms + int((found >= 0).sum()), new + int(here.sum())
    return Share(alarms, new)


def later_ones(train: str, test: str) -> Share:
    """Records of a test part that are like one of the training part, at full size."""
    described = []
    for name in (train, test):
        file = pq.ParquetFile(shared_file(f"{name}.parquet"))
        described += [
            [
                KINDS[Content.IMAGE].describe(batch.column(0), rows=None, salt=SALT)
                for batch in file.iter_batches(1024, columns=["image"])
            ]
        ]
    there, here = (np.concatenate([one.sketches for one in parts]) for parts in described)
    old = {one for part in described[0] for one in part.contents}
    new = np.array([one not in old for part in described[1] for one in part.contents])
    found = KINDS[Content.IMAGE].find(there, here[new])
    return Share(int((found >= 0).sum()), int(new.sum()))


def main() -> None:
    """Prints what docs/recognition.md says."""
    for name in [*IMAGES, *TEXTS, *FEATURES]:
        found = measure(name)
        print(
            f"\n{name}: {found.records:,} records, {found.telling:,} telling, {found.repeated:,} "
            f"repeated\n  alarms {found.alarms} at most {found.alarms.most:.1e}"
        )
        for way, share in found.copies.items():
            print(f"  {way:24} {share}, of telling ones {found.telling_copies[way]}", flush=True)
    for train, test in (("mnist-train", "mnist-test"), ("cifar10-train", "cifar10-test")):
        share = later_ones(train, test)
        print(f"\n{test} after {train}: alarms {share} at most {share.most:.1e}")


if __name__ == "__main__":
    main()
