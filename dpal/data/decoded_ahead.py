"""Records that are read and decoded while those before them are worked on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from torch import Tensor

from dpal.data.readers import RawBatch, decoded_of, decoding_threads
from dpal.data.sources import Source

Value = TypeVar("Value")

_END: Final = object()


def one_ahead(values: Generator[Value, None, None]) -> Generator[Value, None, None]:
    """Yields the same values, the next one of which is made in another thread meanwhile.

    Memory holds one more of them. What `values` raises comes where its value would have come.
    Whoever stops early waits until the value under way is made; an interrupt does not.

    Args:
      values: nobody else iterates over them, and they are closed at the end. They do not see what
        is set for the caller's thread alone, such as `torch.no_grad`.
    """
    thread, waits = ThreadPoolExecutor(1, thread_name_prefix="reading ahead"), True
    try:
        coming = thread.submit(next, values, _END)
        while True:
            try:
                value = coming.result()
            finally:
                del coming  # an error would hold itself by it, and what was read
            if value is _END:
                return
            coming = thread.submit(next, values, _END)
            yield value  # type: ignore[misc]  # whatever is not the end
            del value
    except BaseException as error:
        waits = isinstance(error, Exception | GeneratorExit)
        raise
    finally:
        thread.shutdown(wait=waits, cancel_futures=True)
        if waits:
            values.close()


def decoded_ahead(source: Source, batches: Iterator[RawBatch]) -> Iterator[tuple[RawBatch, Tensor]]:
    """Yields batches with their decoded records, which no extractor has seen yet.

    Args:
      source: whose records they are.
      batches: with the column of its records, n rows each.

    Returns:
      Each batch with its records (n, ...), as `decode` gives them.

    Raises:
      DataError: a record cannot be read.
    """
    name = source.content.value

    def decoded(batch: RawBatch) -> Tensor:
        column = batch.table.column(name)
        return decoded_of(source, column, rows=batch.numbers, threads=decoding_threads())

    return one_ahead((batch, decoded(batch)) for batch in batches)
