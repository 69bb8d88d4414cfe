"""What an importer is, the list of them, and the parts in which they hand records over.

An importer reads one kind of source in one pass and forgets every part that it handed over, so that
memory does not grow with the source. What a record is made of is decided by that record and by what
a person declared, never by other records; what has to be known of all of them (names of classes,
how columns become numbers) is decided afterwards, by held-out records alone (`write_pool`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from dpal.data.importing.settings import ImportSettings
from dpal.data.sources import Content
from dpal.errors import DataError, ParameterError
from dpal.plugins import load_plugins

PART = 256  # records that are handed over at a time
TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class Several:
    """A label that is any subset of names.

    Attributes:
      has: names that the record has.
      unknown: names of which nobody knows.
    """

    has: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


RawLabel = str | Several | None  # a class by name; a subset of names; none was given


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive records of a source.

    Attributes:
      ids: (n,) unique names.
      labels: (n,) as the source gives them.
      splits: (n,) parts of the source, in its own words; None where it has none.
      groups: (n,) what belongs together; None where nobody asked.
      records: n rows: pictures (one column `image` of PNG or JPEG files), texts (`text_a`, possibly
        `text_b`), features (a list `features` of float32), or cells of a table, whose columns are
        made numbers later.
      dropped: why rows are missing here, and how many.
      noted: what else its owner should know of the rows, and how many.
      aside: records that nobody asked for (`part` and `only` of the settings), by the part that
        the source says, in its own words; "" where it says none.
    """

    ids: Sequence[str]
    labels: Sequence[RawLabel]
    splits: Sequence[str | None]
    groups: Sequence[str | None]
    records: pa.RecordBatch
    dropped: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    aside: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {len(self.ids), len(self.labels), len(self.splits), len(self.groups)}
        if counts != {self.records.num_rows}:
            raise ParameterError("a part has as many ids, labels, splits and groups as records")


@dataclass(frozen=True, kw_only=True)
class OpenedSource:
    """A source that was looked at, and not read yet.

    Attributes:
      content: what a record is; None for cells of a table.
      parts: reads it once.
      classes: names of classes or labels that the source declares, in order; empty if it does not.
      has_splits: whether it says itself which records are held out.
      named: whether it names records itself; otherwise names are made of its own and of rows.
      id: of a table, the column of those names; None where it has none.
      columns: of a table, by which rows may be chosen; empty for other sources.
      left_out: columns or fields that are no features, and why.
      about: what was found, in words.
    """

    content: Content | None
    parts: Callable[[], Iterator[Part]]
    classes: tuple[str, ...] = ()
    has_splits: bool = False
    named: bool = False
    id: str | None = None
    columns: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    about: str = ""


Reads = Callable[[Path], bool]
Opens = Callable[[Path, ImportSettings], OpenedSource]


@dataclass(frozen=True, kw_only=True)
class Importer:
    """One kind of source.

    Attributes:
      name: in messages and in what an imported file says of itself.
      about: what it reads, for people.
      reads: whether a place looks like one; reads no record.
      opens: looks at it; a function, or its dotted name, which is imported when it is needed.
    """

    name: str
    about: str
    reads: Reads
    opens: Opens | str

    def open(self, place: Path, settings: ImportSettings) -> OpenedSource:
        """Looks at a source.

        Raises:
          DataError: it is not what it seemed, or lacks what the settings name.
        """
        if not isinstance(self.opens, str):
            return self.opens(place, settings)
        module, _, name = self.opens.rpartition(".")
        opened: OpenedSource = getattr(import_module(module), name)(place, settings)
        return opened


def _ends(*endings: str) -> Reads:
    return lambda place: place.is_file() and place.name.lower().endswith(endings)


def _has(*patterns: str) -> Reads:
    return lambda place: (
        place.is_dir() and all(next(place.glob(pattern), None) is not None for pattern in patterns)
    )


def idx_pictures(place: Path) -> list[Path]:
    """The IDX files of pictures in a folder, or a file that is one."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [path for path in files if _IDX.fullmatch(path.name) and path.is_file()]


def _is_cifar(place: Path) -> bool:
    if place.is_file():
        return place.name.startswith(("data_batch", "test_batch"))
    cifar100 = (place / "train").is_file() and (place / "meta").is_file()
    return (
        cifar100 or _has("data_batch_*")(place) or _has("train.bin", "fine_label_names.txt")(place)
    )


_HERE = "dpal.data.importing"
_IDX = re.compile(r".*images[-.]idx3-ubyte(\.gz)?")
# In the order in which they are asked; the first that reads a place is taken.
BUILT_IN = (
    Importer(
        name="table",
        about="CSV or TSV: columns of a table, texts, or names of pictures with labels",
        reads=_ends(".csv", ".tsv", ".csv.gz", ".tsv.gz", ".data", ".txt"),
        opens=f"{_HERE}.csv_tables.open_csv",
    ),
    Importer(
        name="parquet",
        about="Parquet: one column a feature, texts, pictures of Hugging Face, or a pool",
        reads=_ends(".parquet"),
        opens=f"{_HERE}.parquet_tables.open_parquet",
    ),
    Importer(
        name="jsonl",
        about="JSON lines: one object a record",
        reads=_ends(".jsonl", ".ndjson", ".jsonlines"),
        opens=f"{_HERE}.json_lines.open_jsonl",
    ),
    Importer(
        name="numpy",
        about=".npz or .npy: arrays of pictures or features, and of labels",
        reads=_ends(".npz", ".npy"),
        opens=f"{_HERE}.arrays.open_arrays",
    ),
    Importer(
        name="cifar",
        about="CIFAR-10 or CIFAR-100: the published pickles or binaries",
        reads=_is_cifar,
        opens=f"{_HERE}.cifar.open_cifar",
    ),
    Importer(
        name="idx",
        about="IDX files: MNIST, Fashion-MNIST, EMNIST, QMNIST as published",
        reads=lambda place: bool(idx_pictures(place)),
        opens=f"{_HERE}.idx_files.open_idx",
    ),
    Importer(
        name="svhn",
        about="SVHN: train_32x32.mat and test_32x32.mat, or one such file",
        reads=lambda place: (
            _has("train_32x32.mat", "test_32x32.mat")(place) or _ends("_32x32.mat")(place)
        ),
        opens=f"{_HERE}.svhn.open_svhn",
    ),
    Importer(
        name="voc",
        about="Pascal VOC: Annotations/*.xml and JPEGImages",
        reads=_has("Annotations/*.xml"),
        opens=f"{_HERE}.voc.open_voc",
    ),
    Importer(
        name="mimic",
        about="MIMIC-CXR-JPG: its pictures, and its tables of parts, of views and of labels",
        reads=_has(
            "mimic-cxr-*-split.csv*", "mimic-cxr-*-metadata.csv*", "mimic-cxr-*-chexpert.csv*"
        ),
        opens=f"{_HERE}.mimic.open_mimic",
    ),
    Importer(
        name="pictures",
        about="a folder of pictures or DICOM files: one folder a class, below train and test if it "
        "has them",
        reads=lambda place: place.is_dir(),
        opens=f"{_HERE}.picture_folders.open_folder",
    ),
)
IMPORTERS = {importer.name: importer for importer in BUILT_IN}


# What people have that is read once it was saved otherwise.
_INSTEAD = {
    (".xlsx", ".xls", ".xlsm", ".ods"): "save its sheet as CSV in UTF-8",
    (".json",): "write one JSON object a line, into a file whose name ends in .jsonl",
    (".png", ".jpg", ".jpeg", ".jfif", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm"): (
        "put it into a folder, and name that"
    ),
    (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar"): "unpack it, and name what was in it",
}


def register_importer(importer: Importer) -> Importer:
    """Makes a kind of source one that is imported; it is asked before those that come with dpal.

    Raises:
      ParameterError: another importer has its name.
    """
    if importer.name in IMPORTERS:
        if IMPORTERS[importer.name] is importer:
            return importer
        raise ParameterError(f"importer {importer.name} is another one's name")
    others = dict(IMPORTERS)
    IMPORTERS.clear()
    IMPORTERS.update({importer.name: importer, **others})
    return importer


def importer_of(place: Path) -> Importer:
    """The importer that reads a place.

    Raises:
      DataError: there is nothing, or no importer reads it.
    """
    if not place.exists():
        raise DataError(f"{place} does not exist; check the path")
    load_plugins()
    for importer in IMPORTERS.values():
        if importer.reads(place):
            return importer
    for endings, remedy in _INSTEAD.items():
        if place.name.lower().endswith(endings):
            raise DataError(f"{place} is of no kind that is read; {remedy}")
    read = "; ".join(importer.about for importer in IMPORTERS.values())
    raise DataError(f"{place} is of no kind that is read; these are: {read}")
