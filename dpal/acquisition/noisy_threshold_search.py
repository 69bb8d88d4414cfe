"""Score thresholds found by noisy counts.

A record's key is its score on a coarse grid, followed by random bits that break ties. A
binary search over keys asks at every halving how many records lie above; each answer has
Gaussian noise, so the search depends on any one record through counts of sensitivity 1.

Where the search begins at the validation set's quantile, keys are the cuts of
`validation_start` that a record's fine key reaches, few and close together around the quantile.
They only steer the search: one more count of its own accepts the threshold or nobody.

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
FineKeys = NDArray[np.uint32]

_TIE_BITS = LEAST_KEY_BITS - 1  # sixteen ways to order records whose scores look the same
_FINE_TIE_BITS = 12  # of 32


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


def fine_keys(scores: Scores, *, width: float, rng: BitSource) -> FineKeys:
    """Turns scores into keys of 32 bits, fine enough for any cut; shape (n,).

    Args:
      scores: (n,) in [0, width].
      width: of the public score range.
      rng: breaks ties; no record has a say in it.

    Raises:
      ParameterError: a score lies outside of the range. Nothing was released.
    """
    check.positive(width=width)
    return _keys_of(scores, width, 32, _FINE_TIE_BITS, rng).astype(np.uint32)


def collect_keys(
    scored: Iterable[tuple[Rows, Scores]],
    *,
    width: float,
    bits: int,
    rng: BitSource,
    cuts: FineKeys | None = None,
) -> Keys:
    """Turns a stream of scores into keys.

    Args:
      scored: batches of row numbers and their scores in [0, width].
      width: of the public score range.
      bits: of a key, at most 16.
      rng: breaks ties; no record has a say in it.
      cuts: (2**bits - 1,) public fine keys, ascending: a key is how many of them are reached.
        None divides the range of scores evenly.

    Raises:
      ParameterError: a score lies outside of the range. Nothing was released.
    """
    check.positive(width=width)
    check.within(1 if cuts is not None else LEAST_KEY_BITS, KEY_BITS, bits=bits)
    if cuts is not None and cuts.shape != ((1 << bits) - 1,):
        raise ParameterError.before_release(f"{bits} comparisons tell {1 << bits} keys apart")
    rows: list[NDArray[np.uint32]] = []
    keys: list[NDArray[np.uint16]] = []
    for batch, scores in scored:
        if cuts is None:
            keys.append(_keys_of(scores, width, bits, _TIE_BITS, rng).astype(np.uint16))
        else:
            reached = np.searchsorted(cuts, fine_keys(scores, width=width, rng=rng), side="right")
            keys.append(reached.astype(np.uint16))
        rows.append(batch.astype(np.uint32))
    if not rows:
        return Keys(np.empty(0, np.uint32), np.empty(0, np.uint16), bits)
    return Keys(np.concatenate(rows), np.concatenate(keys), bits)


def _keys_of(
    scores: Scores, width: float, bits: int, tie_bits: int, rng: BitSource
) -> NDArray[np.uint64]:
    """Scores on a grid, followed by random bits."""
    if not ((scores >= 0) & (scores <= width)).all():
        raise ParameterError.before_release(f"a score lies outside of [0, {width:g}]")
    levels = 1 << (bits - tie_bits)
    level = np.minimum((scores * (levels / width)).astype(np.uint64), np.uint64(levels - 1))
    ties = rng.words(scores.size) >> np.uint64(64 - tie_bits)
    return (level << np.uint64(tie_bits)) | ties


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


@dataclass(frozen=True, kw_only=True)
class AcceptedThreshold:
    """What the confirming count leaves of a search.

    Attributes:
      threshold: that records have to reach; 2**bits lets nobody pass.
      noisy_count: of the records that reach it; exactly 0 where nobody may.
    """

    threshold: int
    noisy_count: int


def confirm_threshold(
    keys: Keys, threshold: int, *, limit: int, count_noise: float, rng: BitSource
) -> AcceptedThreshold:
    """Counts once more, and more precisely, who reaches a threshold; too many are nobody.

    Args:
      keys: of the records of the pool.
      threshold: what the search came to.
      limit: the largest noisy count that is accepted.
      count_noise: standard deviation of the noise on the count.
      rng: source of the noise.
    """
    check.positive(count_noise=count_noise)
    above = np.array([keys.above(threshold).sum()], dtype=np.float64)
    noisy_count = int(np.rint(noisy_sum(above, count_noise, rng=rng)[0]))
    nobody = 1 << keys.bits
    if threshold == nobody or noisy_count > limit:
        return AcceptedThreshold(threshold=nobody, noisy_count=0)
    return AcceptedThreshold(threshold=threshold, noisy_count=noisy_count)
