"""Ledgers of two campaigns and a data set, and ways in which their database may be damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

COLUMNS = ("campaign", "kind", "release", "body", "recorded_at", "previous", "digest")
# What a cell may hold after damage, or after somebody's repair: any type that SQLite has.
CELLS: tuple[object, ...] = (
    *(None,) * 6,
    *(b"\xff\xfe\x00",) * 4,
    "hold",
    "reserve",
    "commit",
    "register",
    "block",
    b"plain",
    "",
    "\x00",
    "é\ud7ff",
    "[]",
    "{}",
    "null",
    '{"epsilon": null}',
    '{"a": ' + "9" * 5000 + "}",
    "[" * 5000,
    '"\\ud800"',
    "NaN",
    7,
    -1,
    2**62,
    1.5,
    "7" * 5000,
    "\ud800",
)


def damage(path: Path, choose: random.Random) -> str:
    """Damages the ledger at `path`; says how."""
    way = choose.choice(WAYS)
    return f"{way.__name__}: {way(path, choose)}"


def _opened(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None)
    # A table without constraints and triggers: whoever repairs a file by hand may leave one.
    file.execute("CREATE TABLE loose AS SELECT * FROM entries")
    for trigger in ("refuse_update", "refuse_delete", "only_next"):
        file.execute(f"DROP TRIGGER IF EXISTS entries_{trigger}")
    file.execute("DROP TABLE entries")
    file.execute("ALTER TABLE loose RENAME TO entries")
    return file


def _bound(value: object) -> object:
    """Lone surrogates reach a file as bytes that are no UTF-8."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode(errors="surrogatepass")
    return value


def write_cell(path: Path, column: str, value: object, *, row: int = 1) -> None:
    """Puts a value into a cell; bytes as what the file calls a text."""
    file = _opened(path)
    cast = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
    file.execute(f"UPDATE entries SET {column} = {cast} WHERE rowid = ?", (value, row))
    file.close()


def a_cell(path: Path, choose: random.Random) -> str:
    file = _opened(path)
    column, value = choose.choice((*COLUMNS, "sequence")), choose.choice(CELLS)
    rows = file.execute("SELECT count(*) FROM entries").fetchone()[0]
    row = choose.randint(1, rows)
    cast = "CAST(? AS TEXT)" if choose.random() < 0.3 and value is not None else "?"
    file.execute(f"UPDATE entries SET {column} = {cast} WHERE rowid = ?", (_bound(value), row))
    file.close()
    return f"{column} of {row} is {str(value)[:40]!r} ({cast})"


def a_byte(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(choose.choice((1, 1, 4, 64))):
        content[choose.randrange(len(content))] = choose.randrange(256)
    path.write_bytes(content)
    return "bytes"


def a_page(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    page = choose.randrange(max(1, len(content) // 4096))
    other = choose.choice((bytes(4096), b"\xff" * 4096, choose.randbytes(4096)))
    content[page * 4096 : (page + 1) * 4096] = other
    path.write_bytes(content)
    return f"page {page}"


def two_pages(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    one, other = choose.randrange(len(pages)), choose.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))
    return f"pages {one} and {other}"


def cut(path: Path, choose: random.Random) -> str:
    content = path.read_bytes()
    length = choose.choice((0, 1, 16, 100, 4096, choose.randrange(len(content))))
    path.write_bytes(content[:length])
    return f"to {length} bytes"


def rows_gone(path: Path, choose: random.Random) -> str:
    file = _opened(path)
    rows = file.execute("SELECT count(*) FROM entries").fetchone()[0]
    gone = choose.randint(1, rows)
    file.execute("DELETE FROM entries WHERE rowid = ?", (gone,))
    file.close()
    return f"row {gone}"


def a_column_gone(path: Path, choose: random.Random) -> str:
    file, column = _opened(path), choose.choice((*COLUMNS, "sequence"))
    if choose.random() < 0.5:
        file.execute(f"ALTER TABLE entries DROP COLUMN {column}")
    else:
        file.execute(f"ALTER TABLE entries RENAME COLUMN {column} TO other")
    file.close()
    return column


def the_version(path: Path, choose: random.Random) -> str:
    file, value = sqlite3.connect(path, isolation_level=None), choose.choice(CELLS)
    statement = choose.choice(
        (
            "UPDATE alembic_version SET version_num = ?",
            "DELETE FROM alembic_version WHERE version_num <> ?",
            "INSERT INTO alembic_version VALUES (coalesce(?, 'x'))",
        )
    )
    with suppress(sqlite3.Error):  # its own constraints hold
        file.execute(statement, (_bound(value),))
    file.close()
    return f"{statement[:6]} {str(value)[:20]!r}"


def another_file(path: Path, choose: random.Random) -> str:
    what = choose.choice(("text", "folder", "empty database", "gone", "parquet"))
    path.unlink()
    if what == "text":
        path.write_text("these are my notes\n" * 100)
    elif what == "folder":
        path.mkdir()
    elif what == "empty database":
        sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    elif what == "parquet":
        path.write_bytes(b"PAR1" + choose.randbytes(500) + b"PAR1")
    return what


WAYS: tuple[Callable[[Path, random.Random], str], ...] = (
    a_cell, a_cell, a_cell, a_cell, a_cell, a_cell,
    a_byte, a_byte, a_page, two_pages, cut, rows_gone, a_column_gone, the_version, another_file,
)  # fmt: skip


def fresh(original: Path, place: Path) -> Path:
    """A whole copy of a ledger at `place`, whatever is there."""
    for path in place.parent.glob(f"{place.name}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copy(original, place)
    return place
