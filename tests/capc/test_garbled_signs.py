"""Garbled comparisons give shares of the sign of every sum, and tell nothing else of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from dpal.capc import garbled_signs
from dpal.capc.garbled_signs import (
    IndexedHash,
    evaluate_signs,
    garble_signs,
    top_labels,
    wire_labels,
)
from dpal.capc.strict_sizes import bits_of, whole_bytes
from dpal.capc.transfer_extension import OUTCOMES
from dpal.randomness import secure
from tests.capc.transfers import FALSE_ALARM, alike_chance, paired, uniform_chance


class Compared:
    """Comparisons of sums of two numbers each, with all that both parties see and draw."""

    def __init__(self, own, other, bits, shares=None):
        own, other = (np.asarray(part).astype(np.int64).astype(np.uint32) for part in (own, other))
        self.pair, count = paired(), own.size
        choices = np.zeros(8 * whole_bytes(count * bits), np.uint8)
        choices[: count * bits] = bits_of(own, bits).ravel()
        _, labels, zeros = self.pair.rows(choices, OUTCOMES)
        self.labels, self.zeros = (wire_labels(rows, count, bits) for rows in (labels, zeros))
        self.site = secure().words(count).astype(np.uint32) if shares is None else shares
        self.tables = garble_signs(
            other, self.site, self.zeros, self.pair.secret, self.pair.row_hash, OUTCOMES
        )
        self.asker = evaluate_signs(self.tables, self.labels, self.pair.row_hash, OUTCOMES)

    @property
    def outcomes(self):
        return self.asker + self.site


def split(numbers) -> tuple[np.ndarray, np.ndarray]:
    """Shares of numbers, modulo 2**32."""
    own = secure().words(len(numbers)).astype(np.uint32)
    return own, np.asarray(numbers).astype(np.int64).astype(np.uint32) - own


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_all_sums_of_few_bits(bits):
    """Every pair of numbers, each with bits above those that count."""
    own, other = (axis.ravel() for axis in np.meshgrid(*[np.arange(1 << bits)] * 2))
    found = Compared(own + (5 << bits), other - (3 << bits), bits).outcomes
    assert (found == ((own + other) % (1 << bits) < 1 << (bits - 1))).all()


@pytest.mark.parametrize("bits", [17, 25, 32])
def test_numbers_beside_0_and_at_both_ends(bits):
    most = (1 << (bits - 1)) - 1
    edges = [0, -1, 1, most, -most - 1, most - 1, -most, 1 << (bits - 2), -(1 << (bits - 2))]
    numbers = np.array(edges * 100)
    own, other = split(numbers)
    assert (Compared(own, other, bits).outcomes == (numbers >= 0)).all()
    for own in (np.zeros(len(edges)), np.full(len(edges), -1), np.array(edges)):
        assert (Compared(own, np.array(edges) - own, bits).outcomes == (np.array(edges) >= 0)).all()


def test_20_000_numbers_of_25_bits():
    numbers = (secure().words(20_000) >> np.uint64(39)).astype(np.int64) - (1 << 24)
    own, other = split(numbers)
    assert (Compared(own, other, 25).outcomes == (numbers >= 0)).all()


def fields(compared):
    tables = compared.tables
    return {"first": tables.first, "carries": tables.carries, "outcomes": tables.outcomes,
            "shares": compared.asker}  # fmt: skip


@pytest.mark.statistical
def test_what_who_asks_sees_is_uniform_whatever_the_site_s_numbers():
    """3,000 comparisons of one number, below and above 0; a false alarm in a million runs."""
    own = np.full(3_000, 7)
    low, high = (Compared(own, np.full(3_000, other), 25) for other in (-50, 50))
    assert not low.outcomes.any() and high.outcomes.all()
    for name, values in fields(low).items():
        assert uniform_chance(values) > FALSE_ALARM, name
        assert alike_chance(values, fields(high)[name]) > FALSE_ALARM, name


def places(compared):
    """(n,) which of its two numbers each comparison opens, and (n, 2) which fit the outcome."""
    hashed = IndexedHash(compared.pair.row_hash, OUTCOMES, compared.asker.size)
    top = top_labels(compared.tables, compared.labels, hashed)
    masks = hashed.numbers(top, 2 * compared.labels.shape[1])
    fits = compared.tables.outcomes - masks[:, None] + compared.site[:, None] <= 1
    return (top[:, 0] & np.uint64(1)).astype(int), fits


@pytest.mark.statistical
def test_which_number_opens_tells_nothing_of_the_outcome(monkeypatch):
    """5,000 outcomes of 1 are opened in the first place as often as not; 1 in ten million runs.

    Sorted by outcome and not by colour, the place in which a number fits is the outcome.
    """
    numbers = np.full(5_000, 9)
    opened, fits = places(Compared(*split(numbers), 10))
    assert (fits.sum(axis=1) == 1).all()
    assert (fits.argmax(axis=1) == opened).all()
    assert scipy.stats.binomtest(int(opened.sum()), opened.size).pvalue > FALSE_ALARM
    ordered = garbled_signs._ordered
    monkeypatch.setattr(
        garbled_signs,
        "_ordered",
        lambda masks, shares, colours: ordered(masks, shares, 0 * colours),
    )
    for sign in (1, -1):
        _, fits = places(Compared(*split(sign * numbers), 10))
        assert (fits.argmax(axis=1) == (sign < 0)).all()


def test_a_share_that_served_twice_tells_how_outcomes_differ():
    """Why every share is drawn anew: the first two lines are what a site does, the rest a fault."""
    numbers = np.where(secure().words(2_000) % np.uint64(2) == 0, -4, 4)
    first = Compared(*split(numbers), 10)
    second = Compared(*split(-numbers), 10)
    honest = first.asker - second.asker
    assert not np.isin(honest, [1, 0xFFFFFFFF]).any(), "2,000 of 2**31: once in a million runs"
    again = Compared(*split(-numbers), 10, shares=first.site)
    told = (first.asker - again.asker).view(np.int32)
    assert (told == np.sign(numbers)).all()


def test_labels_of_another_comparison_open_nothing():
    found = Compared(*split(np.full(500, 3)), 10)
    labels = np.roll(found.labels, 1, axis=0)
    wrong = evaluate_signs(found.tables, labels, found.pair.row_hash, OUTCOMES) + found.site
    assert (wrong > 1).all()
