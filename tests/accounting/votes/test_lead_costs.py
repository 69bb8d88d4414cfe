"""What a winner tells by its lead: above every histogram with that lead, and near the worst one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from dpal.accounting.votes import lead_costs as module
from dpal.accounting.votes.lead_costs import lead_costs
from dpal.accounting.votes.worst_winner import Winners, any_winner
from tests.accounting.votes.test_worst_winner import divergence, law, moved, partitions
from tests.variants import quick_and_slow

Floats = NDArray[np.float64]


def exact(histograms: Iterator[tuple[int, ...]], winners: Winners, order: float) -> Floats:
    """Largest divergence from any neighbour, by the lead of the votes that were cast, (n + 1,)."""
    worst = np.zeros(winners.teachers + 1)
    orders = np.array([order])
    for counts in histograms:
        first, second = sorted(counts, reverse=True)[:2]
        mine = law(counts, winners)
        for after in set(moved(counts)):
            found = divergence(mine, law(after, winners), orders)[0]
            worst[first - second] = max(worst[first - second], found)
    return worst


SMALL = [
    (sigma, teachers, classes)
    for sigma in (0.6, 1.5, 4.0, 12.0)
    for teachers, classes in ((3, 3), (5, 2), (5, 4), (7, 4), (9, 3))
]


@pytest.mark.parametrize(("sigma", "teachers", "classes"), quick_and_slow(SMALL[::2], SMALL))
def test_no_histogram_of_few_teachers_tells_more(sigma, teachers, classes):
    """Seen red without votes that the leader gets, and with the giver of one a vote too far."""
    winners = Winners(teachers, classes, sigma)
    for order in (1.5, 2.0, 5.0, 12.0):
        bound = lead_costs(teachers=teachers, classes=classes, sigma=sigma, order=order)
        found = exact(partitions(teachers, classes), winners, order)
        assert (found <= bound * (1 + 1e-9)).all(), (order, found / bound)
        assert (np.diff(bound) <= 0).all()


def looking_worst(teachers: int, classes: int) -> Iterator[tuple[int, ...]]:
    """For every lead two classes, three, all level behind the leader, and some by chance."""
    rng = np.random.default_rng(3)
    for lead in range(0, teachers + 1, 3):
        for others in (1, 2, 4, classes - 1):
            behind = (teachers - lead) // (others + 1)
            votes = [teachers - others * behind, *[behind] * others]
            yield (*votes, *[0] * (classes - len(votes)))
        left = int(rng.integers(0, (teachers - lead) // 2 + 1))
        rest = rng.multinomial(left, rng.dirichlet(np.full(classes - 2, 0.5)))
        second = (teachers - lead - left) // 2
        counts = [teachers - left - second, second, *map(int, rest)]
        yield tuple(sorted(counts, reverse=True))


@pytest.mark.slow
@pytest.mark.parametrize("sigma, order", [(4.0, 6.0), (12.0, 5.0), (30.0, 3.0)])
def test_no_histogram_that_a_search_finds_tells_more(sigma, order):
    winners = Winners(100, 8, sigma)
    bound = lead_costs(teachers=100, classes=8, sigma=sigma, order=order)
    found = exact(looking_worst(100, 8), winners, order)
    seen = found > 0.02 * bound[0]
    assert (found <= bound * (1 + 1e-9)).all()
    assert seen.sum() > 5
    # And it is near, where it matters.
    assert (bound[seen] <= 2 * np.maximum.accumulate(found[::-1])[::-1][seen]).all()


def test_a_tie_costs_what_any_votes_could_and_a_far_lead_nothing():
    bound = lead_costs(teachers=250, classes=10, sigma=12.0, order=5.0)
    assert bound[0] == pytest.approx(float(any_winner(12.0, np.array([5.0]))[0]))
    assert bound[150] < 1e-10


def test_with_hardly_any_noise_it_is_the_cost_of_the_counts():
    assert lead_costs(teachers=9, classes=3, sigma=0.1, order=5.0) == pytest.approx(500.0)


def test_a_finer_grid_finds_nothing_larger(monkeypatch):
    rule = {"teachers": 80, "classes": 6, "sigma": 9.0, "order": 4.0}
    coarse = lead_costs(**rule)
    lead_costs.cache_clear()
    monkeypatch.setattr(module, "_STEP", 0.05)
    fine = lead_costs(**rule)
    lead_costs.cache_clear()
    assert (fine <= coarse * (1 + 1e-9) + 1e-11).all()
    assert (coarse[:40] <= 1.1 * fine[:40]).all()
