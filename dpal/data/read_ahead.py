"""Records that are read and decoded while those before them are worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from torch import Tensor

from dpal.data.pictures import DECODING_THREADS
from dpal.data.readers import RawBatch, decoded_of
from dpal.data.sources import Source

Value = TypeVar("Value")

_END: Final = object()


def read_ahead(values: Iterator[Value]) -> Iterator[Value]:
    """Yields the same values, the next one of which is made in a thread meanwhile.

    Memory holds one more of them. An error comes where its value would have come.

    Args:
      values: nobody else iterates over them.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="reading ahead") as thread:
        coming = thread.submit(next, values, _END)
        while (value := coming.result()) is not _END:
            coming = thread.submit(next, values, _END)
            yield value  # type: ignore[misc]  # whatever is not the end


def decoded_ahead(source: Source, batches: Iterator[RawBatch]) -> Iterator[tuple[RawBatch, Tensor]]:
    """Yields batches with their decoded records, which no extractor has seen yet.

    Args:
      source: whose records they are.
      batches: with the column of its records.

    Raises:
      DataError: a record cannot be read.
    """
    name = source.content.value

    def decoded(batch: RawBatch) -> Tensor:
        column = batch.table.column(name)
        return decoded_of(source, column, rows=batch.numbers, threads=DECODING_THREADS)

    return read_ahead((batch, decoded(batch)) for batch in batches)
