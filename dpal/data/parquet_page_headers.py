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
_USUAL, _LONGEST, _TIMES = 2**8, 2**24, 2**4  # bytes of a header; Arrow reads no longer ones

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
        try:
            header, position = _header(stream, position, end)
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
        position += packed


def _header(stream: Stretches, position: int, end: int) -> tuple[dict[int, Any], int]:
    """The header at a place of a column that goes on to an end, and where the header ends."""
    size = _USUAL
    while True:
        stream.seek(position)
        content = bytes(stream.read(min(size, end - position)))
        try:
            fields, length = _struct(content, 0, _DEEPEST)
        except IndexError:  # it goes on behind what was read
            if len(content) < size or size >= _LONGEST:
                raise EOFError from None
            size *= _TIMES
        else:
            return fields, position + length


# Each of these reads from one place of a header on, and says where what it read ends.


def _struct(content: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields by number: numbers and structs; of other kinds nothing is kept."""
    if depth == 0:
        raise ValueError("too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := content[at]) != _STOP:
        kind, step, at = head & 0x0F, head >> 4, at + 1
        if step:
            number += step
        else:
            number, at = _signed(content, at)
        if kind not in (_TRUE, _FALSE):  # these are their own value
            fields[number], at = _value(content, at, kind, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_I16, _I32, _I64):
        return _signed(content, at)
    if kind in (_TRUE, _FALSE, _BYTE):
        return content[at], at + 1
    if kind == _DOUBLE:
        content[at + 7]  # or a list of very many that are not there would be counted to its end
        return None, at + 8
    if kind == _BINARY:
        length, at = _unsigned(content, at)
        return None, at + length
    if kind in (_LIST, _SET):
        head, at = content[at], at + 1
        count = head >> 4
        if count == 0x0F:
            count, at = _unsigned(content, at)
        for _ in range(count):
            _, at = _value(content, at, head & 0x0F, depth - 1)
        return None, at
    if kind == _STRUCT:
        return _struct(content, at, depth - 1)
    raise ValueError(f"a value of kind {kind}")  # no header of a page has maps


def _unsigned(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := content[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | byte << shift, at + 1


def _signed(content: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag coding."""
    value, at = _unsigned(content, at)
    return (value >> 1) ^ -(value & 1), at
