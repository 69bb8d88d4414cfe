"""Shares of products add up to the products; what a site sends tells nothing of its weights."""

from __future__ import annotations

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc.ballots_by_comparison import ballot_rule
from dpal.capc.ring import to_ring
from dpal.capc.strict_sizes import StrictSizes
from dpal.capc.transfer_extension import FEATURES, RowHash
from dpal.capc.transferred_products import feature_bits, querier_products, site_products
from tests.capc.transfers import FALSE_ALARM, alike_chance, paired, uniform_chance
from tests.variants import quick_and_slow


def shared(queries, weights, bits, pair=None):
    """Both parties' shares, and what the site sent."""
    pair = pair or paired()
    chosen = feature_bits(queries)
    _, own, other = pair.rows(chosen.ravel(), FEATURES)
    high, top = (max(0, min(8, bits - held)) for held in (16, 24))
    hidden, site = site_products(other, pair.secret, weights, pair.row_hash, high, top)
    return querier_products(own, chosen, hidden, pair.row_hash), site, hidden


def bits_for(labels, features):
    rule = ballot_rule(Mechanism.BINARY, labels)
    return StrictSizes(rule, 1, labels, features).outcome_bits


@pytest.mark.parametrize(
    ("labels", "features"),
    quick_and_slow([(1, 1), (20, 512)], [(1, 1), (3, 5), (20, 512), (7, 130)]),
)
def test_shares_add_up_to_the_product(labels, features):
    rng, bits = np.random.default_rng(labels), bits_for(labels, features)
    queries = rng.integers(-128, 128, (4, features), dtype=np.int8)
    weights = rng.integers(-128, 128, (labels, features), dtype=np.int8)
    for asked in (queries, np.full_like(queries, -128), np.full_like(queries, 127),
                  np.zeros_like(queries)):  # fmt: skip
        for heads in (weights, np.full_like(weights, -128), np.full_like(weights, 127)):
            own, other, _ = shared(asked, heads, bits)
            exact = asked.astype(np.int64) @ heads.T.astype(np.int64)
            assert not ((own + other - to_ring(exact)) % np.uint32(1 << bits)).any()


@pytest.mark.parametrize("bits", [16, 17, 24, 25, 31, 32])
def test_shares_are_of_as_many_bits_as_were_asked_for(bits):
    rng = np.random.default_rng(bits)
    queries = rng.integers(-128, 128, (3, 40), dtype=np.int8)
    weights = rng.integers(-128, 128, (2, 40), dtype=np.int8)
    own, other, _ = shared(queries, weights, bits)
    exact = to_ring(queries.astype(np.int64) @ weights.T.astype(np.int64))
    assert not ((own + other - exact).astype(np.uint64) % np.uint64(1 << bits)).any()


PIECES = ("low", "high", "top")
ASKED, WEIGHTS = np.full((12, 32), 5, np.int8), np.full((16, 32), 3, np.int8)


@pytest.mark.statistical
def test_what_a_site_sends_is_uniform_whatever_its_weights():
    """49,000 numbers, all of one weight and one feature; a false alarm in a million runs."""
    first, second = (shared(ASKED, weights, 32)[2] for weights in (WEIGHTS, -WEIGHTS))
    for piece in PIECES:
        one, other = getattr(first, piece), getattr(second, piece)
        assert uniform_chance(one) > FALSE_ALARM
        assert alike_chance(one, other) > FALSE_ALARM


def test_without_masks_who_asks_would_read_the_weights(monkeypatch):
    """A hash that is nothing, and the tests of uniform bytes see it."""
    monkeypatch.setattr(
        RowHash, "numbers", lambda self, rows, *use: np.zeros((len(rows), use[-1]), np.uint32)
    )
    first, second = (shared(ASKED, weights, 32)[2] for weights in (WEIGHTS, -WEIGHTS))
    assert (first.numbers(0)[0] == to_ring(WEIGHTS.T)).all()
    for piece in PIECES:
        assert uniform_chance(getattr(first, piece)) < FALSE_ALARM
    assert alike_chance(first.low, second.low) < FALSE_ALARM


def test_an_altered_message_gives_another_product():
    """Not noticed here, where parties keep to the protocol: channels notice it."""
    pair = paired()
    own, other, hidden = shared(ASKED[:1], WEIGHTS, 25, pair)
    again, same, _ = shared(ASKED[:1], WEIGHTS, 25, pair)
    assert (own == again).all() and (other == same).all(), "shares follow from keys and choices"
    changed = hidden.low.copy()
    changed[0, 0, 0] += 1  # the lowest bit of 5 is 1, so that it counts
    _, rows, _ = pair.rows(feature_bits(ASKED[:1]).ravel(), FEATURES)
    wrong = querier_products(
        rows, feature_bits(ASKED[:1]), type(hidden)(changed, hidden.high, hidden.top),
        pair.row_hash,
    )  # fmt: skip
    assert (wrong - own == 1).all()
