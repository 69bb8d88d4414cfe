"""Distributed comparison functions: two parties compare a public number with a hidden one.

A dealer hides a point and a value in two keys. Each key by itself is uniform. For any number x,
the parties' results add up (modulo 2**32) to the value if x is below the point, else to 0. All
comparisons of a batch are worked on together, one level of their trees at a time.

The generator of a tree's nodes is AES under a fixed key, made one-way by adding its input, on
blocks that a linear map has mixed: correlation robust for an ideal permutation. Keys of AES come
from a salt that is drawn for each batch.

Source: Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar & Rathee (2021), "Function secret sharing for
mixed-mode and fixed-point secure computation", Fig. 1; the generator: Guo, Katz, Wang & Yu (2020),
"Efficient and secure multiparty computation from fixed-key block ciphers".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from dpal.capc.key_streams import derived_key
from dpal.capc.ring import Ring
from dpal.randomness import Words

Bits = NDArray[np.uint8]

SALT_BYTES: Final = 32

_ONE = np.uint64(1)
_HIGH = np.uint64(32)
_MINUS_ONE = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Corrections:
    """What both parties of n comparisons are told alike; uniform to each of them.

    Attributes:
      seeds: (levels, n, 2) 64-bit words.
      values: (levels + 1, n).
      turns: (2, n) for left and right turns, a bit for each level.
    """

    seeds: Words
    values: Ring
    turns: Ring

    def part(self, start: int, stop: int) -> Corrections:
        """Those of some of the comparisons."""
        return Corrections(
            self.seeds[:, start:stop], self.values[:, start:stop], self.turns[:, start:stop]
        )


@dataclass(frozen=True)
class NodeGenerator:
    """Doubles seeds of 127 bits: two more of them, two bits, and two numbers of the ring."""

    salt: bytes

    @cached_property
    def _ciphers(self) -> tuple[CipherContext, CipherContext, CipherContext]:
        def cipher(purpose: str) -> CipherContext:
            key = derived_key(self.salt, purpose)
            return Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305

        return cipher("left"), cipher("right"), cipher("values")

    def children(self, seeds: Words) -> tuple[tuple[Words, Bits, Ring], tuple[Words, Bits, Ring]]:
        """The left and the right child of each node: seed, bit, number.

        Args:
          seeds: (..., 2) words.
        """
        mixed = np.empty_like(seeds)
        mixed[..., 0] = seeds[..., 0] ^ seeds[..., 1]
        mixed[..., 1] = seeds[..., 0]
        left, right, values = (self._one_way(cipher, mixed) for cipher in self._ciphers)
        numbers = values[..., 0]
        children = []
        for block, number in ((left, numbers), (right, numbers >> _HIGH)):
            bits = (block[..., 0] & _ONE).astype(np.uint8)
            block[..., 0] &= ~_ONE
            children.append((block, bits, number.astype(np.uint32)))
        return children[0], children[1]

    @staticmethod
    def _one_way(cipher: CipherContext, blocks: Words) -> Words:
        encrypted = np.frombuffer(cipher.update(blocks.data.cast("B")), dtype=np.uint64)
        return encrypted.reshape(blocks.shape) ^ blocks


def deal_comparisons(
    points: Ring, values: Ring, roots: Words, generator: NodeGenerator, *, levels: int
) -> Corrections:
    """Hides points and values.

    Args:
      points: (n,) below 2**levels.
      values: (n,) what results add up to for numbers below the point.
      roots: (2, n, 2) uniform seeds of both parties, the lowest bit 0.
      generator: of the batch.
      levels: bits of the numbers that are compared.
    """
    seeds, turned = roots, np.stack([np.zeros_like(points), np.ones_like(points)]).astype(np.uint8)
    reached = np.zeros_like(values)
    all_seeds, all_values = [], []
    all_turns = np.zeros((2, points.size), dtype=np.uint32)
    for level in range(levels):
        is_right = _bit(points, levels - 1 - level)
        bit = is_right.astype(np.uint8)
        left, right = generator.children(seeds)
        kept_seeds = np.where(is_right[:, None], right[0], left[0])
        kept_bits, kept_values = (np.where(is_right, right[i], left[i]) for i in (1, 2))
        lost_seeds = np.where(is_right[:, None], left[0], right[0])
        lost_values = np.where(is_right, left[2], right[2])
        sign = np.where(turned[1] == 1, _MINUS_ONE, np.uint32(1))
        seed_correction = lost_seeds[0] ^ lost_seeds[1]
        # Left of the path lie the smaller numbers, which get the value.
        value_correction = sign * (
            lost_values[1] - lost_values[0] - reached + np.where(is_right, values, np.uint32(0))
        )
        reached = reached - kept_values[1] + kept_values[0] + sign * value_correction
        turn_left = left[1][0] ^ left[1][1] ^ bit ^ np.uint8(1)
        turn_right = right[1][0] ^ right[1][1] ^ bit
        seeds = kept_seeds ^ _where_turned(turned, seed_correction)
        turned = kept_bits ^ (turned & np.where(is_right, turn_right, turn_left))
        all_seeds.append(seed_correction)
        all_values.append(value_correction)
        all_turns[0] |= turn_left.astype(np.uint32) << np.uint32(level)
        all_turns[1] |= turn_right.astype(np.uint32) << np.uint32(level)
    sign = np.where(turned[1] == 1, _MINUS_ONE, np.uint32(1))
    all_values.append(sign * (_leaf(seeds[1]) - _leaf(seeds[0]) - reached))
    return Corrections(np.stack(all_seeds), np.stack(all_values), all_turns)


def comparison_shares(
    numbers: Ring, party: int, roots: Words, corrections: Corrections, generator: NodeGenerator
) -> Ring:
    """One party's (n,) results: with the other's they add up to the value below the point, or 0.

    Args:
      numbers: (n,) public numbers.
      party: 0 or 1.
      roots: (n, 2) its own seeds.
      corrections: of both.
      generator: of the batch.
    """
    levels = len(corrections.seeds)
    seeds, turned = roots, np.full(numbers.size, party, dtype=np.uint8)
    total = np.zeros(numbers.size, dtype=np.uint32)
    for level in range(levels):
        is_right = _bit(numbers, levels - 1 - level)
        left, right = generator.children(seeds)
        next_seeds = np.where(is_right[:, None], right[0], left[0])
        bits, values = (np.where(is_right, right[i], left[i]) for i in (1, 2))
        total += values + turned * corrections.values[level]
        turns = np.where(is_right, corrections.turns[1], corrections.turns[0])
        turn = _bit(turns, level).astype(np.uint8)
        seeds = next_seeds ^ _where_turned(turned, corrections.seeds[level])
        turned = bits ^ (turned & turn)
    total += _leaf(seeds) + turned * corrections.values[levels]
    return total if party == 0 else np.uint32(0) - total


def root_seeds(words: Words) -> Words:
    """Uniform words, as seeds of trees: (n, 2), the lowest bit 0."""
    seeds = words.reshape(-1, 2).copy()
    seeds[:, 0] &= ~_ONE
    return seeds


def _bit(numbers: Ring, place: int) -> NDArray[np.bool_]:
    return np.asarray((numbers >> np.uint32(place)) & np.uint32(1) == 1)


def _where_turned(turned: Bits, correction: Words) -> Words:
    """The correction where the bit is set, else 0."""
    return correction * turned[..., None].astype(np.uint64)


def _leaf(seeds: Words) -> Ring:
    return (seeds[..., 1] >> _HIGH).astype(np.uint32)
