"""Ways in which a Parquet file may be damaged, mistyped or meant otherwise."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SURROGATE = "\ud800".encode(errors="surrogatepass")


def damage(path: Path, choose: random.Random) -> str:
    """Damages a file; says how. Writers refuse some of it: then another way is tried."""
    while True:
        way = choose.choice(WAYS)
        try:
            return f"{way.__name__}: {way(path, choose)}"
        except (pa.ArrowException, TypeError, OverflowError):
            continue


# Bytes.


def a_byte(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(choose.choice((1, 1, 3, 40))):
        content[choose.randrange(len(content))] = choose.randrange(256)
    path.write_bytes(content)
    return ""


def a_byte_of_the_footer(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    for _ in range(choose.choice((1, 1, 2, 8))):
        content[-choose.randint(1, length + 8)] = choose.randrange(256)
    path.write_bytes(content)
    return ""


def a_run(path: Path, choose: random.Random) -> str:
    content = bytearray(path.read_bytes())
    start = choose.randrange(len(content))
    length = min(choose.choice((8, 64, 512)), len(content) - start)
    content[start : start + length] = choose.choice((bytes(length), choose.randbytes(length)))
    path.write_bytes(content)
    return f"{start} {length}"


def cut(path: Path, choose: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: choose.choice((0, 3, 4, 8, 12, choose.randrange(len(content))))])
    return ""


# Columns.


def _column(path: Path, choose: random.Random) -> tuple[pa.Table, str]:
    table = pq.read_table(path)
    return table, choose.choice(table.column_names)


def _replaced(path: Path, table: pa.Table, name: str, values: Any) -> None:
    at = table.schema.get_field_index(name)
    # Not twice the same type: readers take from the file what it says of itself.
    pq.write_table(table.set_column(at, name, values), path, store_schema=len(values) % 2 == 0)


def _any(choose: random.Random, count: int) -> pa.Array:
    """A column of some other type."""
    day = datetime.datetime(2026, 1, 1)
    made: list[Callable[[], pa.Array]] = [
        lambda: pa.array(range(count)),
        lambda: pa.array([2**63 + at for at in range(count)], pa.uint64()),
        lambda: pa.array([-at for at in range(count)]),
        lambda: pa.array([10**12 + at for at in range(count)]),
        lambda: pa.array([at / 3 for at in range(count)]),
        lambda: pa.array([float("nan")] * count, pa.float16()),
        lambda: pa.array([f"x{at}" for at in range(count)]),
        lambda: pa.array([f"x{at}" for at in range(count)], pa.large_string()),
        lambda: pa.array([f"x{at}" for at in range(count)], pa.string_view()),
        lambda: pa.array([f"x{at % 3}" for at in range(count)]).dictionary_encode(),
        lambda: pa.array([b"\x89PNG" for _ in range(count)]),
        lambda: pa.array([b"\x89PNG" for _ in range(count)], pa.binary_view()),
        lambda: pa.array([b"sixteen" for _ in range(count)], pa.binary(7)),
        lambda: pa.array([at % 2 == 0 for at in range(count)]),
        lambda: pa.array([day] * count),
        lambda: pa.array([day.date()] * count),
        lambda: pa.array([datetime.timedelta(1)] * count),
        lambda: pa.array([decimal.Decimal("1.5")] * count),
        lambda: pa.nulls(count),
        lambda: pa.nulls(count, pa.string()),
        lambda: pa.array([[f"x{at}"] for at in range(count)]),
        lambda: pa.array([[at, 7] for at in range(count)]),
        lambda: pa.array([[0.0, 1.0]] * count),
        lambda: pa.array([[]] * count, pa.list_(pa.float32())),
        lambda: pa.array([[]] * count, pa.list_(pa.int8())),
        lambda: pa.array([[[1]]] * count),
        lambda: pa.array([[1, 0]] * count, pa.large_list(pa.int8())),
        lambda: pa.array([[1, 0]] * count, pa.list_view(pa.int8())),
        lambda: pa.array([{"a": 1, "b": "x"}] * count),
        lambda: pa.array([[("k", 1)]] * count, pa.map_(pa.string(), pa.int64())),
    ]
    return choose.choice(made)()


def another_type(path: Path, choose: random.Random) -> str:
    table, name = _column(path, choose)
    values = _any(choose, len(table))
    _replaced(path, table, name, values)
    return f"{name} {values.type}"


def nulls(path: Path, choose: random.Random) -> str:
    table, name = _column(path, choose)
    values = table[name].to_pylist()
    for at in range(len(values)):
        if choose.random() < choose.choice((0.01, 0.5, 1)):
            values[at] = None
    _replaced(path, table, name, pa.array(values, table[name].type))
    return name


def no_text(path: Path, choose: random.Random) -> str:
    table = pq.read_table(path)
    name = choose.choice([one.name for one in table.schema if pa.types.is_string(one.type)])
    values = [value.encode() for value in table[name].to_pylist()]
    values[choose.randrange(len(values))] = choose.choice((b"\xff", SURROGATE, b"\xc3"))
    _replaced(path, table, name, pa.array(values).view(pa.string()))
    return name


def odd_texts(path: Path, choose: random.Random) -> str:
    table = pq.read_table(path)
    name = choose.choice([one.name for one in table.schema if pa.types.is_string(one.type)])
    values = table[name].to_pylist()
    values[choose.randrange(len(values))] = choose.choice(("", "\0", "a\nb", "x" * 3_000_000))
    _replaced(path, table, name, pa.array(values))
    return name


def lengths(path: Path, choose: random.Random) -> str:
    """Lists of other lengths, and with other content."""
    table = pq.read_table(path)
    names = [one.name for one in table.schema if pa.types.is_list(one.type)]
    if not names:
        return another_type(path, choose)
    name = choose.choice(names)
    values = table[name].to_pylist()
    at = choose.randrange(len(values))
    old = values[at]
    wrong: tuple[object, ...] = ([], old[:-1], [*old, 1], [None] * len(old), None)
    values[at] = choose.choice(wrong)
    if choose.random() < 0.2:
        values = [[]] * len(values)
    _replaced(path, table, name, pa.array(values, table.schema.field(name).type))
    return name


def numbers(path: Path, choose: random.Random) -> str:
    table = pq.read_table(path)
    names = [one.name for one in table.schema if pa.types.is_integer(one.type)]
    if not names:
        return another_type(path, choose)
    name = choose.choice(names)
    values = table[name].to_pylist()
    values[choose.randrange(len(values))] = choose.choice((-1, 7, 10**6, 2**62, -(2**63)))
    _replaced(path, table, name, pa.array(values, pa.int64()))
    return name


def gone(path: Path, choose: random.Random) -> str:
    table, name = _column(path, choose)
    pq.write_table(table.drop_columns([name]), path)
    return name


def renamed(path: Path, choose: random.Random) -> str:
    table, name = _column(path, choose)
    other = choose.choice(("ID", "", "id ", "a.b", f"{name}.x", "é", "split", "group", "\x00"))
    names = [other if one == name else one for one in table.column_names]
    pq.write_table(table.rename_columns(names), path)
    return f"{name} to {other!r}"


def twice(path: Path, choose: random.Random) -> str:
    table, name = _column(path, choose)
    pq.write_table(table.append_column(name, table[name]), path)
    return name


def one_more(path: Path, choose: random.Random) -> str:
    """A column that means something: of another type, and maybe two of a kind."""
    table = pq.read_table(path)
    name = choose.choice(("split", "split", "image", "features", "text_a", "group", "class"))
    for _ in range(choose.choice((1, 2))):
        table = table.append_column(name, _any(choose, len(table)))
    pq.write_table(table, path)
    return name


# Rows, and what is said about all.


def rows(path: Path, choose: random.Random) -> str:
    table = pq.read_table(path)
    how = choose.choice(("none", "twice", "fewer", "groups"))
    if how == "none":
        table = table.slice(0, 0)
    elif how == "twice":
        table = pa.concat_tables([table, table.slice(choose.randrange(len(table)), 3)])
    elif how == "fewer":
        table = table.slice(0, choose.randrange(1, len(table)))
    pq.write_table(table, path, row_group_size=7 if how == "groups" else None)
    return how


def names(path: Path, choose: random.Random) -> str:
    table = pq.read_table(path)
    stored = choose.choice(
        (
            b"\xff\xfe",
            b"",
            b"{}",
            b"7",
            b'"ab"',
            b"[1, 2, 3, 4]",
            b'["a", "a", "a", "a"]',
            b'["\\ud800", "b", "c", "d"]',
            b"[" * 5000,
            b'["' + b"9" * 5000 + b'", "b"]',
            b"[" + b"9" * 5000 + b", 2]",
            json.dumps(["=1+1", "b", "c", "d"]).encode(),
        )
    )
    pq.write_table(table.replace_schema_metadata({b"class_names": stored}), path)
    return repr(stored[:20])


def another_file(path: Path, choose: random.Random) -> str:
    what = choose.choice(("text", "csv", "empty", "folder", "gone", "arrow"))
    table = pq.read_table(path)
    path.unlink()
    if what == "text":
        path.write_text("id,label\n" * 50)
    elif what == "csv":
        path.write_bytes(b"PAR1" + b"id,label\n" * 9 + b"PAR1")
    elif what == "empty":
        path.touch()
    elif what == "folder":
        path.mkdir()
    elif what == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return what


WAYS: tuple[Callable[[Path, random.Random], str], ...] = (
    a_byte, a_byte, a_byte_of_the_footer, a_byte_of_the_footer, a_run, a_run, cut,
    another_type, another_type, another_type, another_type, nulls, nulls, no_text, no_text,
    odd_texts, lengths, lengths, numbers, gone, renamed, twice, one_more, one_more, rows, names,
    another_file,
)  # fmt: skip
