"""JSON lines: one object a record, whose fields are those that held-out lines have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpal.data.importing.cells import cell_text, name_text
from dpal.data.importing.importers import PART, TEST, OpenedSource
from dpal.data.importing.parts import drawn_part, part_of
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import Rows, SourceTable, made_name
from dpal.data.importing.tables import opened_table
from dpal.data.parquet import reading
from dpal.errors import DataError

_MOST_FIELDS = 4096  # of JSON lines together


@dataclass(frozen=True, kw_only=True)
class _Fields:
    """Which fields lines have.

    Attributes:
      names: those that held-out lines have, or all where nothing is held out.
      others: those that private lines alone have.
      id, split: of names and of parts, as somebody said or as usual; None where there is none.
    """

    names: tuple[str, ...]
    others: tuple[str, ...]
    id: str | None
    split: str | None


def open_jsonl(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a file of JSON objects, one a line; its held-out lines name the fields.

    Which fields there are goes with every model; so one that only private records have is none.

    Raises:
      DataError: a line is no object, or a field that is asked for is not there.
    """
    fields = _fields(place, settings)
    table = SourceTable(
        place=place, columns=fields.names, rows=lambda: _json_rows(place, fields.names, settings)
    )
    # The same fields decide once more which lines are held out.
    opened = opened_table(table, replace(settings, id=fields.id, split=fields.split))
    unknown = dict.fromkeys(fields.others, "no held-out record has")
    return replace(opened, left_out={**opened.left_out, **unknown})


def _fields(place: Path, settings: ImportSettings) -> _Fields:
    theirs, every, number = dict.fromkeys(settings.columns), dict[str, None](), 0
    row_id, split = settings.id, settings.split
    for number, (_, value) in enumerate(_objects(place, settings), start=1):
        every.update(dict.fromkeys(value))
        # The first that any line has: lines before it have none, and are not decided anew.
        row_id = row_id or _usual("id", value, settings)
        split = split or _usual("split", value, settings)
        if settings.held_out is None:
            is_held_out = part_of(_said(value, split)) == TEST
        else:
            group = cell_text(_said(value, settings.group))
            owner = group or name_text(_said(value, row_id)) or made_name(place, number)
            is_held_out = drawn_part(owner, settings.held_out) == TEST
        if is_held_out:
            theirs.update(dict.fromkeys(value))
        if len(every) > _MOST_FIELDS:
            raise DataError(
                f"the lines of {place} have more than {_MOST_FIELDS:,} fields together; give each "
                "record the same ones"
            )
    if not number:
        raise DataError(f"{place} is empty; it needs one JSON object a line")
    lost = next((name for name in settings.always if name not in every), None)
    if lost is not None:
        whose = "the model reads" if settings.whole else "all earlier ones had"
        raise DataError(
            f"no line of {place} has the field {lost!r}, which {whose}; they have {{shown}}",
            shown=", ".join([*every][:30]),
        )
    if len(theirs) == len(settings.columns):
        theirs.update(every)
    theirs.update((name, None) for name in (row_id, split) if name in every)  # they are no features
    return _Fields(
        names=tuple(theirs),
        others=tuple(name for name in every if name not in theirs),
        id=row_id,
        split=split,
    )


def _usual(name: str, value: Mapping[str, Any], settings: ImportSettings) -> str | None:
    """The field of a line that has a usual name, in capitals or not."""
    return next((k for k in value if k.lower() == name and k not in settings.left_out), None)


def _said(value: Mapping[str, Any], name: str | None) -> str | None:
    return None if name is None else _as_text(value.get(name))


def _objects(place: Path, settings: ImportSettings) -> Iterator[tuple[int, dict[str, Any]]]:
    # Those of an earlier import are called as it called them, which may be with blanks.
    earlier = {*settings.columns, *settings.texts}
    with (
        reading(place, "write it as JSON lines in UTF-8"),
        place.open(encoding="utf-8-sig") as lines,
    ):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if "\\u" in line:  # half of a pair of surrogates is no text
                    json.dumps(value, ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                raise DataError(
                    f"line {{line}} of {place} is no JSON object; correct it", line=number
                )
            names = [name if name in earlier else name.strip() for name in value]
            if len({*names}) < len(names):
                raise DataError(
                    f"line {{line}} of {place} has two fields {{twice}}; give each a name of its "
                    "own",
                    line=number,
                    twice=repr(next(name for name in names if names.count(name) > 1)),
                )
            yield number, dict(zip(names, value.values(), strict=True))


def _json_rows(place: Path, names: Sequence[str], settings: ImportSettings) -> Iterator[Rows]:
    held: list[dict[str, Any]] = []

    def batch() -> Rows:
        columns = [[_as_text(each.get(name)) for each in held] for name in names]
        return Rows(pa.record_batch([pa.array(c, pa.string()) for c in columns], list(names)))

    for _, value in _objects(place, settings):
        held.append(value)
        if len(held) == 4 * PART:
            yield batch()
            held.clear()
    if held:
        yield batch()


def _as_text(value: Any) -> str | None:
    """A field of JSON as the cell of a table: lists stay JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
