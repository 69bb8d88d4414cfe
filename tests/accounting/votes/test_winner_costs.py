"""What winners tell about one ballot, many at once, against one move after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from dpal.accounting.votes import winner_chances, winner_costs
from dpal.accounting.votes.cost_analysis import ORDERS
from dpal.accounting.votes.mechanisms import Confidence
from dpal.accounting.votes.winner_costs import plurality_divergences
from tests.accounting.votes.slow_plurality import plurality_divergence

Floats = NDArray[np.float64]
FEW = np.array([1.1, 1.7, 2.0, 3.3, 9.0, 40.0, 170.0, 1000.0])


def slow(votes: NDArray[np.integer], orders: Floats = FEW, **rule: Any) -> Floats:
    return np.array([plurality_divergence(row, orders=orders, **rule) for row in votes])


def compared(votes: NDArray[np.integer], orders: Floats = FEW, **rule: Any) -> None:
    """Never below the slow one, and above it by what is added for errors alone."""
    expected = slow(votes, orders, **rule)
    found = plurality_divergences(votes, orders=orders, **rule)
    above = found - expected
    # Where a chance is exp(-16,000), its logarithm is known to 6e-11: 12 times that at order 1.1.
    allowed = 1.3e-8 if rule["classes"] > 1024 else 8e-10
    assert above.min() >= 0
    assert above.max() <= allowed + 1e-9 * expected.max()


@st.composite
def histograms(draw) -> tuple[NDArray[np.int64], int]:
    """Some histograms of the same number of teachers, and classes."""
    teachers, classes = draw(st.integers(3, 250)), draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = 10 ** draw(st.floats(-1.5, 1.5))
    rows = [rng.multinomial(teachers, rng.dirichlet(np.full(classes, spread))) for _ in range(3)]
    return np.array(rows), classes


checks = st.none() | st.builds(
    Confidence, threshold=st.floats(0, 260), sigma=st.floats(0, 2).map(lambda power: 10**power)
)


@pytest.mark.slow
@given(histograms(), st.floats(0, 2).map(lambda power: 10**power), checks)
@settings(max_examples=15, deadline=None)
def test_random_histograms_cost_what_one_move_after_the_other_says(some, sigma, confidence):
    votes, classes = some
    compared(votes, classes=classes, sigma=sigma, confidence=confidence)


def looking_worst(teachers: int, classes: int) -> NDArray[np.int64]:
    """Two against each other, three, all level, one far ahead, and steps of one vote."""
    half, rest = teachers // 2, classes - 2
    rows = [
        *([top, teachers - top] for top in (teachers, teachers - 1, half + 1, half, 3 * half // 2)),
        *([half - gap, half - rest * 3 + gap, *[3] * rest] for gap in (0, 1, 4)),
        [teachers // 3 + teachers % 3, teachers // 3, teachers // 3],
        [teachers // classes + (one < teachers % classes) for one in range(classes)],
        [teachers - classes * (classes - 1) // 2, *range(classes - 1, 0, -1)],
        [teachers - classes + 1, *[1] * (classes - 1)],
    ]
    votes = np.zeros((len(rows), classes), dtype=np.int64)
    for at, row in enumerate(rows):
        votes[at, : len(row)] = row
        votes[at, 0] += teachers - votes[at].sum()
    return votes


@pytest.mark.parametrize(
    ("sigma", "confidence"),
    [
        (20.0, None),
        (7.0, None),
        (2.0, None),
        (20.0, Confidence(threshold=200, sigma=50.0)),
        (7.0, Confidence(threshold=125, sigma=5.0)),
        (0.6, Confidence(threshold=300, sigma=2.0)),
    ],
    ids=["20", "7", "2", "20-200", "7-125", "far"],
)
def test_votes_that_look_worst_at_every_order(sigma, confidence):
    votes = looking_worst(250, 10)
    assert (votes.sum(axis=1) == 250).all()
    if confidence is None or confidence.threshold < 300:
        compared(votes, ORDERS, classes=10, sigma=sigma, confidence=confidence)
        return
    # Chances down to exp(-87,000): the slow one has no better logarithms of them.
    expected = slow(votes, classes=10, sigma=sigma, confidence=confidence)
    found = plurality_divergences(votes, classes=10, sigma=sigma, orders=FEW, confidence=confidence)
    assert (found >= expected).all()
    assert (found <= expected * (1 + 1e-6) + 5e-9).all()


@pytest.mark.parametrize("sigma", [0.4, 1.5, 6.0])
@pytest.mark.parametrize("confidence", [None, Confidence(threshold=3, sigma=1.0)], ids=str)
def test_all_histograms_of_few_teachers(sigma, confidence):
    for teachers, classes in itertools.product(range(3, 8), (2, 3, 4)):
        each = itertools.product(range(teachers + 1), repeat=classes)
        votes = [one for one in each if sum(one) == teachers and list(one) == sorted(one)]
        compared(np.array(votes), classes=classes, sigma=sigma, confidence=confidence)


@pytest.mark.parametrize("classes", [40, 1 << 14, 1 << 40])
def test_many_classes_without_votes(classes):
    votes = np.array([[50, 0, 0, 0], [25, 25, 0, 0], [20, 20, 9, 1], [47, 1, 1, 1]])
    compared(votes, classes=classes, sigma=6.0)


def test_order_of_rows_and_bins_and_zeros_left_out_change_nothing():
    rng = np.random.default_rng(2)
    votes = rng.multinomial(90, rng.dirichlet(np.ones(6), 40).mean(axis=0), size=40)
    rule: dict[str, Any] = {"classes": 6, "sigma": 9.0, "orders": ORDERS}
    mine = plurality_divergences(votes, **rule)
    mixed, rows = rng.permuted(votes, axis=1), rng.permutation(40)
    assert_array_equal(plurality_divergences(mixed[rows], **rule), mine[rows])
    padded = np.hstack([votes, np.zeros((40, 3), dtype=np.int64)])
    assert_array_equal(plurality_divergences(padded, **rule), mine)


def test_little_memory_gives_the_same(monkeypatch):
    votes = looking_worst(60, 7)
    rule: dict[str, Any] = {"classes": 7, "sigma": 5.0, "orders": FEW}
    mine = plurality_divergences(votes, **rule)
    sizes, largest = [], winner_costs._largest

    def noted(moves: winner_chances.Moves, orders: Floats, classes: int) -> Floats:
        sizes.append(moves.moved.shape)
        return largest(moves, orders, classes)

    monkeypatch.setattr(winner_costs, "_largest", noted)
    monkeypatch.setattr(winner_chances, "_CELLS", 100)
    found = plurality_divergences(votes, **rule)
    np.testing.assert_allclose(found, mine, rtol=1e-12, atol=1e-12)
    assert max(rows for rows, _ in sizes) == 1
    assert len(sizes) > 2 * len(votes)  # of one histogram a few moves at a time


def test_each_order_alone_costs_what_it_does_among_others():
    votes = looking_worst(120, 5)
    rule: dict[str, Any] = {"classes": 5, "sigma": 11.0}
    together = plurality_divergences(votes, orders=FEW, **rule)
    for at, order in enumerate(FEW):
        alone = plurality_divergences(votes, orders=FEW[at : at + 1], **rule)[:, 0]
        np.testing.assert_allclose(
            alone, together[:, at], rtol=1e-10, atol=1e-14, err_msg=str(order)
        )


def test_what_numbers_do_not_hold_is_never_taken_for_less():
    # A chance of exp(-800) is 0 as a number, and all of the moment from order 3 on.
    mine, other = np.array([[[0.0, -800.0]]]), np.array([[[0.0, -1700.0]]])
    top = np.ones((1, 1), dtype=np.int64)
    moves = winner_chances.Moves(mine, other, np.ones((1, 1, 2)), top[0], top)
    curves = winner_costs._Curves.of(moves)
    one, powers = np.array([0]), np.array([1.0, 2.0, 3.0])
    exact = curves.at(one, one, powers)
    np.testing.assert_allclose(exact, np.logaddexp(0.0, -800 + 900 * powers)[None])
    assert (curves.between(one, one, powers) >= exact).all()
    assert (curves.doubling(1.0, 2)[1:, 0, 0] >= exact[0, :2] * (1 - 1e-12)).all()
