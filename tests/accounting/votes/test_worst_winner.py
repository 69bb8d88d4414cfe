"""The bound on what a winner tells: above every histogram, and hardly above the worst one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes import worst_winner as module
from dpal.accounting.votes.cost_analysis import epsilon_of
from dpal.accounting.votes.majority import Answers, worst_divergence
from dpal.accounting.votes.recheck_worst_winner import second_winner
from dpal.accounting.votes.worst_winner import Winners, any_winner, worst_winner
from tests.variants import quick_and_slow

Floats = NDArray[np.float64]

SOME = np.array([1.5, 2.0, 4.0, 8.0, 16.0])
MNIST = 1 / 600_000  # delta of 60,000 records


def partitions(votes: int, classes: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Every histogram of so many votes for so many classes, largest count first."""
    if classes == 0:
        if votes == 0:
            yield ()
        return
    for first in range(min(votes, votes if most is None else most), -1, -1):
        for rest in partitions(votes - first, classes - 1, first):
            yield (first, *rest)


def law(counts: tuple[int, ...], winners: Winners) -> Floats:
    """Log-chances of each class and, with a check, of no answer, by quadrature over one count."""
    votes = np.array(counts, dtype=np.float64) / winners.sigma
    x = np.arange(votes.min() - 12, votes.max() + 14, 0.02)
    apart = x[None] - votes[:, None]
    cdf = scipy.special.log_ndtr(apart)
    density = -(apart**2) / 2 - math.log(2 * math.pi) / 2
    won = scipy.special.logsumexp(density - cdf + cdf.sum(axis=0), axis=1) + math.log(0.02)
    if winners.threshold is None or winners.threshold_sigma is None:
        return np.asarray(won)
    above = (max(counts) - winners.threshold) / winners.threshold_sigma
    return np.append(won + scipy.special.log_ndtr(above), scipy.special.log_ndtr(-above))


def moved(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every histogram that one replaced ballot makes of it."""
    for giver, taker in permutations(range(len(counts)), 2):
        if counts[giver]:
            after = list(counts)
            after[giver] -= 1
            after[taker] += 1
            yield tuple(after)


def divergence(mine: Floats, other: Floats, orders: Floats) -> Floats:
    terms = orders[:, None] * mine + (1 - orders[:, None]) * other
    return np.asarray(scipy.special.logsumexp(terms, axis=1) / (orders - 1))


def worst_of(histograms: Iterator[tuple[int, ...]], winners: Winners, orders: Floats) -> Floats:
    """Largest divergence from any neighbour, both directions."""
    worst = np.zeros(orders.size)
    for counts in histograms:
        mine = law(counts, winners)
        for after in set(moved(counts)):
            other = law(after, winners)
            for pair in ((mine, other), (other, mine)):
                worst = np.maximum(worst, divergence(*pair, orders))
    return worst


SMALL = [
    Winners(teachers, classes, sigma, *check)
    for teachers, classes in ((3, 3), (4, 5), (6, 3), (7, 4), (9, 3))
    for sigma in (0.7, 2.0, 6.0)
    for check in ((), (0.7 * teachers, 1.0), (0.5 * teachers, 3.0), (float(teachers), 0.5))
]


# A fifth has every number of teachers, every sigma and every check several times.
@pytest.mark.parametrize("winners", quick_and_slow(SMALL[::5], SMALL), ids=str)
def test_no_histogram_of_few_teachers_tells_more(winners: Winners) -> None:
    bound = worst_winner(winners, tuple(SOME))
    exact = worst_of(partitions(winners.teachers, winners.classes), winners, SOME)
    assert (exact <= bound * (1 + 1e-9) + 1e-12).all(), exact / bound


def test_without_more_votes_than_half_it_is_hardly_above_the_worst() -> None:
    # Of 9 teachers at much noise a tie is dearest, and it can happen.
    winners = Winners(9, 3, 6.0, 5.0, 3.0)
    low = SOME[:3]
    exact = worst_of(partitions(9, 3), winners, low)
    assert (worst_winner(winners, tuple(low)) <= 1.1 * exact).all()


LARGER = [
    Winners(120, 5, 6.0, 80.0, 15.0),
    Winners(60, 4, 9.0),
    Winners(250, 10, 20.0, 200.0, 50.0),
]


@pytest.mark.parametrize("winners", quick_and_slow(LARGER[:2], LARGER), ids=str)
def test_no_histogram_that_a_search_finds_tells_more(winners: Winners) -> None:
    rng = np.random.default_rng(5)
    orders = np.array([1.5, 2.0, 4.0])

    def found() -> Iterator[tuple[int, ...]]:
        n, m = winners.teachers, winners.classes
        for top in range(n // 2, n, 3):
            yield (top, n - top, *[0] * (m - 2))
        for top in range(n // m + 1, n, n // 8):  # two that lead, three, all alike, and by chance
            rest = n - top
            yield (top, rest - rest // 2, rest // 2, *[0] * (m - 3))
            yield tuple(np.sort(np.append(rng.multinomial(rest, [1 / (m - 1)] * (m - 1)), top)))
            yield tuple(np.sort(rng.multinomial(n, rng.dirichlet([0.4] * m))))

    bound = worst_winner(winners, tuple(orders))
    exact = worst_of(found(), winners, orders)
    assert (exact <= bound * (1 + 1e-9)).all()
    assert (bound <= 1.02 * exact).all()  # and the search comes near it


def queries(winners: Winners, delta: float, epsilon: float = 8.0) -> int:
    room = epsilon - np.array([epsilon_of(np.zeros(1), np.array([o]), delta=delta) for o in ORDERS])
    return int(np.max(np.floor(room / worst_winner(winners, tuple(ORDERS)))))


@pytest.mark.parametrize(
    ("winners", "by_counts", "by_answers"),
    [
        # Both figures of a search over about a hundred histograms that look bad, epsilon 8.
        pytest.param(Winners(250, 10, 20.0, 200.0, 50.0), 399, 5_268, marks=pytest.mark.slow),
        (Winners(250, 10, 7.0, 200.0, 25.0), 50, 2_120),
    ],
)
def test_a_threshold_pays(winners: Winners, by_counts: int, by_answers: int) -> None:
    room = 8 - np.array([epsilon_of(np.zeros(1), np.array([o]), delta=MNIST) for o in ORDERS])
    fit = int(np.max(np.floor(room / winners.by_counts(ORDERS))))
    assert fit == pytest.approx(by_counts, rel=0.02)  # the search was by other orders
    assert queries(winners, MNIST) == pytest.approx(by_answers, rel=0.01)


def test_without_a_threshold_more_than_half_is_gained() -> None:
    # pi / 2 is what binary votes gain; a third class that comes near takes a little of it.
    winners = Winners(250, 10, 28.7)
    room = 8 - np.array([epsilon_of(np.zeros(1), np.array([o]), delta=MNIST) for o in ORDERS])
    by_counts = int(np.max(np.floor(room / winners.by_counts(ORDERS))))
    assert 1.54 < queries(winners, MNIST) / by_counts < math.pi / 2


def test_two_classes_are_a_yes_or_no_vote() -> None:
    winners = Winners(50, 2, 7.0, 40.0, 5.0)
    same = worst_divergence(Answers(50, 7.0, 40.0, 5.0), tuple(ORDERS))
    assert worst_winner(winners, tuple(ORDERS)) == pytest.approx(
        np.minimum(same, winners.by_counts(ORDERS))
    )


def test_counts_bound_it_at_every_order() -> None:
    for winners in (Winners(50, 7, 0.5, 40.0, 5.0), Winners(50, 7, 30.0), Winners(5_000, 7, 30.0)):
        assert (worst_winner(winners, tuple(ORDERS)) <= winners.by_counts(ORDERS)).all()


@pytest.mark.slow
def test_a_finer_grid_finds_nothing_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = np.array([2.0, 5.0, 11.0])
    coarse = any_winner(9.0, orders), module._answers(Winners(60, 5, 9.0, 45.0, 12.0), orders)
    module._moves.cache_clear()
    monkeypatch.setattr(module, "_STEP", 0.05)
    fine = any_winner(9.0, orders), module._answers(Winners(60, 5, 9.0, 45.0, 12.0), orders)
    for rough, exact in zip(coarse, fine, strict=True):
        assert (exact <= rough * (1 + 1e-9)).all() and (rough <= 1.01 * exact).all()
    module._moves.cache_clear()


@pytest.mark.parametrize(("teachers", "classes"), [(5, 3), (9, 3), (9, 4)])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 6.0])
def test_a_vote_among_losers_tells_no_more(teachers: int, classes: int, sigma: float) -> None:
    winners = Winners(teachers, classes, sigma)
    leaders = np.arange(teachers // 2 + 1, teachers + 1, dtype=np.float64)
    bounds = module._losers_move(teachers, sigma, leaders, SOME)
    for bound, leader in zip(bounds, leaders, strict=True):
        exact = np.zeros(SOME.size)
        for rest in partitions(teachers - int(leader), classes - 1, int(leader)):
            mine = law((int(leader), *rest), winners)
            for after in set(moved(rest)):
                other = law((int(leader), *after), winners)
                exact = np.maximum(exact, divergence(mine, other, SOME))
        assert (exact <= bound * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("planted", ["_leader_moves", "_whatever_wins"])
def test_each_part_is_needed(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of these bounds some histogram tells more than is charged."""
    cases = {
        "_leader_moves": Winners(9, 3, 2.0, 8.0, 1.0),
        "_whatever_wins": Winners(9, 3, 2.0, 3.0, 1.0),
    }
    empty = {
        "_leader_moves": lambda teachers, classes, sigma, orders: iter(()),
        "_whatever_wins": lambda sigma, orders, apart: (np.zeros(orders.size),) * 2,
    }
    winners = cases[planted]
    exact = worst_of(partitions(9, 3), winners, SOME)
    module._moves.cache_clear()
    monkeypatch.setattr(module, planted, empty[planted])
    assert (module._answers(winners, SOME) < exact * (1 - 1e-9)).any()
    module._moves.cache_clear()


@pytest.mark.parametrize(
    ("winners", "queries"),
    [
        # What `answer_from: 0.9` chooses, with as many queries: hardly any noise.
        pytest.param(Winners(250, 10, 1.125, 199.4, 20.0), 100, marks=pytest.mark.slow),
        pytest.param(Winners(250, 10, 1.511, 199.4, 20.0), 20, marks=pytest.mark.slow),
        (Winners(50, 10, 0.7052, 42.4, 2.0), 20),
    ],
    ids=str,
)
def test_both_opinions_agree_on_answers_with_hardly_any_noise(
    winners: Winners, queries: int
) -> None:
    ours = queries * worst_winner(winners, tuple(ORDERS))
    again = queries * second_winner(
        teachers=winners.teachers,
        classes=winners.classes,
        sigma=winners.sigma,
        threshold=winners.threshold,
        threshold_sigma=winners.threshold_sigma,
        orders=np.asarray(ORDERS, dtype=np.float64),
    )
    epsilons = [
        min(epsilon_of(np.array([cost]), np.array([order]), delta=1e-5)
            for cost, order in zip(costs, ORDERS, strict=True))
        for costs in (ours, again)
    ]  # fmt: skip
    assert epsilons[1] == pytest.approx(epsilons[0], rel=0.05)  # certificates allow more


@pytest.mark.parametrize(
    "winners",
    [
        pytest.param(Winners(250, 10, 7.0, 200.0, 25.0), marks=pytest.mark.slow),
        Winners(50, 10, 20.0),
        Winners(40, 1 << 20, 3.0, 30.0, 6.0),
    ],
    ids=str,
)
def test_plain_sums_find_the_same(winners: Winners) -> None:
    orders = np.array([1.5, 3.0, 6.0, 9.0])
    ours = worst_winner(winners, tuple(orders))
    for order, cost in zip(orders, ours, strict=True):
        again = second_winner(
            teachers=winners.teachers,
            classes=winners.classes,
            sigma=winners.sigma,
            threshold=winners.threshold,
            threshold_sigma=winners.threshold_sigma,
            orders=np.array([order]),
        )
        assert again[0] == pytest.approx(cost, rel=0.01)
