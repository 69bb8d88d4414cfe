"""The records of a pool, once their source was read: classes, columns, and what is left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpal.data.class_names import KEY as CLASS_NAMES
from dpal.data.importing.column_encoding import ReadCells
from dpal.data.importing.import_report import ImportReport
from dpal.data.importing.importers import TEST, TRAIN, OpenedSource
from dpal.data.importing.recipe import DECIDED_BY, NAMED, RECIPE, ImportRecipe, decided_by
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.stage_source import Seen, nothing_left
from dpal.data.label_columns import stored_type
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.labels import UNKNOWN, Task

NO_LABEL = "records without a label"
_NEW_LABEL = "records of a class that no held-out record has"
OTHER_LABEL = "records of a class that is none of those that were named, or imported before"
_NEW_NAMES = "labels that no held-out record has, of records that stay with their others"
_FEW_CLASSES = 10  # up to which held-out records may nearly all differ in their label
ROWS_AT_ONCE = 4096  # rows written at a time, but for pictures


@dataclass(kw_only=True)
class PoolBatches:
    """What is known once a source was read, and how its records are written by that."""

    recipe: ImportRecipe
    seen: Seen
    numbers: Mapping[str, int]
    named: bool
    decides: bool
    decided_by_others: bool = False
    keeps_unlabeled: bool
    left_out: Mapping[str, str]
    repeated: Sequence[str]
    has_split: bool
    expected: tuple[int, int] | None
    new_label: str
    tally: dict[str, Any]

    @classmethod
    def of(
        cls,
        opened: OpenedSource,
        settings: ImportSettings,
        seen: Seen,
        like: ImportRecipe | None,
        importer: str,
    ) -> PoolBatches:
        """Decides on classes and columns.

        Raises:
          DataError: there are no classes to learn, or the earlier import was of other records.
        """
        encoding, left_out, repeated = None, dict(opened.left_out), tuple[str, ...]()
        if like is not None and like.content is not (opened.content or Content.FEATURES):
            raise _other_content(opened, settings, like.content)
        if opened.content is None:
            if like is None:
                encoding, same = seen.columns.encoding()
                left_out |= same
                repeated = seen.columns.repeated(same)
            elif like.columns is None:
                raise DataError(
                    "the model reads lists of features, and this is a table; write them as lists "
                    "into one column called features"
                    if settings.whole
                    else "the earlier import was of lists of features, and this is a table"
                )
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
                found = f"they have {', '.join(classes)}" if classes else "they have no label"
                raise DataError(
                    f"held-out records need labels of at least two classes, and {found}; name the "
                    "column of labels with --label NAME; and if none, null, na, nan, n/a, ?, - or "
                    ". is a class, name all classes, such as --classes none,mild"
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
            repeated=() if seen.grouped else repeated,
            has_split=not settings.whole and (opened.has_splits or settings.held_out is not None),
            expected=settings.expected,
            new_label=OTHER_LABEL if settings.classes or opened.classes else _NEW_LABEL,
            tally={
                "rows": Counter(),
                "own": Counter(),
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
        rows = 256 if self.recipe.content is Content.IMAGE else ROWS_AT_ONCE
        # A buffer ahead of what is read would end up with the whole file.
        with pq.ParquetFile(raw, pre_buffer=False) as file:
            for batch in file.iter_batches(rows):
                yield from self._batch(batch, schema)
        self._require_records()

    def _require_records(self) -> None:
        """Requires that records are left, as many as expected, and that columns have numbers."""
        parts = {TRAIN, TEST} if self.decides else set()
        if not self.tally["rows"] or any(not self.tally["rows"][part] for part in parts):
            raise nothing_left(self._dropped())
        lost = next((name for name in self.seen.unread if not self.seen.read[name]), None)
        if lost is not None:
            raise DataError(
                f"column {lost!r} has numbers or dates, and no cell that is given could be read as "
                "one; write numbers as 3.5 and dates as 2026-01-31"
            )
        there = self.tally["own"] + self.seen.aside
        found = (there[TRAIN], there[TEST])
        if self.expected is not None and found != self.expected:
            wanted = "{:,} records for the pool and {:,} held out".format(*self.expected)
            raise DataError(
                f"--expect says that there are {wanted}, and the source has {{pool}} and "
                "{held_out}; get all of it, or leave --expect out; nothing was written",
                pool=f"{found[0]:,}",
                held_out=f"{found[1]:,}",
            )

    def _batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        splits, own = (batch.column(name).to_pylist() for name in (" split", " own"))
        labels = self._labels(batch)
        kept = []
        for place, (split, label) in enumerate(zip(splits, labels, strict=True)):
            if label is None and (split == TEST or not self.keeps_unlabeled):
                self.seen.dropped[NO_LABEL] += 1
                continue
            kept.append(place)
            self.tally["own"][own[place]] += 1
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
                values = pa.array(self.recipe.columns.encode(batch, self._note_cells).ravel())
                columns.append(pa.FixedSizeListArray.from_arrays(values, width))
            else:
                columns.append(batch.column(each.name).cast(each.type))
        yield pa.record_batch(columns, schema=schema)

    def _note_cells(self, name: str, found: ReadCells) -> None:
        self.seen.read[name] += found.read
        self.seen.imputed[name] += found.imputed
        self.seen.clipped[name] += found.clipped
        self.seen.other[name] += found.other
        if found.unread:
            self.seen.unread[name] += found.unread

    def _labels(self, batch: pa.RecordBatch) -> list[int | list[int] | None]:
        numbers = self.numbers
        if self.recipe.task is Task.SINGLE_LABEL:
            given = batch.column(" label").to_pylist()
            self.seen.dropped[self.new_label] += sum(
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

    def _dropped(self) -> Counter[str]:
        """Why records were left out, and how many; one of an unknown class is said once."""
        dropped = Counter(self.seen.dropped)
        dropped[NO_LABEL] -= min(dropped[NO_LABEL], dropped[self.new_label])
        return dropped

    def report(self, opened: OpenedSource) -> ImportReport:
        """What was found, once all is written."""
        read = () if self.recipe.columns is None else self.recipe.columns.columns
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
            dropped=_counted(self._dropped()),
            noted=_counted(self.seen.noted),
            unread=_counted(self.seen.unread),
            imputed=_counted(self.seen.imputed),
            clipped=_counted(self.seen.clipped),
            other=_counted(self.seen.other),
            left_out=dict(self.left_out),
            repeated=tuple(self.repeated),
            columns={column.name: column.about for column in read},
            features=0 if self.recipe.columns is None else len(self.recipe.columns.features),
            grouped=self.seen.grouped,
            told=self.recipe.columns is not None and not self.decided_by_others,
        )


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    """What was found at all."""
    return {what: count for what, count in counts.items() if count}


def _other_content(opened: OpenedSource, settings: ImportSettings, wanted: Content) -> DataError:
    own = opened.content or Content.FEATURES
    if not settings.whole:
        return DataError(
            f"the earlier import was of records that are {wanted}, and these are {own}"
        )
    named = opened.columns and wanted is Content.IMAGE
    hint = ", and call the column that names or holds pictures image" if named else ""
    return DataError(
        f"the model learned from records that are {wanted}, and these are {own}; give it such as "
        f"it learned from{hint}"
    )


def _require_classes(seen: Seen) -> None:
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
