"""A tenth of a pool drawn from a stream of small batches, beside sorting all of it in memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dpal.acquisition.selection import select_at_random
from dpal.data.readers import BATCH_ROWS
from dpal.randomness import secure

pytestmark = pytest.mark.slow

ROUNDS, RECORDS, DRAWN = 3, 4_000_000, 400_000


def test_drawing_from_a_stream_takes_no_longer_than_a_few_sorts_of_the_pool():
    rng = secure()
    streamed, sorted_whole = [], []
    for _ in range(ROUNDS):
        start = time.process_time()
        batches = (
            np.arange(first, min(first + BATCH_ROWS, RECORDS))
            for first in range(0, RECORDS, BATCH_ROWS)
        )
        assert select_at_random(batches, DRAWN, rng=rng).rows.size == DRAWN
        streamed.append(time.process_time() - start)
        start = time.process_time()
        np.argsort(rng.words(RECORDS))
        sorted_whole.append(time.process_time() - start)
    ratio = min(streamed) / min(sorted_whole)
    assert ratio < 6, f"{ratio:.2f}"
