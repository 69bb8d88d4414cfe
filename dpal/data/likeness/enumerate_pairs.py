"""Pairs of records that may be alike, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpal.data.likeness.record_sketches import Rows


def pairs_in(begin: Rows, end: Rows, at_once: int) -> Iterator[tuple[Rows, Rows]]:
    """Yields all pairs of a record and a place in its own range.

    Args:
      begin: (n,) first place of each record's range.
      end: (n,) place after its last.
      at_once: how many pairs are made at a time, or those of one record.

    Yields:
      Records, and places, one of each for every pair.
    """
    counts = end - begin
    edges = np.concatenate([[0], np.cumsum(counts)])
    start = 0
    while start < counts.size:
        stop = int(np.searchsorted(edges, edges[start] + at_once, side="right")) - 1
        stop = max(stop, start + 1)
        some = np.arange(start, stop)
        records = np.repeat(some, counts[some])
        within = np.arange(records.size) - np.repeat(edges[some] - edges[start], counts[some])
        yield records, begin[records] + within
        start = stop
