"""One pass over a source, into a file beside the target, and what was found on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.data.importing.column_encoding import ColumnReader
from dpal.data.importing.importers import TEST, TRAIN, OpenedSource, Part, Several
from dpal.data.importing.parts import drawn_part, is_of_part, part_of
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.tables import ODD_ROWS
from dpal.errors import DataError
from dpal.files.atomic_writes import writing

_NO_PART = "rows of no part that is known (train, test, validation ...)"


@dataclass
class Seen:
    """What was found while a source was read."""

    several: bool | None = None
    rows: Counter[str] = field(default_factory=Counter)
    labeled: Counter[str] = field(default_factory=Counter)
    held_out_labels: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    imputed: Counter[str] = field(default_factory=Counter)
    clipped: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)
    words: set[str] = field(default_factory=set)
    columns: ColumnReader = field(default_factory=ColumnReader)
    grouped: bool = False
    hashes: list[NDArray[np.int64]] = field(default_factory=list)


def read_source(
    opened: OpenedSource,
    settings: ImportSettings,
    raw: Path,
    learns: bool,
    on_rows: Callable[[int], object],
) -> Seen:
    """Reads a source once, into one file.

    Args:
      opened: the source, which was looked at.
      settings: what a person says of it.
      raw: the file to write.
      learns: whether held-out records, and they alone, say what columns of a table hold.
      on_rows: told how many more records were read.

    Raises:
      DataError: no record is left, two have one name, or all are of one part.
      StorageError: the file cannot be written.
    """
    seen, writer = Seen(), None
    try:
        for part in opened.parts():
            seen.dropped.update(part.dropped)
            seen.noted.update(part.noted)
            if settings.whole:  # nobody looks at labels
                part = replace(part, labels=[None] * len(part.ids))
            part = _of_part(part, settings.part)
            seen.words.update(part.aside)
            for word, count in part.aside.items():
                seen.aside[_own_part(word, opened)] += count
            splits = _splits(part, opened, settings)
            kept = [place for place, split in enumerate(splits) if split is not None]
            seen.dropped[_NO_PART] += len(splits) - len(kept)
            on_rows(len(splits))
            if not kept:
                continue
            batch = _raw_batch(part, opened, splits, kept)
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
        _require_part(seen, settings)
        raise nothing_left(seen.dropped)
    _require_names_once(seen, opened, settings)
    if learns:
        _require_both_parts(seen, settings)
    elif not seen.rows[TRAIN]:
        raise DataError("all records are held out, and none is left to learn from; see the split")
    return seen


def _require_both_parts(seen: Seen, settings: ImportSettings) -> None:
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


def nothing_left(dropped: Mapping[str, int]) -> DataError:
    """That no record is left, with the reasons and how many each left out."""
    reasons = [(why, count) for why, count in dropped.items() if count]
    counts = {f"count{place}": f"{count:,}" for place, (_, count) in enumerate(reasons)}
    told = "; ".join(f"{{count{place}}} {why}" for place, (why, _) in enumerate(reasons))
    if not told:
        remedy = "check that the source has some"
    elif dropped.get(ODD_ROWS):
        remedy = "the first line of a table names its columns, and no row ends in a separator"
    else:
        remedy = ""
    return DataError(
        "no record is left" + f" ({told})" * bool(told) + f"; {remedy}" * bool(remedy), **counts
    )


def _of_part(part: Part, wanted: str | None) -> Part:
    """The records of the part that somebody asked for."""
    kept = [place for place, word in enumerate(part.splits) if is_of_part(word, wanted)]
    if len(kept) == len(part.splits):
        return part
    aside = Counter(part.aside)
    aside.update(word or "" for word in part.splits if not is_of_part(word, wanted))
    return replace(
        part,
        ids=[part.ids[place] for place in kept],
        labels=[part.labels[place] for place in kept],
        splits=[part.splits[place] for place in kept],
        groups=[part.groups[place] for place in kept],
        records=part.records.take(pa.array(kept, pa.int64())),
        aside=aside,
    )


def _own_part(word: str | None, opened: OpenedSource) -> str:
    """The part of a record as its source divides them, whoever divides them anew."""
    return part_of(word) or "" if opened.has_splits else TRAIN


def _require_part(seen: Seen, settings: ImportSettings) -> None:
    """Requires that some record is of the part that somebody asked for."""
    words = sorted(word for word in seen.words if word)
    if settings.part is not None and not any(is_of_part(word, settings.part) for word in words):
        raise DataError(
            f"--part {settings.part} is of no record; the source {{has}}",
            has=f"has the parts {', '.join(words)}" if words else "is not divided",
        )


def _splits(part: Part, opened: OpenedSource, settings: ImportSettings) -> list[str | None]:
    """Whether each record is of the pool or held out; None where the source's word is unknown.

    A share that somebody asked for goes before what the source says, and so does a part: it is
    divided by a share, or not at all.
    """
    if settings.held_out is not None and not settings.whole:
        owners = (group or name for group, name in zip(part.groups, part.ids, strict=True))
        return [drawn_part(owner, settings.held_out) for owner in owners]
    if settings.whole or settings.part is not None or not opened.has_splits:
        return [TRAIN] * len(part.ids)
    return [part_of(word) for word in part.splits]


def _raw_batch(
    part: Part, opened: OpenedSource, splits: Sequence[str | None], kept: Sequence[int]
) -> pa.RecordBatch:
    labels = [part.labels[place] for place in kept]
    several = [label if isinstance(label, Several) else None for label in labels]
    texts = pa.list_(pa.string())
    own = {
        " id": pa.array([part.ids[place] for place in kept], pa.string()),
        " split": pa.array([splits[place] for place in kept], pa.string()),
        " own": pa.array([_own_part(part.splits[place], opened) for place in kept], pa.string()),
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


def _look(seen: Seen, part: Part, splits: Sequence[str | None], kept: Sequence[int]) -> None:
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


def _require_names_once(seen: Seen, opened: OpenedSource, settings: ImportSettings) -> None:
    """Requires that no two records have one name; 64-bit hashes of them are compared."""
    hashes = np.sort(np.concatenate(seen.hashes))
    twice = int((hashes[1:] == hashes[:-1]).sum())
    if not twice:
        return
    where = "" if opened.id is None else f" in column {opened.id!r}"
    raise DataError(
        f"{{twice}} records have the name of another one{where}; {_other_names(opened, settings)}",
        twice=twice,
    )


def _other_names(opened: OpenedSource, settings: ImportSettings) -> str:
    """How records come by names of their own, with options that the command has."""
    another, own = "name a column of unique names with --id", "give each a name of its own"
    if not opened.columns:
        return own
    if opened.id is None:
        return another
    if opened.id.lower() != "id":  # it is taken for names as somebody said so
        return f"{another}, or leave --id out"
    if settings.whole:
        return f"{another}, or {own}"
    instead = "" if settings.id is None else " in place of --id"
    return f"{another}, or have records numbered with --leave-out {opened.id}{instead}"
