"""CSV and TSV: what the first line is, and rows with their numbers."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv

from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import Rows, SourceTable
from dpal.data.importing.tables import opened_table
from dpal.data.parquet import named_twice, reading
from dpal.errors import DataError

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_QUOTED = re.compile(r'"[^"]*"')
_SAYS_SEPARATOR = re.compile(r"sep=.", re.IGNORECASE)
_SIGNS = re.compile(r'["\n\r,;|\t]')
_LONGEST_LINE = 2**24
_BREAKS = "\r\n"
_BLOCK = 2**22  # bytes of a file of texts that are read at a time


def open_csv(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a CSV or TSV file; fields may be quoted, and it may be compressed by gzip.

    Raises:
      DataError: it has no record, names a column twice, or a column that is asked for is not there.
    """
    with reading(place, "write it as CSV in UTF-8"):
        start = _start(place)
        line = _first_line(start)
        is_alone = not start[len(line) :].strip(_BREAKS)
        line = line.rstrip(_BREAKS)
        if _SAYS_SEPARATOR.fullmatch(line):  # as Excel writes it before the header
            raise DataError(
                f"{place} begins with the line {line}, which names no columns; delete it"
            )
        outside = _QUOTED.sub("", line)
        counts = {mark: outside.count(mark) for mark in (",", "\t", ";", "|")}
        mark = max(counts, key=lambda each: counts[each])
        lines = csv.reader(io.StringIO(start, newline=""), delimiter=mark)
        first = [name.strip() for name in next(lines, [])]
    if "\ufffd" in line:
        raise DataError(f"{place} begins with what is no text; write it as CSV in UTF-8")
    if not any(first):
        raise DataError(f"{place} begins with an empty line; its first one names the columns")
    header = settings.header
    if header is None and (place.suffix.lower() == ".data" or _is_a_record(first)):
        raise DataError(
            f"{place} seems to begin with a record and no names of columns, which would be shown "
            "with every model; say which it is: --no-header (columns are column1, column2 and so "
            "on then) or --header"
        )
    if header is not False and is_alone:
        raise DataError(
            f"{place} has no record: nothing follows its first line, which names the columns; give "
            "each record a line of its own there"
        )
    names = first if header is not False else [f"column{k}" for k in range(1, len(first) + 1)]
    twice = named_twice(names)
    if twice is not None:
        raise DataError(f"{place} has two columns {{twice}}; give each a name of its own",
                        twice=repr(twice))  # fmt: skip
    before = 0 if header is False else lines.line_num
    return opened_table(
        SourceTable(
            place=place,
            columns=tuple(names),
            rows=lambda: _csv_rows(place, names, mark, before),
        ),
        settings,
    )


def _start(place: Path) -> str:
    """The beginning of a file, at least its first line and something of another one.

    Raises:
      DataError: that is longer than any table's.
    """
    read = b""
    with _stream(place) as stream:
        while more := stream.read(max(2**16, len(read))):
            read += more
            text = str(read.decode("utf-8-sig", errors="replace"))
            if text[len(_first_line(text)) :].strip(_BREAKS):
                return text
            if len(read) > _LONGEST_LINE:
                raise DataError(
                    f"{place} begins with a line of more than {_LONGEST_LINE // 10**6} MB, or with "
                    "a quote that nobody closes; its first line names the columns"
                )
    return str(read.decode("utf-8-sig", errors="replace"))


def _first_line(text: str) -> str:
    """Up to the first line break that is in no quotes, or all of it.

    A quote begins where a field does; anywhere else it is a character as others are.
    """
    begins, closed, quoted = 0, -1, False  # of the field; of the quote before, which may be doubled
    for found in _SIGNS.finditer(text):
        place, sign = found.start(), found.group()
        if sign == '"':
            if quoted:
                quoted, closed = False, place
            else:
                quoted = place in (begins, closed + 1)
        elif not quoted and sign in "\r\n":
            return text[: place + 1]
        elif not quoted:
            begins = place + 1
    return text


def _is_a_record(first: Sequence[str]) -> bool:
    """Whether some names of columns are numbers, and do not just count the columns."""
    numbers = [name for name in first if _NUMBER.fullmatch(name)]
    counted = [[str(k + start) for k in range(len(numbers))] for start in (0, 1)]
    return bool(numbers) and numbers not in counted


def _stream(place: Path) -> Any:
    return pa.input_stream(str(place), compression="detect")


def _csv_rows(place: Path, names: Sequence[str], mark: str, before: int) -> Iterator[Rows]:
    """Rows after the lines that name the columns."""
    odd = deque[int]()  # numbers of rows that are left out and still ahead, in order
    told = found = breaks = done = 0

    def leave_out(row: Any) -> str:
        nonlocal found, breaks
        found += 1
        breaks += row.text.count("\n")
        odd.append(row.number - before)
        return "skip"

    with (
        reading(place, "write it as CSV in UTF-8"),
        pv.open_csv(
            _stream(place),
            read_options=pv.ReadOptions(
                column_names=list(names),
                skip_rows=before,
                block_size=_BLOCK,
                use_threads=False,  # else no row has a number
            ),
            parse_options=pv.ParseOptions(
                delimiter=mark, invalid_row_handler=leave_out, newlines_in_values=True
            ),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        ) as reader,
    ):
        for batch in reader:
            numbers = _numbers(done, batch.num_rows, set(odd))
            done = numbers[-1] if numbers else done
            while odd and odd[0] < done:
                odd.popleft()
            rows = Rows(batch, found - told, breaks, numbers)
            told, breaks = found, 0
            yield rows
        if found > told:  # after the last one that could be read
            none = [pa.array([], pa.string()) for _ in names]
            yield Rows(pa.record_batch(none, list(names)), found - told, breaks)


def _numbers(done: int, count: int, odd: Collection[int]) -> Sequence[int]:
    """Numbers of the next rows, where some are left out."""
    if not odd:
        return range(done + 1, done + count + 1)
    readable = (number for number in itertools.count(done + 1) if number not in odd)
    return list(islice(readable, count))
