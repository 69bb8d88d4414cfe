"""Public data sets as a stranger would bring them: Parquet, CSV, a folder of pictures, `.npz`.

Of each set the test part stays away from everything until predictions are asked for; what is
imported is the training part, or as much of it as keeps a run below two minutes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from tests.conftest import SHARED

Numbers = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class StudySet:
    """A data set of which a model is made.

    Attributes:
      name: of the set.
      files: of `shared/data`; parts are told apart by their column `split`.
      rows: training records that are imported, at most: the first ones, as files are shuffled.
      judged: test records, at most.
      forms: in which it is brought.
    """

    name: str
    files: tuple[str, ...]
    rows: int = 4000
    judged: int = 1000
    forms: tuple[str, ...] = ("parquet",)

    def part(self, split: str) -> pa.Table:
        """The records of a part, with their id, label and content."""
        tables = [pq.read_table(SHARED / f"{name}.parquet") for name in self.files]
        parts = [table.filter(pc.equal(table["split"], split)) for table in tables]
        part = max(parts, key=lambda each: each.num_rows)
        count = self.rows if split == "train" else self.judged
        if part.num_rows > count:  # some sources are sorted by label
            order = np.random.default_rng(0).permutation(part.num_rows)[:count]
            part = part.take(np.sort(order))
        return part.drop_columns(["split"])

    @cached_property
    def train(self) -> pa.Table:
        """What is imported."""
        return self.part("train")

    @cached_property
    def test(self) -> pa.Table:
        """What judges."""
        return self.part("test")

    @property
    def classes(self) -> list[str]:
        """Names of classes or labels."""
        names: list[str] = json.loads((self.test.schema.metadata or {})[b"class_names"])
        return names

    @property
    def has_several(self) -> bool:
        """Whether a record has any number of labels."""
        return pa.types.is_list(self.test.schema.field("label").type)


SETS = {
    each.name: each
    for each in (
        StudySet(name="adult", files=("adult",), rows=10_000, judged=16_281,
                 forms=("parquet", "csv")),
        StudySet(name="scene", files=("scene",), forms=("parquet", "csv")),
        StudySet(name="yeast", files=("yeast",), forms=("parquet", "npz")),
        StudySet(name="mnist", files=("mnist-train", "mnist-test"), forms=("parquet", "npz")),
        StudySet(name="usps", files=("usps",), forms=("parquet", "folder")),
        StudySet(name="notmnist", files=("notmnist-10k",), forms=("parquet", "folder")),
        StudySet(name="cifar10", files=("cifar10-train", "cifar10-test"), forms=("parquet", "npz")),
        StudySet(name="bloodcells", files=("bloodcells-pbc",), forms=("parquet", "folder")),
        StudySet(name="nih-cxr14", files=("nih-cxr14-small",)),
        StudySet(name="sst2", files=("sst2",), forms=("parquet", "csv")),
        StudySet(name="snli", files=("snli-small",)),
        StudySet(name="goemotions", files=("goemotions",)),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Files as somebody has them.

    Attributes:
      train, test: files or folders; the test part's has no labels.
      options: of `dpal import`.
      ids: names of the test part's records in predictions; None where they keep their order.
    """

    train: Path
    test: Path
    options: tuple[str, ...]
    ids: list[str] | None


def bring(of: StudySet, form: str, folder: Path) -> Brought:
    """Writes a set in a form."""
    return _FORMS[form](of, folder)


def pixels(table: pa.Table) -> Numbers:
    """Pictures as one array, (n, height, width) or with 3 channels at the end."""
    opened = (Image.open(io.BytesIO(content)) for content in table["image"].to_pylist())
    return np.stack([np.asarray(each) for each in opened])


def _parquet(of: StudySet, folder: Path) -> Brought:
    # Each set has more columns than its content; a stranger's file of this kind has these.
    wanted = {"id", "image", "features", "text_a", "text_b", "label"}
    kept = [name for name in of.train.schema.names if name in wanted]
    pq.write_table(of.train.select(kept), folder / "mine.parquet")
    unlabeled = [name for name in kept if name != "label"]
    pq.write_table(of.test.select(unlabeled), folder / "new.parquet")
    return Brought(
        train=folder / "mine.parquet",
        test=folder / "new.parquet",
        options=(),
        ids=of.test["id"].to_pylist(),
    )


def _csv(of: StudySet, folder: Path) -> Brought:
    labels = of.classes if of.has_several else ["label"]
    for name, table in (("mine", of.train), ("new", of.test)):
        columns: dict[str, list[Any]] = {"id": table["id"].to_pylist()}
        own = set(table.schema.names) - {"id", "image", "features", "label", "source_split"}
        for each in (name for name in table.schema.names if name in own):
            columns[each] = table[each].to_pylist()
        if len(columns) == 1:  # nothing but a list of numbers
            values = np.stack(table["features"].to_numpy())
            columns |= {f"f{k}": column.tolist() for k, column in enumerate(values.T)}
        if name == "mine":
            given = table["label"].to_pylist()
            answers = (
                zip(*given, strict=True) if of.has_several else [[of.classes[k] for k in given]]
            )
            columns |= dict(zip(labels, map(list, answers), strict=True))
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    options = ("--label", ",".join(labels)) if of.has_several else ()
    return Brought(
        train=folder / "mine.csv",
        test=folder / "new.csv",
        options=options,
        ids=of.test["id"].to_pylist(),
    )


def _folder(of: StudySet, folder: Path) -> Brought:
    (folder / "new").mkdir()
    for row, (content, label) in enumerate(
        zip(of.train["image"].to_pylist(), of.train["label"].to_pylist(), strict=True)
    ):
        place = folder / "mine" / of.classes[label]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{row}{_ending(content)}").write_bytes(content)
    ids = []
    for row, content in enumerate(of.test["image"].to_pylist()):
        ids.append(f"{row}{_ending(content)}")
        (folder / "new" / ids[-1]).write_bytes(content)
    return Brought(train=folder / "mine", test=folder / "new", options=(), ids=ids)


def _ending(content: bytes) -> str:
    return ".png" if content.startswith(b"\x89PNG") else ".jpg"


def _npz(of: StudySet, folder: Path) -> Brought:
    if "image" in of.train.schema.names:
        name, read = "images", pixels
    else:
        name, read = "features", lambda table: np.stack(table["features"].to_numpy())
    labels = np.array(of.train["label"].to_pylist())
    mine: dict[str, Any] = {name: read(of.train), "labels": labels}
    new: dict[str, Any] = {name: read(of.test)}
    np.savez(folder / "mine.npz", **mine)
    np.savez(folder / "new.npz", **new)
    return Brought(train=folder / "mine.npz", test=folder / "new.npz", options=(), ids=None)


_FORMS: dict[str, Callable[[StudySet, Path], Brought]] = {
    "parquet": _parquet,
    "csv": _csv,
    "folder": _folder,
    "npz": _npz,
}
