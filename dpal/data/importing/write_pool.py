"""From a source to one Parquet file: records, labels as numbers, what is held out.

The source is read once, into a file beside the target; what has to be known of all records is then
known of those that are held out, and the target is written. Memory holds names as hashes, and what
has to be known; not the source.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.data.class_names import KEY as CLASS_NAMES
from dpal.data.importing.columns import ColumnReader, TableEncoding
from dpal.data.importing.importers import (
    TEST,
    TRAIN,
    OpenedSource,
    Part,
    Several,
    importer_of,
)  # fmt: skip
from dpal.data.importing.parts import drawn_part, part_of
from dpal.data.importing.recipe import (
    DECIDED_BY,
    NAMED,
    RECIPE,
    Deciders,
    ImportRecipe,
    content_hashes,
    decided_by,
)
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.label_columns import stored_type
from dpal.data.parquet import schema_of
from dpal.data.pool_files import visible
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.files.atomic_writes import workspace, write_private_parquet, writing
from dpal.labels import UNKNOWN, Task

_NO_PART = "rows of no part that is known (train, test, validation ...)"
NO_LABEL = "records without a label"
_NEW_LABEL = "records of a class that no held-out record has"
_NEW_NAMES = "labels that no held-out record has, of records that stay with their others"
_FEW_CLASSES = 10  # up to which held-out records may nearly all differ in their label
_GROUP = 4096  # rows written at a time, but for pictures


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What was found, and what was left out. It counts private records: for their owner alone.

    Attributes:
      importer: the kind of source.
      about: what was found, in words.
      content, task: what a record and its label are.
      classes: names in class order.
      rows: records written, by part.
      counts: records of each class or label, by part.
      unknown: labels among several that are not known.
      unlabeled: records written without a label.
      dropped: records left out, by reason.
      noted: what else was done to records, or is odd about them, and how often.
      unread: of columns of numbers, cells that are given and none, which count as missing.
      left_out: columns that became no feature, and why.
      features: how many features a record of a table has; 0 for others.
      grouped: whether records belong to groups.
      told: whether the numbers by which columns are encoded may tell of records in the file.
    """

    importer: str
    about: str
    content: Content
    task: Task
    classes: tuple[str, ...]
    rows: Mapping[str, int]
    counts: Mapping[str, Sequence[int]]
    unknown: int
    unlabeled: int
    dropped: Mapping[str, int]
    noted: Mapping[str, int]
    unread: Mapping[str, int]
    left_out: Mapping[str, str]
    features: int
    grouped: bool
    told: bool


def import_source(
    place: Path,
    target: Path,
    settings: ImportSettings,
    *,
    like: ImportRecipe | None = None,
    deciders: Deciders | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> ImportReport:
    """Imports a source into one Parquet file.

    Args:
      place: file or folder.
      target: the file to write; it is written whole or not at all.
      settings: what a person says of it.
      like: an earlier import, whose classes and columns hold here, too; then nothing is held out
        unless the source says so.
      deciders: the records that decided that; None where nobody knows them, and then they may be
        among those that are imported, for all that the file can say.
      on_rows: told how many more records were read.

    Raises:
      DataError: the source cannot be read, has no label to learn, or nothing says what is held out.
      StorageError: the target cannot be written.
    """
    if target.suffix != ".parquet":
        raise DataError(f"{target} is no name of a Parquet file; let it end in .parquet")
    if target.exists():
        raise DataError(f"{target} exists already; choose another name or remove it")
    if like is not None:
        settings = _as_before(settings, like)
    importer = importer_of(place)
    _require_cells(place)
    opened = importer.open(place, settings)
    if not opened.has_splits and settings.held_out is None and like is None:
        raise DataError(
            f"{place} does not say which records are held out to measure models; hold some out "
            "with --split 0.2 (a fifth, drawn by name), or name the column that says so with "
            "--split NAME"
        )
    with workspace(target) as folder:
        raw = folder / "raw.parquet"
        seen = _read(opened, settings, raw, like is None, on_rows)
        finished = _Finishing.of(opened, settings, seen, like, importer.name)
        if like is not None and like.columns is not None and deciders is not None:
            finished.decided_by_others = not _meet(raw, like.columns, deciders, opened.named)
        schema = finished.schema(raw)
        write_private_parquet(target, schema, lambda: finished.batches(raw, schema))
    return finished.report(opened)


def _require_cells(place: Path) -> None:
    """Requires that a table is not one already whose columns became numbers.

    A copy would have lost how they did, and who decided that.
    """
    if place.is_dir():
        files = [*visible(place, "*.parquet"), *visible(place, "*/*.parquet")]
    else:
        files = [place] if place.suffix == ".parquet" else []
    for path in files:
        about = schema_of(path).metadata or {}
        if RECIPE in about and b"feature_names" in about:
            raise DataError(
                f"{path} is a pool that dpal import made of a table; use it as it is, or import "
                "its source once more"
            )


def _meet(raw: Path, columns: TableEncoding, deciders: Deciders, named: bool) -> bool:
    """Whether records that were read may be some of those that decided how columns are encoded."""
    by_name = named and deciders.named
    wanted = [" id"] if by_name else [column.name for column in columns.columns]
    with pq.ParquetFile(raw, pre_buffer=False) as file:
        for batch in file.iter_batches(_GROUP, columns=wanted):
            if by_name:
                names = [hash(name) for name in batch.column(0).to_pylist()]
                hashes, theirs = np.array(names, np.int64), deciders.names
            else:
                hashes, theirs = content_hashes(columns.encode(batch)), deciders.contents
            if np.isin(hashes, theirs).any():
                return True
    return False


def _as_before(settings: ImportSettings, like: ImportRecipe) -> ImportSettings:
    """Settings that read records in the form that an earlier import had, unless they say more."""
    rule = settings.picture_rule
    return replace(
        settings,
        picture_rule=like.picture_rule if rule == PictureRule() else rule,
        classes=settings.classes or like.classes,
        texts=settings.texts or like.texts,
        columns=() if like.columns is None else tuple(c.name for c in like.columns.columns),
        header=like.header if settings.header is None else settings.header,
        value_range=settings.value_range or like.value_range,
    )


@dataclass
class _Seen:
    """What was found while a source was read."""

    several: bool | None = None
    rows: Counter[str] = field(default_factory=Counter)
    labeled: Counter[str] = field(default_factory=Counter)
    held_out_labels: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    columns: ColumnReader = field(default_factory=ColumnReader)
    grouped: bool = False
    hashes: list[NDArray[np.int64]] = field(default_factory=list)


def _read(
    opened: OpenedSource,
    settings: ImportSettings,
    raw: Path,
    learns: bool,
    on_rows: Callable[[int], object],
) -> _Seen:
    """Reads the source once, into one file; learns of held-out records only."""
    seen, writer = _Seen(), None
    try:
        for part in opened.parts():
            seen.dropped.update(part.dropped)
            seen.noted.update(part.noted)
            if settings.whole:  # nobody looks at labels
                part = replace(part, labels=[None] * len(part.ids))
            splits = _splits(part, opened, settings)
            kept = [place for place, split in enumerate(splits) if split is not None]
            seen.dropped[_NO_PART] += len(splits) - len(kept)
            on_rows(len(splits))
            if not kept:
                continue
            batch = _raw_batch(part, splits, kept)
            _look(seen, part, splits, kept)
            if opened.content is None and learns:
                mine = [place for place in kept if splits[place] == TEST]
                if mine:
                    seen.columns.read(part.records.take(pa.array(mine)))
            with writing(raw.parent.parent):
                if writer is None:
                    writer = pq.ParquetWriter(raw, batch.schema, compression="zstd")
                writer.write_batch(batch)
    finally:
        if writer is not None:
            with writing(raw.parent.parent):
                writer.close()
    if writer is None:
        raise _nothing_left(seen.dropped)
    _require_names_once(seen)
    if learns:
        _require_both_parts(seen, settings)
    elif not seen.rows[TRAIN]:
        raise DataError("all records are held out, and none is left to learn from; see the split")
    return seen


def _require_both_parts(seen: _Seen, settings: ImportSettings) -> None:
    """Requires records to learn from, and held-out ones."""
    if seen.rows[TEST] and seen.rows[TRAIN]:
        return
    what = "no record is held out" if seen.rows[TRAIN] else "all records are held out"
    if settings.held_out is not None:
        whole = "groups stay" if seen.grouped else "each is drawn"
        raise DataError(
            f"{what} by --split {settings.held_out:g}, as there are too few of them and "
            f"{whole} {'on one side' if seen.grouped else 'by its name'}; try another share"
            + (", or leave --group out" if seen.grouped else ", or add records")
        )
    raise DataError(f"{what}; models are measured on some, and learn from the others: hold some "
                    "out with --split 0.2")  # fmt: skip


def _nothing_left(dropped: Mapping[str, int]) -> DataError:
    reasons = [(why, count) for why, count in dropped.items() if count]
    counts = {f"count{place}": f"{count:,}" for place, (_, count) in enumerate(reasons)}
    told = "; ".join(f"{{count{place}}} {why}" for place, (why, _) in enumerate(reasons))
    return DataError(f"no record could be imported{f' ({told})' if told else ''}", **counts)


def _splits(part: Part, opened: OpenedSource, settings: ImportSettings) -> list[str | None]:
    """Whether each record is of the pool or held out; None where the source's word is unknown.

    A share that somebody asked for goes before what the source says.
    """
    if settings.held_out is not None and not settings.whole:
        owners = (group or name for group, name in zip(part.groups, part.ids, strict=True))
        return [drawn_part(owner, settings.held_out) for owner in owners]
    if settings.whole or not opened.has_splits:
        return [TRAIN] * len(part.ids)
    return [part_of(word) for word in part.splits]


def _raw_batch(part: Part, splits: Sequence[str | None], kept: Sequence[int]) -> pa.RecordBatch:
    labels = [part.labels[place] for place in kept]
    several = [label if isinstance(label, Several) else None for label in labels]
    texts = pa.list_(pa.string())
    own = {
        " id": pa.array([part.ids[place] for place in kept], pa.string()),
        " split": pa.array([splits[place] for place in kept], pa.string()),
        " group": pa.array([part.groups[place] for place in kept], pa.string()),
        " label": pa.array([x if isinstance(x, str) else None for x in labels], pa.string()),
        " has": pa.array([None if x is None else list(x.has) for x in several], texts),
        " unknown": pa.array([None if x is None else list(x.unknown) for x in several], texts),
    }
    records = part.records
    if len(kept) < records.num_rows:
        records = records.take(pa.array(kept, pa.int64()))
    names = [*own, *records.schema.names]
    return pa.record_batch([*own.values(), *records.columns], names)


def _look(seen: _Seen, part: Part, splits: Sequence[str | None], kept: Sequence[int]) -> None:
    for place in kept:
        label, split = part.labels[place], str(splits[place])
        seen.rows[split] += 1
        seen.grouped |= part.groups[place] is not None
        if label is None:
            continue
        seen.labeled[split] += 1
        several = isinstance(label, Several)
        if seen.several is not None and seen.several is not several:
            raise DataError("some records have one class and others a list of labels; name the "
                            "separator of the list with --separator, or other columns")  # fmt: skip
        seen.several = several
        if split == TEST:
            seen.held_out_labels.update(label.has if isinstance(label, Several) else (label,))
    names = [hash(part.ids[place]) for place in kept]
    seen.hashes.append(np.array(names, dtype=np.int64))


def _require_names_once(seen: _Seen) -> None:
    """Requires that no two records have one name; 64-bit hashes of them are compared."""
    hashes = np.sort(np.concatenate(seen.hashes))
    twice = int((hashes[1:] == hashes[:-1]).sum())
    if twice:
        raise DataError(
            "{twice} records have the name of another one; name the column of unique names with "
            "--id, or leave it out to have them numbered",
            twice=twice,
        )


@dataclass(kw_only=True)
class _Finishing:
    """What is known once a source was read, and how its records are written by that."""

    recipe: ImportRecipe
    seen: _Seen
    numbers: Mapping[str, int]
    named: bool
    decides: bool
    decided_by_others: bool = False
    keeps_unlabeled: bool
    left_out: Mapping[str, str]
    has_split: bool
    tally: dict[str, Any]

    @classmethod
    def of(
        cls,
        opened: OpenedSource,
        settings: ImportSettings,
        seen: _Seen,
        like: ImportRecipe | None,
        importer: str,
    ) -> _Finishing:
        """Decides on classes and columns.

        Raises:
          DataError: there are no classes to learn, or the earlier import was of other records.
        """
        encoding, left_out = None, dict(opened.left_out)
        if like is not None and like.content is not (opened.content or Content.FEATURES):
            raise DataError(f"the earlier import was of records that are {like.content}, and these "
                            f"are {opened.content or Content.FEATURES}")  # fmt: skip
        if opened.content is None:
            if like is None:
                encoding, same = seen.columns.encoding()
                left_out |= same
            elif like.columns is None:
                raise DataError("the earlier import was of lists of features, and this is a table")
            else:
                encoding = like.columns
        task = Task.MULTI_LABEL if seen.several else Task.SINGLE_LABEL
        if like is not None:
            if seen.several is not None and task is not like.task:
                raise DataError(
                    "the earlier import had one class a record and these have lists of labels, or "
                    "the other way round; name other columns with --label, or see --separator"
                )
            task, classes = like.task, like.classes
        else:
            classes = settings.classes or opened.classes or _in_order(seen.held_out_labels)
            if len(classes) < (1 if seen.several else 2):
                found = f"they have {', '.join(classes)}" if classes else "they have none"
                raise DataError(
                    f"held-out records need labels of at least two classes, and {found}; name the "
                    "column of labels with --label NAME"
                )
        if like is None and not seen.several and not (settings.classes or opened.classes):
            _require_classes(seen)
        numbered = _are_numbers(seen.held_out_labels, classes) if like is None else like.numbered
        names = map(str, range(len(classes))) if numbered else classes
        if numbered and max(map(int, seen.held_out_labels), default=0) >= len(classes):
            raise DataError(
                f"held-out records have labels that are numbers, and not all are below "
                f"{len(classes)}, as many classes as there are names; name all of them, the first "
                "one for 0"
            )
        return cls(
            numbers={name: number for number, name in enumerate(names)},
            recipe=ImportRecipe(
                importer=importer,
                content=opened.content or Content.FEATURES,
                task=task,
                classes=tuple(classes),
                numbered=numbered,
                columns=encoding,
                picture_rule=settings.picture_rule,
                texts=settings.texts,
                header=settings.header is not False,
                value_range=settings.value_range,
            ),
            seen=seen,
            named=opened.named,
            decides=like is None,
            keeps_unlabeled=settings.keep_unlabeled or settings.whole or not seen.labeled[TRAIN],
            left_out=left_out if like is None else {},
            has_split=not settings.whole and (opened.has_splits or settings.held_out is not None),
            tally={
                "rows": Counter(),
                "counts": {part: np.zeros(len(classes), np.int64) for part in (TRAIN, TEST)},
                "unknown": 0,
                "unlabeled": 0,
            },
        )

    def schema(self, raw: Path) -> pa.Schema:
        """Columns of the target, with what it says of itself."""
        records = [field for field in pq.read_schema(raw) if not field.name.startswith(" ")]
        fields = [pa.field("id", pa.string())]
        about = {CLASS_NAMES: json.dumps(list(self.recipe.classes)).encode(),
                 RECIPE: self.recipe.to_json().encode()}  # fmt: skip
        if self.recipe.columns is not None:
            names = self.recipe.columns.features
            fields.append(pa.field("features", pa.list_(pa.float32(), len(names))))
            about[b"feature_names"] = json.dumps(list(names)).encode()
            about[DECIDED_BY] = decided_by(itself=self.decides, others=self.decided_by_others)
            about[NAMED] = b"yes" if self.named else b"no"
        elif self.recipe.content is Content.FEATURES:
            fields.append(pa.field("features", _as_floats(records[0].type)))
        else:
            fields += records
        if self.seen.labeled:
            fields.append(pa.field("label", stored_type(self.recipe.task)))
        if self.has_split:
            fields.append(pa.field("split", pa.string()))
        if self.seen.grouped:
            fields.append(pa.field("group", pa.string()))
        return pa.schema(fields, metadata=about)

    def batches(self, raw: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The records of the target."""
        rows = 256 if self.recipe.content is Content.IMAGE else _GROUP
        # A buffer ahead of what is read would end up with the whole file.
        with pq.ParquetFile(raw, pre_buffer=False) as file:
            for batch in file.iter_batches(rows):
                yield from self._batch(batch, schema)
        self._require_records()

    def _require_records(self) -> None:
        """Requires that records are left, and that columns of numbers have some."""
        parts = {TRAIN, TEST} if self.decides else set()
        if not self.tally["rows"] or any(not self.tally["rows"][part] for part in parts):
            raise _nothing_left(self.seen.dropped)
        lost = next((name for name in self.seen.unread if not self.seen.read[name]), None)
        if lost is not None:
            raise DataError(
                f"column {lost!r} has numbers or dates, and no cell that is given could be read as "
                "one; write numbers as 3.5 and dates as 2026-01-31"
            )

    def _batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        splits = batch.column(" split").to_pylist()
        labels = self._labels(batch)
        kept = []
        for place, (split, label) in enumerate(zip(splits, labels, strict=True)):
            if label is None and (split == TEST or not self.keeps_unlabeled):
                self.seen.dropped[NO_LABEL] += 1
                continue
            kept.append(place)
            self._count(split, label)
        if not kept:
            return
        batch = batch.take(pa.array(kept, pa.int64()))
        labels = [labels[place] for place in kept]
        columns = []
        for each in schema:
            if each.name == "label":
                columns.append(pa.array(labels, each.type))
            elif each.name in ("id", "split", "group"):
                columns.append(batch.column(f" {each.name}"))
            elif each.name == "features" and self.recipe.columns is not None:
                width = len(self.recipe.columns.features)
                values = pa.array(self.recipe.columns.encode(batch, self._note_numbers).ravel())
                columns.append(pa.FixedSizeListArray.from_arrays(values, width))
            else:
                columns.append(batch.column(each.name).cast(each.type))
        yield pa.record_batch(columns, schema=schema)

    def _note_numbers(self, name: str, read: int, unread: int) -> None:
        self.seen.read[name] += read
        if unread:
            self.seen.unread[name] += unread

    def _labels(self, batch: pa.RecordBatch) -> list[int | list[int] | None]:
        numbers = self.numbers
        if self.recipe.task is Task.SINGLE_LABEL:
            given = batch.column(" label").to_pylist()
            self.seen.dropped[_NEW_LABEL] += sum(
                name is not None and name not in numbers for name in given
            )
            return [None if name is None else numbers.get(name) for name in given]
        rows: list[int | list[int] | None] = []
        columns = (batch.column(" has").to_pylist(), batch.column(" unknown").to_pylist())
        for has, unknown in zip(*columns, strict=True):
            if has is None:
                rows.append(None)
                continue
            row = [0] * len(numbers)
            self.seen.noted[_NEW_NAMES] += sum(name not in numbers for name in has)
            for names, value in ((has, 1), (unknown, UNKNOWN)):
                for name in names:
                    if name in numbers:
                        row[numbers[name]] = value
            rows.append(row)
        return rows

    def _count(self, split: str, label: int | list[int] | None) -> None:
        self.tally["rows"][split] += 1
        counts = self.tally["counts"][split]
        if label is None:
            self.tally["unlabeled"] += 1
        elif isinstance(label, int):
            counts[label] += 1
        else:
            row = np.array(label)
            counts += row == 1
            self.tally["unknown"] += int((row == UNKNOWN).sum())

    def report(self, opened: OpenedSource) -> ImportReport:
        """What was found, once all is written."""
        dropped = Counter(self.seen.dropped)
        # A label that nobody else has is no label here: said once.
        dropped[NO_LABEL] -= min(dropped[NO_LABEL], dropped[_NEW_LABEL])
        return ImportReport(
            importer=self.recipe.importer,
            about=opened.about,
            content=self.recipe.content,
            task=self.recipe.task,
            classes=self.recipe.classes,
            rows=dict(self.tally["rows"]),
            counts={part: counts.tolist() for part, counts in self.tally["counts"].items()},
            unknown=self.tally["unknown"],
            unlabeled=self.tally["unlabeled"],
            dropped={why: count for why, count in dropped.items() if count},
            noted={what: count for what, count in self.seen.noted.items() if count},
            unread={name: count for name, count in self.seen.unread.items() if count},
            left_out=dict(self.left_out),
            features=0 if self.recipe.columns is None else len(self.recipe.columns.features),
            grouped=self.seen.grouped,
            told=self.recipe.columns is not None and not self.decided_by_others,
        )


def _require_classes(seen: _Seen) -> None:
    """Requires that labels repeat: a measured number has no classes."""
    found, judged = len(seen.held_out_labels), seen.labeled[TEST]
    if found > _FEW_CLASSES and 2 * found > judged:
        raise DataError(
            "{judged} held-out records have {found} different labels, as measured numbers or names "
            "do; name a column of classes with --label, or make a few classes of the numbers",
            judged=judged,
            found=found,
        )


def _are_numbers(held_out: set[str], classes: Sequence[str]) -> bool:
    """Whether labels are numbers of classes that have other names."""
    numbers = bool(held_out) and all(name.isdecimal() for name in held_out)
    return numbers and not any(name.isdecimal() for name in classes)


def _as_floats(kind: pa.DataType) -> pa.DataType:
    fixed = getattr(kind, "list_size", None)
    return pa.list_(pa.float32()) if fixed is None else pa.list_(pa.float32(), fixed)


def _in_order(names: set[str]) -> tuple[str, ...]:
    """Names in class order: as numbers where all are, else as texts."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))
