"""The law of a noisy winner and its cost, against integrals of another kind and draws."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import erf, log_ndtr

from dpal.accounting.votes.mechanisms import Confidence
from dpal.accounting.votes.noisy_argmax_chances import plurality_law
from dpal.accounting.votes.winner_costs import plurality_divergences
from dpal.errors import ParameterError
from tests.variants import quick_and_slow

ORDERS = np.array([1.1, 2.0, 4.0, 16.0, 100.0])
SMALL = [(9, 3), (6, 6, 1), (12,), (1, 1, 1), (30, 20)]


def plurality_divergence(counts: NDArray[np.integer], **settings: Any) -> NDArray[np.float64]:
    """Cost of one histogram, (orders,)."""
    return plurality_divergences(counts[None], **settings)[0]


@lru_cache(maxsize=256)
def precise_chance(mine: float, rest: tuple[float, ...]) -> mpmath.mpf:
    """Chance that the first of so many standard normals is largest, by Gauss-Legendre."""

    def density(x: mpmath.mpf) -> mpmath.mpf:
        below = mpmath.fprod(mpmath.erfc((one - x) / mpmath.sqrt(2)) / 2 for one in rest)
        return mpmath.npdf(x - mine) * below

    low, high = min(mine, *rest) - 10, max(mine, *rest) + 10
    with mpmath.workdps(20):
        return mpmath.quad(density, mpmath.linspace(low, high, 7))


def precise_law(counts: list[int], sigma: float) -> list[mpmath.mpf]:
    """Chance that each class wins, (classes,)."""
    at = [one / sigma for one in counts]
    rests = [tuple(sorted(at[:j] + at[j + 1 :])) for j in range(len(at))]
    return [precise_chance(*one) for one in zip(at, rests, strict=True)]


def precise_cost(counts: list[int], sigma: float, confidence: Confidence | None) -> list[float]:
    """Largest divergence over every neighbour, class by class, at ORDERS."""
    worst = [mpmath.mpf(0)] * ORDERS.size
    mine = with_check(precise_law(counts, sigma), counts, confidence)
    for giver in range(len(counts)):
        for taker in range(len(counts)):
            if giver == taker or not counts[giver]:
                continue
            moved = list(counts)
            moved[giver] -= 1
            moved[taker] += 1
            other = with_check(precise_law(moved, sigma), moved, confidence)
            for at, order in enumerate(ORDERS):
                a = mpmath.mpf(order)
                for p, q in ((mine, other), (other, mine)):
                    moment = sum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))
                    worst[at] = max(worst[at], mpmath.log(moment) / (a - 1))
    return [float(one) for one in worst]


def with_check(
    law: list[mpmath.mpf], counts: list[int], confidence: Confidence | None
) -> list[mpmath.mpf]:
    if confidence is None:
        return law
    above = (max(counts) - mpmath.mpf(confidence.threshold)) / mpmath.mpf(confidence.sigma)
    passing = mpmath.erfc(-above / mpmath.sqrt(2)) / 2
    return [passing * one for one in law] + [mpmath.erfc(above / mpmath.sqrt(2)) / 2]


@pytest.mark.parametrize(
    ("sigma", "counts"),
    quick_and_slow(
        [(20.0, (6, 6, 1)), (0.8, (1, 1, 1)), (3.0, (30, 20))],
        product([0.8, 3.0, 20.0], SMALL),
    ),
)
def test_the_law_is_that_of_another_integral(counts, sigma):
    classes = len(counts) + 1
    found = plurality_law(np.array(counts), classes=classes, sigma=sigma)
    expected = [float(one) for one in precise_law([*counts, 0], sigma)]
    assert_allclose(found, expected, rtol=1e-10, atol=1e-20)
    assert found.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "sigma", "confidence"),
    [
        pytest.param([4, 1, 0], 1.0, None, marks=pytest.mark.slow),
        pytest.param([3, 3, 1], 2.0, None, marks=pytest.mark.slow),
        ([5, 0], 0.7, None),
        ([7, 2], 3.0, Confidence(threshold=6.0, sigma=1.0)),
        pytest.param([2, 2, 0], 1.5, Confidence(threshold=3.0, sigma=0.7), marks=pytest.mark.slow),
    ],
)
def test_the_cost_is_the_largest_over_every_neighbour(counts, sigma, confidence):
    found = plurality_divergence(
        np.array(counts), classes=len(counts), sigma=sigma, orders=ORDERS, confidence=confidence
    )
    assert_allclose(found, precise_cost(counts, sigma, confidence), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("counts", "classes", "sigma"),
    [
        ((9, 3), 4, 2.0),
        ((40, 6, 4), 32, 5.0),
        ((1, 1, 1), 8, 0.5),
        ((50,), 1 << 20, 7.0),
        ((20, 20, 10), 1 << 40, 3.0),
        ((30, 20), 1 << 62, 7.0),
        ((25, 25), 2, 7.0),
        ((1,) * 50, 1 << 20, 4.0),
    ],
)
def test_chances_add_up_to_one(counts, classes, sigma):
    law = plurality_law(np.array(counts), classes=classes, sigma=sigma)
    assert law.size == len(counts) + 1
    assert law.sum() == pytest.approx(1, abs=1e-10)
    assert (law[-1] == 0) == (classes == len(counts))
    ordered = np.argsort(counts)
    assert np.all(np.diff(law[:-1][ordered]) >= -1e-15)


@pytest.mark.parametrize("empty", [5, (1 << 20) - 1])
@pytest.mark.parametrize("sigma", [4.0, 9.0])
def test_empty_classes_count_as_often_as_there_are(empty, sigma):
    # One class has 30 votes: it wins if its noise beats the largest of the empty ones,
    # E_z[Phi(30/sigma + z)^empty], by an adaptive integral.
    def density(z: float) -> float:
        return math.exp(-(z**2) / 2 + empty * float(log_ndtr(30 / sigma + z)))

    wins = quad(density, -12, 12, epsabs=1e-13, limit=400)[0] / math.sqrt(2 * math.pi)
    found = plurality_law(np.array([30]), classes=empty + 1, sigma=sigma)
    assert found[0] == pytest.approx(wins, abs=1e-10)
    assert found[1] == pytest.approx(1 - wins, abs=1e-10)
    # Zeros may be written out or left out.
    short = plurality_divergence(np.array([30]), classes=empty + 1, sigma=sigma, orders=ORDERS)
    padded = np.array([0, 30, 0, 0])
    same = plurality_divergence(padded, classes=empty + 1, sigma=sigma, orders=ORDERS)
    assert np.array_equal(short, same)


def test_a_million_empty_classes_cost_what_a_direct_sum_says():
    # A ballot goes from the winner to one of 2^20 - 1 empty classes: three kinds of classes,
    # each chance an integral on a fine grid of its own.
    sigma, empty = 6.0, (1 << 20) - 1
    x = np.linspace(-80, 140, 220_001)
    step = x[1] - x[0]

    def below(votes: float) -> NDArray[np.float64]:
        return 0.5 * (1 + erf((x - votes) / sigma / math.sqrt(2)))

    def density(votes: float) -> NDArray[np.float64]:
        return np.exp(-(((x - votes) / sigma) ** 2) / 2) / sigma / math.sqrt(2 * math.pi)

    before = np.array(
        [
            (density(30) * below(0) ** empty).sum() * step,
            (density(0) * below(30) * below(0) ** (empty - 1)).sum() * step,
        ]
    )
    rest = below(0) ** (empty - 2)
    after = np.array(
        [
            (density(29) * below(1) * below(0) * rest).sum() * step,
            (density(1) * below(29) * below(0) * rest).sum() * step,
            (density(0) * below(29) * below(1) * rest).sum() * step,
        ]
    )
    assert before @ [1, empty] == pytest.approx(1, abs=1e-9)
    many, p, q = np.array([1, 1, empty - 1]), before[[0, 1, 1]], after
    assert many @ q == pytest.approx(1, abs=1e-9)
    log_p, log_q = np.log(p), np.log(q)
    expected = [
        max(
            math.log(many @ np.exp(a * x + (1 - a) * y))
            for x, y in ((log_p, log_q), (log_q, log_p))
        )
        / (a - 1)
        for a in ORDERS
    ]
    found = plurality_divergence(np.array([30]), classes=empty + 1, sigma=sigma, orders=ORDERS)
    # Of so many classes 1e-9 is added to every logarithm of a chance: 12 times that at order 1.1.
    assert_allclose(found, expected, rtol=1e-6, atol=1.3e-8)


@pytest.mark.parametrize("counts", [(12, 5, 3), (7, 7, 6), (20,)])
def test_drawn_winners_never_cost_more(counts):
    # Chances from 200,000 draws each, moved towards each other by 4.9 standard errors, so that
    # less than one run in 10^5 gives more than the truth.
    classes, sigma, draws = 5, 4.0, 200_000
    rng = np.random.default_rng(11)
    votes = np.zeros(classes)
    votes[: len(counts)] = counts
    moved = votes.copy()
    moved[0] -= 1
    moved[-1] += 1
    shares, off = [], []
    for one in (votes, moved):
        winners = (one + sigma * rng.standard_normal((draws, classes))).argmax(axis=1)
        share = np.bincount(winners, minlength=classes) / draws
        shares.append(share)
        off.append(4.9 * np.sqrt(share * (1 - share) / draws))
    law = plurality_law(votes.astype(np.int64), classes=classes, sigma=sigma)[:-1]
    assert np.all(np.abs(shares[0] - law) <= off[0] + 1e-4)
    # Whether class 0 won is a coarser release: it costs no more than the winner does.
    p, q = shares[0][0] - off[0][0], shares[1][0] + off[1][0]
    found = plurality_divergence(votes.astype(int), classes=classes, sigma=sigma, orders=ORDERS)
    for order, cost in zip(ORDERS, found, strict=True):
        for one, two in ((p, q), (q, p)):
            if p > q:
                moment = one**order * two ** (1 - order) + (1 - one) ** order * (1 - two) ** (
                    1 - order
                )
                assert math.log(moment) / (order - 1) <= cost
    assert p > q or max(counts) > 15


@pytest.mark.parametrize("counts", [[3, -1], [2, 2, 2], [], [0, 0]])
def test_what_is_no_histogram_is_refused(counts):
    with pytest.raises(ParameterError, match="votes for 2 classes"):
        plurality_divergence(np.array(counts, dtype=int), classes=2, sigma=1.0, orders=ORDERS)
