"""Both parties' results add up to the value below the point, and each one's is uniform."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import scipy

from dpal.capc.distributed_comparison import (
    NodeGenerator,
    comparison_shares,
    deal_comparisons,
    root_seeds,
)
from dpal.randomness import secure

FALSE_ALARM = 1e-9
# Digest of keys and shares, by the first version.
EARLIER = "44fc882734546a57457dc3077cabc6acbd8455b47eb3cf01ee684303c3ad5094"


def dealt(points, values, levels):
    roots = np.stack([root_seeds(secure().words(2 * points.size)) for _ in range(2)])
    generator = NodeGenerator(secure().words(4).tobytes())
    return roots, deal_comparisons(points, values, roots, generator, levels=levels), generator


def results(points, values, numbers, levels):
    roots, corrections, generator = dealt(points, values, levels)
    return [
        comparison_shares(numbers, party, roots[party], corrections, generator) for party in (0, 1)
    ]


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_every_number_is_compared_with_every_point(levels):
    grid = np.meshgrid(np.arange(1 << levels), np.arange(1 << levels))
    points, numbers = (axis.ravel().astype(np.uint32) for axis in grid)
    values = secure().words(points.size).astype(np.uint32)
    first, second = results(points, values, numbers, levels)
    assert (first + second == np.where(numbers < points, values, 0)).all()


def test_numbers_beside_the_point_and_at_both_ends():
    points = (secure().words(2_000) >> np.uint64(33)).astype(np.uint32)
    points[:3] = 0, 1, (1 << 31) - 1
    values = np.full(points.size, 7, dtype=np.uint32)
    for numbers in (points, points - np.uint32(1), points + np.uint32(1),
                    np.zeros_like(points), np.full_like(points, (1 << 31) - 1)):  # fmt: skip
        numbers = np.minimum(numbers & np.uint32((1 << 31) - 1), (1 << 31) - 1).astype(np.uint32)
        first, second = results(points, values, numbers, 31)
        assert (first + second == np.where(numbers < points, 7, 0)).all()


def test_keys_are_those_of_earlier_versions_and_more_than_are_dealt_at_once_too():
    """Parties of two versions can vote together: from the same seeds the same keys, to the bit."""
    count = 8_500
    words = np.arange(6 * count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    points = (words[:count] >> np.uint64(33)).astype(np.uint32)
    values = (words[count : 2 * count] >> np.uint64(32)).astype(np.uint32)
    roots = np.stack([root_seeds(words[2 * count : 4 * count]), root_seeds(words[4 * count :])])
    before, generator = roots.copy(), NodeGenerator(bytes(range(32)))
    found = deal_comparisons(points, values, roots, generator, levels=31)
    shares = [comparison_shares(points ^ np.uint32(5), party, roots[party], found, generator)
              for party in (0, 1)]  # fmt: skip
    assert (shares[0] + shares[1] == np.where(points ^ np.uint32(5) < points, values, 0)).all()
    parts: list[np.ndarray] = [found.seeds, found.values, found.turns, *shares]
    told = b"".join(part.tobytes() for part in parts)
    assert hashlib.sha256(told).hexdigest() == EARLIER
    assert (roots == before).all()


@pytest.mark.statistical
def test_what_a_party_holds_is_uniform_whatever_is_hidden():
    """All bytes of corrections and results of one fixed point; a false alarm in 1e9 runs or so."""
    count = 4_000
    points, values = np.full(count, 3, dtype=np.uint32), np.full(count, 1, dtype=np.uint32)
    roots, corrections, generator = dealt(points, values, 31)
    held = [corrections.values, corrections.seeds >> np.uint64(8), corrections.turns << 1,
            comparison_shares(points, 0, roots[0], corrections, generator),
            comparison_shares(points, 1, roots[1], corrections, generator)]  # fmt: skip
    for part in (*held[:1], held[1] & np.uint64(0xFFFFFFFF), held[2], *held[3:]):
        middle = (part.astype(np.uint64) >> np.uint64(8)).astype(np.uint8)
        assert uniform_enough(middle), part.shape
    assert not uniform_enough((points - values).astype(np.uint8)), "power"


def uniform_enough(values: np.ndarray) -> bool:
    found = np.bincount(values.ravel(), minlength=256)
    return scipy.stats.chisquare(found).pvalue > FALSE_ALARM
