"""Shares of signs add up for every number that has one, and are wrong for a wrong opening."""

from __future__ import annotations

import numpy as np

from dpal.capc.ring import MOST_FEATURES, ring_product, to_ring
from dpal.capc.shared_signs import deal_signs, sign_keys, sign_shares
from dpal.randomness import secure

EDGES = [0, -1, 1, (1 << 31) - 1, -(1 << 31), (1 << 30), -(1 << 30)]


def signs_of(numbers: np.ndarray) -> np.ndarray:
    seeds, salt = [secure().words(4).tobytes() for _ in range(2)], bytes(32)
    keys = [sign_keys(seed, "signs", numbers.size) for seed in seeds]
    corrections = deal_signs(keys[0], keys[1], salt)
    opened = to_ring(numbers) + keys[0].masks + keys[1].masks
    first, second = (sign_shares(opened, at, keys[at], corrections, salt) for at in (0, 1))
    return first + second


def test_the_sign_of_every_kind_of_number_is_found():
    numbers = secure().words(20_000).astype(np.uint32).view(np.int32).astype(np.int64)
    numbers[: 100 * len(EDGES)] = np.tile(EDGES, 100)
    assert (signs_of(numbers) == (numbers >= 0)).all()


def test_parts_of_corrections_are_those_of_their_numbers():
    seeds = [secure().words(4).tobytes() for _ in range(2)]
    first, second = sign_keys(seeds[0], "signs", 6), sign_keys(seeds[1], "signs", 6)
    whole, salt = deal_signs(first, second, bytes(32)), bytes(32)
    part = whole.part(2, 4)
    opened = np.arange(6, dtype=np.uint32) * np.uint32(1 << 29)
    assert (sign_shares(opened, 1, second, whole, salt)[2:4] == sign_shares(
        opened[2:4], 1, type(second)(second.masks[2:4], second.roots[2:4], second.tops[2:4]),
        part, salt)).all()  # fmt: skip


def test_products_of_the_ring_are_those_of_whole_numbers():
    left = secure().words(3 * MOST_FEATURES).astype(np.uint32).reshape(3, -1)
    right = secure().words(2 * MOST_FEATURES).astype(np.uint32).reshape(-1, 2)
    left[0], right[:, 0] = 0xFFFFFFFF, 0xFFFFFFFF  # the largest sums there are
    exact = left.astype(object) @ right.astype(object) % (1 << 32)
    assert (ring_product(left, right) == exact.astype(np.uint32)).all()
