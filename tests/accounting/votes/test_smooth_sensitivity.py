"""Smooth sensitivity: the printed numbers, and brute force over every neighbour."""

import json
import math
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from pytest import approx

from dpal.accounting.votes.papernot import log_miss, rdp_of_answering, rdp_of_log_miss
from dpal.accounting.votes.smooth_sensitivity import (
    Conditions,
    WinnerCost,
    published_sanitizing_cost,
    smooth,
    table_local_sensitivity,
    threshold_local_sensitivity,
    unproven_local_sensitivity,
    winner_conditions,
    winner_local_sensitivity,
)
from dpal.errors import ParameterError
from tests.variants import quick_and_slow

# Outputs of the published code, run unmodified; the file says which and how.
TEXT = (Path(__file__).parents[2] / "golden" / "voting.json").read_text(encoding="utf-8")
VOTES = json.loads(TEXT)["analyses"]["inputs"]
GOLDEN = json.loads(TEXT)["smooth_sensitivity"]
# As the file advises: there is root finding inside.
ROOTS: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-15}
HELD = Conditions(rising=True, growing=True)


@cache  # a cost keeps its crossing once found
def cost_with(sigma: float, order: float, classes: int) -> WinnerCost:
    return WinnerCost(sigma=sigma, order=order, classes=classes)


def cost_of(case: dict[str, Any], classes: int) -> WinnerCost:
    return cost_with(case["sigma"], case["order"], classes)


# -- the published numbers ---------------------------------------------------------------


def test_published_crossings() -> None:
    for case in GOLDEN["logq0"]:
        assert cost_of(case, 2).crossing == approx(case["logq0"], rel=1e-7)


@pytest.mark.slow
def test_published_conditions() -> None:
    for case in GOLDEN["conditions"]:
        found = winner_conditions(cost_of(case, case["num_classes"]))
        assert (found.rising, found.growing) == (case["C5"], case["C6"])


@pytest.mark.slow
def test_published_sensitivities_of_winners() -> None:
    refused = 0
    for case in GOLDEN["gnmax"]:
        cost, counts = cost_of(case, len(case["counts"])), case["counts"]
        assert_allclose(
            [cost.crossing, cost.edge], [case["logq0"], case["logq1"]], rtol=ROOTS["rtol"]
        )
        log_q = log_miss([counts], sigma=cost.sigma)
        assert_allclose(log_q, [case["logq"]], rtol=1e-9)
        assert_allclose(cost.at(log_q), [case["rdp"]], **ROOTS)
        local = unproven_local_sensitivity(counts, cost=cost)
        assert_allclose(local[:-1], case["local_sensitivity"], **ROOTS)
        for beta, discounted in case["discounted_max"].items():
            assert_allclose(smooth(local, beta=float(beta)), discounted, **ROOTS)
        if winner_conditions(cost) == HELD:
            assert_allclose(winner_local_sensitivity(counts, cost=cost), local)
        else:  # the published code prints a number there too
            refused += 1
            with pytest.raises(ParameterError, match="not proven"):
                winner_local_sensitivity(counts, cost=cost)
    assert refused


def test_published_sensitivities_of_the_check() -> None:
    for case in GOLDEN["threshold"]:
        local = threshold_local_sensitivity(
            case["num_teachers"],
            threshold=case["threshold"],
            sigma_threshold=case["sigma"],
            order=case["order"],
        )[max(case["counts"])]
        # Theirs is what lies exactly d ballots away, ours what lies within d.
        theirs = np.maximum.accumulate(case["local_sensitivity"])
        assert_allclose(local[:-1], theirs, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("case", GOLDEN["end_to_end"], ids=lambda case: f"order-{case['order']}")
def test_published_run_from_votes_to_what_telling_costs(case: dict[str, Any]) -> None:
    votes, order, beta = VOTES[case["inputs"]], case["order"], case["beta"]
    cost = WinnerCost(sigma=case["sigma2"], order=order, classes=2)
    counts, labels = np.unique(votes["positive_counts"], return_counts=True)
    teachers = votes["num_teachers"]
    assert labels.sum() == case["rows"]
    total = sum(
        times * winner_local_sensitivity([teachers - yes, yes], cost=cost)
        for yes, times in zip(counts, labels, strict=True)
    )
    found = smooth(total, beta=beta)
    assert found == approx(case["smooth_sensitivity"], rel=1e-7)
    noise = (order * math.exp(2 * beta) / found) ** (1 / 3)  # read off the votes: not private
    assert noise == approx(case["sigma_ss"], rel=1e-7)
    told = published_sanitizing_cost(order, beta=beta, noise=noise)
    assert told == approx(case["gnss_rdp"], rel=1e-7)
    raw = labels @ cost.at(log_miss(np.column_stack([teachers - counts, counts]), sigma=cost.sigma))
    epsilon = raw - math.log(case["delta"]) / (order - 1)
    printed = case["last_log_line"].split(" goes from ")[1].split(" +/- ")[0].split(" to ")
    assert [f"{epsilon:.3f}", f"{epsilon + told:.3f}"] == printed


# -- tables, against the definitions -----------------------------------------------------

tables = st.lists(st.floats(0, 9), min_size=1, max_size=12).map(np.array)
betas = st.floats(0, 2)


@given(tables)
def test_a_table_looks_at_every_count_within_reach(cost: NDArray[np.float64]) -> None:
    found = table_local_sensitivity(cost)
    counts = range(cost.size)
    for p, d in product(counts, counts):
        changes = [
            abs(cost[a] - cost[b])
            for a, b in product(counts, counts)
            if abs(a - p) <= d and abs(a - b) == 1
        ]
        assert found[p, d] == max(changes, default=0.0)


@given(tables, betas)
def test_the_bound_of_a_table_is_smooth_and_the_least_that_is(
    cost: NDArray[np.float64], beta: float
) -> None:
    local = table_local_sensitivity(cost)
    bound = np.array([smooth(row, beta=beta) for row in local])
    assert np.all(bound[1:] <= bound[:-1] * math.exp(beta) * (1 + 1e-12))
    assert np.all(bound[:-1] <= bound[1:] * math.exp(beta) * (1 + 1e-12))
    away = np.abs(np.subtract.outer(np.arange(cost.size), np.arange(cost.size)))
    assert_allclose(bound, (np.exp(-beta * away) * local[:, 0]).max(axis=1), rtol=1e-12)


@given(st.lists(st.floats(0, 9), min_size=4, max_size=4), betas)
def test_sums_over_labels_hold_for_every_ballot_of_every_teacher(
    costs: list[float], beta: float
) -> None:
    table = np.array(costs)
    local = table_local_sensitivity(table)
    ballots = list(product((0, 1), repeat=2))  # two labels
    bound, total = {}, {}
    for cast in product(ballots, repeat=3):  # three teachers
        positives = np.sum(cast, axis=0)
        bound[cast] = smooth(local[positives].sum(axis=0), beta=beta)
        total[cast] = table[positives].sum()
    for cast, teacher, other in product(bound, range(3), ballots):
        moved = (*cast[:teacher], other, *cast[teacher + 1 :])
        assert abs(total[cast] - total[moved]) <= bound[cast] * (1 + 1e-12)
        assert bound[moved] <= math.exp(beta) * bound[cast] * (1 + 1e-12)


def test_the_check_of_confidence_is_a_table_by_highest_count() -> None:
    noise: dict[str, Any] = {"threshold": 4, "sigma_threshold": 1.5}
    cost = rdp_of_answering(range(7), orders=[3], **noise)[:, 0]
    found = threshold_local_sensitivity(6, order=3, **noise)
    hists = [h for h in product(range(7), repeat=3) if sum(h) == 6]
    for here in hists:
        for there in hists:
            if np.abs(np.subtract(here, there)).sum() == 2:  # one ballot
                assert abs(cost[max(here)] - cost[max(there)]) <= found[max(here), 0]


# -- winners of several bins, against every histogram ------------------------------------


def every_histogram(teachers: int, classes: int) -> NDArray[np.int64]:
    every = product(range(teachers + 1), repeat=classes)
    return np.array([h for h in every if sum(h) == teachers])


def brute_force(
    cost: WinnerCost, teachers: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """True and claimed local sensitivity within d ballots, (n, d), and who is a neighbour."""
    hists = every_histogram(teachers, cost.classes)
    away = np.abs(hists[:, None] - hists[None]).sum(axis=-1) // 2
    value = cost.at(log_miss(hists, sigma=cost.sigma))
    step = np.where(away == 1, np.abs(value[:, None] - value[None]), 0).max(axis=1)
    true = [np.where(away <= d, step[None], 0).max(axis=1) for d in range(teachers + 1)]
    claimed = np.array([unproven_local_sensitivity(h, cost=cost) for h in hists])
    return np.array(true).T, np.maximum.accumulate(claimed, axis=1), away == 1


@pytest.mark.parametrize(
    ("classes", "teachers"),
    quick_and_slow([(2, 15), (3, 6)], [(2, 8), (2, 15), (3, 6), (3, 10), (4, 6), (5, 4)]),
)
def test_where_the_conditions_hold_the_bound_is_one_and_is_smooth(
    classes: int, teachers: int
) -> None:
    tried = 0
    for sigma, order in product((0.5, 0.8, 1.5, 3, 6), (1.2, 2, 3, 10)):
        cost = cost_with(sigma, order, classes)
        if winner_conditions(cost) != HELD:
            continue
        tried += 1
        true, claimed, neighbours = brute_force(cost, teachers)
        assert np.all(true <= claimed * (1 + 1e-9))
        here, there = np.nonzero(neighbours)
        # Smooth for every beta: what lies within d of here lies within d + 1 of there.
        assert np.all(claimed[here, :-1] <= claimed[there, 1:] * (1 + 1e-9))
    assert tried >= 8


def test_where_a_condition_fails_the_published_bound_is_none() -> None:
    cost = WinnerCost(sigma=2, order=5, classes=2)  # also among the published cases
    assert winner_conditions(cost) == Conditions(rising=True, growing=False)
    true, claimed, _ = brute_force(cost, 14)
    assert np.any(true > 1.5 * claimed)
    with pytest.raises(ParameterError, match="C6"):
        winner_local_sensitivity([12, 2], cost=cost)


def test_for_two_classes_the_table_is_never_above_the_recursion() -> None:
    cost = WinnerCost(sigma=7, order=3, classes=2)
    yes = np.arange(51)
    exact = table_local_sensitivity(
        cost.at(log_miss(np.column_stack([50 - yes, yes]), sigma=cost.sigma))
    )
    for p in yes:
        for beta in (0.01, 0.1, 0.3):
            loose = smooth(winner_local_sensitivity([50 - p, p], cost=cost), beta=beta)
            assert smooth(exact[p], beta=beta) <= loose * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "order", "classes"), [(7, 3, 2), (2, 20, 2), (5, 8, 10)])
def test_the_cost_of_a_winner_is_the_bound_cut_at_its_crossing(
    sigma: float, order: float, classes: int
) -> None:
    cost = WinnerCost(sigma=sigma, order=order, classes=classes)
    log_q = np.linspace(3 * cost.crossing, -1e-3, 2001)
    bound = rdp_of_log_miss(log_q, sigma=sigma, orders=[order])[:, 0]
    assert np.all(cost.at(log_q) >= bound)
    assert_allclose(cost.at(log_q)[log_q < cost.crossing], bound[log_q < cost.crossing])
    assert np.all(cost.at(log_q)[log_q >= cost.crossing] == cost.cap)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5).filter(any), st.floats(0.4, 20))
def test_one_ballot_moves_the_chance_of_a_miss_as_far_as_said(
    votes: list[int], sigma: float
) -> None:
    cost = WinnerCost(sigma=sigma, order=2, classes=len(votes))
    here = log_miss([votes], sigma=sigma)
    # The cap of a chance at 1 - 1/m is no part of the rule: only below it the rule binds.
    capped = math.log1p(-1 / len(votes))
    low, high = cost.moved(here, -1)[0], cost.moved(here, 1)[0]
    for loses, gains in product(range(len(votes)), repeat=2):
        if loses != gains and votes[loses] and here[0] < capped:
            moved = list(votes)
            moved[loses] -= 1
            moved[gains] += 1
            there = log_miss([moved], sigma=sigma)[0]
            assert there <= high + 1e-9 * abs(high)
            assert there >= min(low, capped) - 1e-9 * abs(low)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: table_local_sensitivity([1.0, math.inf]),
        lambda: table_local_sensitivity([]),
        lambda: smooth([0.1, math.nan], beta=0.1),
        lambda: smooth([0.1], beta=-0.1),
        lambda: smooth([], beta=0.1),
        lambda: threshold_local_sensitivity(0, threshold=1, sigma_threshold=1, order=2),
        lambda: threshold_local_sensitivity(5, threshold=1, sigma_threshold=1, order=1),
        lambda: WinnerCost(sigma=0, order=2, classes=2),
        lambda: WinnerCost(sigma=1, order=1, classes=2),
        lambda: WinnerCost(sigma=1, order=2, classes=1),
        lambda: winner_local_sensitivity([3.5, 1], cost=WinnerCost(sigma=9, order=2, classes=2)),
        lambda: winner_local_sensitivity([3, 1, 0], cost=WinnerCost(sigma=9, order=2, classes=2)),
    ],
)
def test_what_has_no_bound_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        wrong()
