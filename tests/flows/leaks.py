"""Searching everything a campaign leaves behind for what must not be there."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from dpal.files.artifacts import CampaignFolder

_BEGINNING = 5  # letters


def files_below(*places: Path) -> Iterator[Path]:
    """All files, hidden ones too."""
    for place in places:
        yield from ([place] if place.is_file() else sorted(place.rglob("*")))


def text_of(path: Path) -> str:
    """A file's bytes as text; tables and databases with every value in them, uncompressed."""
    content = path.read_bytes()
    text = content.decode("latin-1")
    if content.startswith(b"PAR1"):
        # Not the bytes themselves: compressed, they look like any number now and then.
        table = pq.read_table(path)
        values = [f" {value} " for column in table.columns for value in column.to_pylist()]
        return " ".join([str(table.schema), str(table.schema.metadata), *values])
    if content.startswith(b"SQLite format 3\0"):
        return f"{text} {_rows_of(path)}"
    return " ".join([text, *_pickles_in(text)])


def _pickles_in(text: str) -> Iterator[str]:
    """What a result that Prefect persisted holds, which it writes in base64."""
    for packed in re.findall(r"[A-Za-z0-9+/\n]{40,}=*", text):
        with suppress(ValueError):
            yield base64.b64decode(packed.replace("\n", ""), validate=True).decode("latin-1")


def _rows_of(path: Path) -> str:
    """All values of all tables; what is still in the write-ahead log is read as well."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as raw:
        raw.text_factory = lambda value: value.decode(errors="replace")
        tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = [row for (name,) in tables for row in raw.execute(f'SELECT * FROM "{name}"')]
    raw.close()
    return " ".join(
        value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for row in rows
        for value in row
    )


def naming(words: Iterable[str], paths: Iterable[Path]) -> set[Path]:
    """The files that hold one of the words."""
    # Ids begin alike: of a file without their beginning none of them is looked for.
    wanted = defaultdict[str, list[str]](list)
    for word in words:
        wanted[word[:_BEGINNING]].append(word)
    found = set()
    for path in paths:
        if path.is_file():
            text = text_of(path)
            likely = (these for beginning, these in wanted.items() if beginning in text)
            found |= {path} if any(word in text for these in likely for word in these) else set()
    return found


def times_in(text: str, now: float) -> set[str]:
    """Times of day, and moments of the last day or so in seconds since 1970 or parts of them."""
    clocks = re.findall(r"(?<![\d:.])(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)(?![\d:])", text)
    moments = (one for one in re.findall(r"(?<![\w.])\d{10,19}(?![\w])", text))
    return set(clocks) | {
        one for one in moments if abs(float(f"{one[:10]}.{one[10:]}") - now) < 100_000
    }


def planned_numbers(folder: CampaignFolder) -> set[int]:
    """Whole numbers of a finished campaign's plan; how many came may be one of them by chance."""
    plan = json.dumps(folder.read_record()["plan"])
    aims = re.findall(r'"aim": (\d+)', folder.certificate.read_text(encoding="utf-8"))
    return {int(one) for one in [*re.findall(r"(?<![\w.])\d+(?![\w.])", plan), *aims]}


def counted(number: int, text: str) -> bool:
    """Whether a number stands in a text by itself, as 1437, 1,437 or 1437.0."""
    written = f"(?:{number}|{number:,})"
    return bool(re.search(rf"(?<![\w.,-]){written}(?:\.0+)?(?![\w%-]|[.,]\d)", text))
