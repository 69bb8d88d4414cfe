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

SALT_BYTES: Final = 32

_ZERO, _ONE, _HIGH = np.uint64(0), np.uint64(1), np.uint64(32)
_AT_ONCE = 8_000  # comparisons that are dealt at a time: so many fit into a processor's cache
_SEED = ~_ONE  # all bits of a word but the lowest


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

    def children(self, seeds: Words) -> tuple[Words, Words, Words, Words]:
        """The left and the right child of each node.

        Args:
          seeds: (..., 2) words, the lowest bit of the first apart, which is not part of the seed.

        Returns:
          What all of the others lack: it is to be added to them; the left and the right seed, its
          own bit the lowest of the first word; two numbers in the first word of the last.
        """
        mixed = np.empty_like(seeds)
        np.bitwise_and(seeds[..., 0], _SEED, out=mixed[..., 1])
        np.bitwise_xor(mixed[..., 1], seeds[..., 1], out=mixed[..., 0])
        data = mixed.data.cast("B")
        left, right, values = (
            np.frombuffer(cipher.update(data), dtype=np.uint64).reshape(seeds.shape)
            for cipher in self._ciphers
        )
        return mixed, left, right, values


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
    found = Corrections(
        np.empty((levels, points.size, 2), dtype=np.uint64),
        np.empty((levels + 1, points.size), dtype=np.uint32),
        np.zeros((2, points.size), dtype=np.uint32),
    )
    for start in range(0, points.size, _AT_ONCE):
        stop = start + _AT_ONCE
        own = points[start:stop], values[start:stop], roots[:, start:stop]
        _deal(*own, generator, found.part(start, stop))
    return found


def _deal(
    points: Ring, values: Ring, roots: Words, generator: NodeGenerator, into: Corrections
) -> None:
    levels = len(into.seeds)
    seeds = roots.copy()
    seeds[1, :, 0] |= _ONE  # the lowest bit says whether a party corrects what it finds
    reached = np.zeros_like(values)
    for level in range(levels):
        is_right = _bit(points, levels - 1 - level)
        right_words = _all_or_none(is_right)
        corrects = seeds[..., 0] & _ONE
        mixed, left, right, numbers = generator.children(seeds)
        apart = left ^ right
        kept = left ^ mixed ^ (apart & right_words[:, None])
        kept_apart = kept[0] ^ kept[1]
        correction = kept_apart ^ apart[0] ^ apart[1]  # what the lost children are apart
        turn_lost = correction[:, 0] & _ONE
        turn_kept = kept_apart[:, 0] & _ONE ^ _ONE
        correction[:, 0] ^= turn_lost
        into.seeds[level] = correction
        correction[:, 0] |= turn_kept
        seeds = kept ^ (correction & (_ZERO - corrects)[..., None])
        # Left of the path lie the smaller numbers, which get the value.
        both = numbers[..., 0] ^ mixed[..., 0]
        shift = right_words & _HIGH
        kept_values = (both >> shift).astype(np.uint32)
        lost_values = (both >> (_HIGH - shift)).astype(np.uint32)
        wanted = lost_values[1] - lost_values[0] + values * is_right
        into.values[level] = _signed(wanted - reached, corrects[1])
        reached = kept_values[0] - kept_values[1] + wanted
        turns = (turn_lost ^ turn_kept) & right_words
        into.turns[0] |= (turn_kept ^ turns).astype(np.uint32) << np.uint32(level)
        into.turns[1] |= (turn_lost ^ turns).astype(np.uint32) << np.uint32(level)
    into.values[levels] = _signed(
        _leaf(seeds[1]) - _leaf(seeds[0]) - reached, seeds[1, :, 0] & _ONE
    )


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
    seeds = roots.copy()
    seeds[:, 0] |= np.uint64(party)
    total = np.zeros(numbers.size, dtype=np.uint32)
    for level in range(levels):
        is_right = _bit(numbers, levels - 1 - level)
        right_words = _all_or_none(is_right)
        corrects = seeds[:, 0] & _ONE
        mixed, left, right, found = generator.children(seeds)
        values = (found[:, 0] ^ mixed[:, 0]) >> (right_words & _HIGH)
        total += values.astype(np.uint32) + corrects.astype(np.uint32) * corrections.values[level]
        seeds = left ^ mixed
        seeds ^= (left ^ right) & right_words[:, None]
        turns = np.where(is_right, corrections.turns[1], corrections.turns[0])
        correction = corrections.seeds[level].copy()
        correction[:, 0] |= _bit(turns, level)
        correction &= (_ZERO - corrects)[:, None]
        seeds ^= correction
    corrects = (seeds[:, 0] & _ONE).astype(np.uint32)
    total += _leaf(seeds) + corrects * corrections.values[levels]
    return total if party == 0 else np.uint32(0) - total


def root_seeds(words: Words) -> Words:
    """Uniform words, as seeds of trees: (n, 2), the lowest bit 0."""
    seeds = words.reshape(-1, 2).copy()
    seeds[:, 0] &= ~_ONE
    return seeds


def _bit(numbers: Ring, place: int) -> NDArray[np.bool_]:
    return np.asarray((numbers >> np.uint32(place)) & np.uint32(1) == 1)


def _all_or_none(chosen: NDArray[np.bool_]) -> Words:
    """Words of ones, or of zeros."""
    return np.asarray(_ZERO - chosen.astype(np.uint64))


def _signed(numbers: Ring, negative: Words) -> Ring:
    """The numbers, turned around where a bit is set."""
    turned = np.uint32(0) - negative.astype(np.uint32)
    return np.asarray((numbers ^ turned) - turned)


def _leaf(seeds: Words) -> Ring:
    return (seeds[..., 1] >> _HIGH).astype(np.uint32)
