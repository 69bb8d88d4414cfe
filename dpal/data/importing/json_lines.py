"""JSON lines: one object a record, whose fields are those that held-out lines have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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


def open_jsonl(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a file of JSON objects, one a line; its held-out lines name the fields.

    Which fields there are goes with every model; so one that only private records have is none.

    Raises:
      DataError: a line is no object, or a field that is asked for is not there.
    """
    names, others = _fields(place, settings)
    table = SourceTable(place=place, columns=names, rows=lambda: _json_rows(place, names))
    opened = opened_table(table, settings)
    unknown = dict.fromkeys(others, "no held-out record has")
    return replace(opened, left_out={**opened.left_out, **unknown})


def _fields(place: Path, settings: ImportSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of fields that held-out lines have, or all where nothing is held out; and others."""
    theirs, every, number = dict.fromkeys(settings.columns), dict[str, None](), 0
    for number, (_, value) in enumerate(_objects(place), start=1):
        every.update(dict.fromkeys(value))
        if _is_held_out(place, number, value, settings):
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
        raise DataError(
            f"no line of {place} has the field {lost!r}, which all earlier ones had; they have "
            "{shown}",
            shown=", ".join([*every][:30]),
        )
    if len(theirs) == len(settings.columns):
        theirs.update(every)
    return tuple(theirs), tuple(name for name in every if name not in theirs)


def _is_held_out(place: Path, number: int, value: Mapping[str, Any], of: ImportSettings) -> bool:
    """Whether a line is held out, by what will decide that of its record."""

    def said(wanted: str | None, usual: str = "") -> str | None:
        def is_usual(key: str) -> bool:
            return key.lower() == usual and key not in of.left_out

        name = wanted or next(filter(is_usual, value), "")
        return _as_text(value.get(name))

    if of.held_out is None:
        return part_of(said(of.split, "split")) == TEST
    group = cell_text(said(of.group)) if of.group else None
    owner = group or name_text(said(of.id, "id")) or made_name(place, number)
    return drawn_part(owner, of.held_out) == TEST


def _objects(place: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with reading(place), place.open(encoding="utf-8-sig") as lines:
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
            yield number, value


def _json_rows(place: Path, names: Sequence[str]) -> Iterator[Rows]:
    held: list[dict[str, Any]] = []

    def batch() -> Rows:
        columns = [[_as_text(each.get(name)) for each in held] for name in names]
        return Rows(pa.record_batch([pa.array(c, pa.string()) for c in columns], list(names)))

    for _, value in _objects(place):
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
