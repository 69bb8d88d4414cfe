"""Score thresholds found by noisy counts.

A record's key is its score on a coarse grid, followed by random bits that break ties. A
binary search over keys asks at every halving how many records lie above; each answer has
Gaussian noise, so the search depends on any one record through counts of sensitivity 1.

Keys stay in memory, six bytes a record; nothing else grows with the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import noisy_sum
from dpal.planning.selection_steps import KEY_BITS, LEAST_KEY_BITS
from dpal.randomness import BitSource

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]

_TIE_BITS = LEAST_KEY_BITS - 1  # sixteen ways to order records whose scores look the same


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of all records that may be selected.

    Attributes:
      rows: (n,) row numbers.
      keys: (n,) uint16; larger is more wanted.
      bits: how many bits of a key are used.
    """

    rows: NDArray[np.uint32]
    keys: NDArray[np.uint16]
    bits: int

    def above(self, threshold: int) -> NDArray[np.bool_]:
        """Which records have at least this key, shape (n,)."""
        # 2**16 is a threshold that no key reaches, and no uint16 either.
        return self.keys.astype(np.uint32) >= threshold


def collect_keys(
    scored: Iterable[tuple[Rows, Scores]], *, width: float, bits: int, rng: BitSource
) -> Keys:
    """Turns a stream of scores into keys.

    Args:
      scored: batches of row numbers and their scores in [0, width].
      width: of the public score range.
      bits: of a key, at most 16.
      rng: breaks ties; no record has a say in it.

    Raises:
      ParameterError: a score lies outside of the range. Nothing was released.
    """
    check.positive(width=width)
    check.within(LEAST_KEY_BITS, KEY_BITS, bits=bits)
    levels = 1 << (bits - _TIE_BITS)
    rows: list[NDArray[np.uint32]] = []
    keys: list[NDArray[np.uint16]] = []
    for batch, scores in scored:
        if not ((scores >= 0) & (scores <= width)).all():
            raise ParameterError.before_release(f"a score lies outside of [0, {width:g}]")
        level = np.minimum((scores * (levels / width)).astype(np.uint64), np.uint64(levels - 1))
        ties = rng.words(batch.size) >> np.uint64(64 - _TIE_BITS)
        rows.append(batch.astype(np.uint32))
        keys.append(((level << np.uint64(_TIE_BITS)) | ties).astype(np.uint16))
    if not rows:
        return Keys(np.empty(0, np.uint32), np.empty(0, np.uint16), bits)
    return Keys(np.concatenate(rows), np.concatenate(keys), bits)


def noisy_threshold(keys: Keys, *, aim: int, count_noise: float, rng: BitSource) -> int:
    """Finds the lowest key above which no more than `aim` records seem to lie.

    Every one of `keys.bits` counts gets noise of its own; a key is accepted only on its
    own noisy count, so that too many above it means that this one noise value was low.

    Args:
      keys: of the records of the pool.
      aim: records that may lie above.
      count_noise: standard deviation of the noise on one count.
      rng: source of the noise.

    Returns:
      A threshold between 1 and 2**bits; the latter lets nobody pass.
    """
    check.positive(count_noise=count_noise)
    histogram = np.bincount(keys.keys, minlength=1 << keys.bits)
    at_least = np.append(np.cumsum(histogram[::-1])[::-1], 0)
    low, high = 0, 1 << keys.bits
    for _ in range(keys.bits):
        middle = (low + high) // 2
        count = np.array([at_least[middle]], dtype=np.float64)
        # Counts are whole numbers; rounding a noisy one only processes it.
        if np.rint(noisy_sum(count, count_noise, rng=rng)[0]) <= aim:
            high = middle
        else:
            low = middle
    return high
