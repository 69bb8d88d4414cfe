"""What the pages of a Parquet file unpack to, read off their headers before any is unpacked.

Whoever reads a page makes room for as much as its header says: a file of 10 KB can ask for
gigabytes. pyarrow does not show these headers, so they are read here: structs in Thrift's
compact protocol, of which four numbers are wanted and the rest is skipped.

Source: https://github.com/apache/parquet-format (parquet.thrift, PageHeader),
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow.parquet as pq

# Kinds of values in the compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET = range(11)
_STRUCT = 12
_DEEPEST = 8

# Numbers of fields: in a page's header; of data pages in both versions of the format, and of a
# dictionary; in each of these.
_UNPACKED, _PACKED = 2, 3
_DATA, _DICTIONARY = (5, 8), 7
_VALUES = 1


class Stretches(Protocol):
    """What a file is read from: bytes from one place on."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a place."""
        ...

    def tell(self) -> int:
        """Where it is."""
        ...

    def read(self, size: int = -1, /) -> Any:
        """Bytes, fewer at the end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page as its header describes it.

    Attributes:
      unpacked: bytes after decompression.
      values: in it, those of lists counted one by one.
    """

    unpacked: int
    values: int


def pages_of(stream: Stretches, column: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """Yields the pages of a column in one row group.

    Args:
      stream: the file, opened for reading; its position is changed.
      column: from the file's metadata.

    Raises:
      ValueError: a header cannot be read.
    """
    first = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        first = min(first, column.dictionary_page_offset)
    position, end, seen = first, first + column.total_compressed_size, 0
    while position < end and seen < column.num_values:
        stream.seek(position)
        try:
            header = _struct(stream, _DEEPEST)
            unpacked, packed = int(header[_UNPACKED]), int(header[_PACKED])
            data = next((field for field in _DATA if field in header), None)
            about = header[_DICTIONARY] if data is None else header[data]
            values = int(about[_VALUES])
        except (EOFError, KeyError, TypeError, ValueError) as error:
            raise ValueError("a page has no header that can be read") from error
        if min(unpacked, packed, values) < 0:
            raise ValueError("a page has a negative size")
        yield Page(unpacked=unpacked, values=values)
        seen += 0 if data is None else values
        position = stream.tell() + packed


def _struct(stream: Stretches, depth: int) -> dict[int, Any]:
    """Fields by number: numbers and structs; of other kinds nothing is kept."""
    if depth == 0:
        raise ValueError("too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := _byte(stream)) != _STOP:
        kind, step = head & 0x0F, head >> 4
        number = number + step if step else _signed(stream)
        if kind not in (_TRUE, _FALSE):  # these are their own value
            fields[number] = _value(stream, kind, depth)
    return fields


def _value(stream: Stretches, kind: int, depth: int) -> Any:
    if kind in (_I16, _I32, _I64):
        return _signed(stream)
    if kind in (_TRUE, _FALSE, _BYTE):
        return _byte(stream)
    if kind == _DOUBLE:
        return _skip(stream, 8)
    if kind == _BINARY:
        return _skip(stream, _unsigned(stream))
    if kind in (_LIST, _SET):
        head = _byte(stream)
        count = head >> 4 if head >> 4 < 0x0F else _unsigned(stream)
        for _ in range(count):
            _value(stream, head & 0x0F, depth - 1)
        return None
    if kind == _STRUCT:
        return _struct(stream, depth - 1)
    raise ValueError(f"a value of kind {kind}")  # no header of a page has maps


def _byte(stream: Stretches) -> int:
    byte = stream.read(1)
    if not byte:
        raise EOFError
    return int(byte[0])


def _unsigned(stream: Stretches) -> int:
    value = shift = 0
    while True:
        byte = _byte(stream)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _signed(stream: Stretches) -> int:
    """A number in zigzag coding."""
    value = _unsigned(stream)
    return (value >> 1) ^ -(value & 1)


def _skip(stream: Stretches, count: int) -> None:
    stream.seek(count, 1)
