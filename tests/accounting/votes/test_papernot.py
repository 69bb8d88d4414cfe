"""The published bound on votes: its printed numbers, and that it is a bound (one way)."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr

from dpal.accounting.votes.papernot import (
    log_answered,
    log_miss,
    log_miss_of_margin,
    rdp_of_answering,
    rdp_of_log_miss,
    theorem_holds,
)
from dpal.errors import ParameterError

# Outputs of the published code, run unmodified; the file says which and how.
GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "voting.json").read_text(encoding="utf-8")
)
ORDERS = np.array([1.1, 1.5, 2, 3, 5, 8, 16, 32, 100])


def same(found: Any, golden: Any) -> None:
    """The tolerance that comes with the golden numbers."""
    found, golden = np.asarray(found), np.asarray(golden)
    tiny = np.abs(golden) < 1e-12
    assert_allclose(found[~tiny], golden[~tiny], rtol=1e-9)
    assert_allclose(found[tiny], golden[tiny], rtol=0, atol=1e-15)


def grid(case: dict[str, Any]) -> list[float]:
    return list(GOLDEN["orders"][case.get("orders", "short")])


def found_log_miss(case: dict[str, Any]) -> NDArray[np.float64]:
    if "num_bins" in case:  # 2^20 bins of which five are used
        return log_miss([case["nonzero_counts"]], sigma=case["sigma"], classes=case["num_bins"])
    return log_miss([case["votes"]], sigma=case["sigma"])


@pytest.mark.parametrize("tag", sorted({case["tag"] for case in GOLDEN["gnmax"]}))
def test_published_costs_of_winners(tag: str) -> None:
    for case in (c for c in GOLDEN["gnmax"] if c["tag"] == tag):
        log_q, sigma, orders = found_log_miss(case), case["sigma"], grid(case)
        same(log_q, [case["logq"]])
        same(rdp_of_log_miss(log_q, sigma=sigma, orders=orders)[0], case["rdp_data_dependent"])
        if "rdp_no_upper_bound" in case:
            free = rdp_of_log_miss(log_q, sigma=sigma, orders=orders, capped=False)
            same(free[0], case["rdp_no_upper_bound"])
        if tag.startswith("binary"):
            votes = case["votes"]
            margin = log_miss_of_margin([votes[1]], teachers=sum(votes), sigma=sigma)
            same(margin, [case["logq"]])


def test_published_costs_at_the_edges_of_the_theorem() -> None:
    for case in GOLDEN["rdp_from_logq"]:
        query = {"sigma": case["sigma"], "orders": grid(case)}
        same(rdp_of_log_miss([case["logq"]], **query)[0], case["rdp_data_dependent"])
        free = rdp_of_log_miss([case["logq"]], **query, capped=False)
        same(free[0], case["rdp_no_upper_bound"])


def test_published_costs_of_the_check() -> None:
    for case in GOLDEN["threshold"]["cases"]:
        top, sigma = [max(case["votes"])], case["sigma_threshold"]
        check: dict[str, Any] = {"threshold": case["threshold"], "sigma_threshold": sigma}
        check["rounded"] = True
        same(log_answered(top, **check), [case["logpr_answered"]])
        same(rdp_of_answering(top, orders=grid(case), **check)[0], case["rdp_data_dependent"])


def test_fractions_of_votes_are_rounded_only_to_compare() -> None:
    check: dict[str, Any] = {"threshold": 40.0, "sigma_threshold": 2.0}
    exact = log_answered([42.4, 42.5, 43.5], **check)
    assert_allclose(exact, log_ndtr([1.2, 1.25, 1.75]), rtol=1e-12)
    halves_to_even = log_answered([42.4, 42.5, 43.5], rounded=True, **check)
    assert_allclose(halves_to_even, log_ndtr([1.0, 1.0, 2.0]), rtol=1e-12)


def test_a_check_that_nearly_always_passes_still_costs() -> None:
    # 1 - p would be 0 here; the other tail knows better: ln(1 - p) is about -54.
    cost = rdp_of_answering([100], threshold=0, sigma_threshold=10, orders=[20])
    assert 0 < cost[0, 0] < 1e-6


def test_votes_that_cannot_be_missed_cost_nothing() -> None:
    assert not rdp_of_log_miss([-math.inf], sigma=1, orders=ORDERS).any()
    assert not rdp_of_log_miss([-math.inf], sigma=1, orders=ORDERS, capped=False).any()


histograms = st.lists(st.integers(0, 40), min_size=2, max_size=7).filter(any)
sigmas = st.floats(0.3, 60)


@given(histograms, sigmas, st.randoms(use_true_random=False))
def test_the_order_of_bins_changes_nothing(votes: list[int], sigma: float, random: Any) -> None:
    shuffled = random.sample(votes, len(votes))
    assert_allclose(log_miss([shuffled], sigma=sigma), log_miss([votes], sigma=sigma), rtol=1e-12)


@given(histograms, sigmas, st.integers(0, 300))
def test_bins_left_out_are_empty_bins(votes: list[int], sigma: float, empty: int) -> None:
    dense = log_miss([votes + [0] * empty], sigma=sigma)
    sparse = log_miss([votes], sigma=sigma, classes=len(votes) + empty)
    assert_allclose(sparse, dense, rtol=1e-9)


@given(st.integers(2, 400), sigmas)
def test_a_wider_margin_never_costs_more(teachers: int, sigma: float) -> None:
    positives = np.arange((teachers + 1) // 2, teachers + 1)
    log_q = log_miss_of_margin(positives, teachers=teachers, sigma=sigma)
    cost = rdp_of_log_miss(log_q, sigma=sigma, orders=ORDERS)
    assert np.all(cost[1:] <= cost[:-1] * (1 + 1e-9))
    holds = theorem_holds(log_q, sigma=sigma, orders=ORDERS)
    assert np.all(holds[1:] | ~holds[:-1])  # once it holds, it holds for wider margins
    free = rdp_of_log_miss(log_q, sigma=sigma, orders=ORDERS, capped=False)
    assert np.all((free[1:] <= free[:-1] * (1 + 1e-9)) | ~holds[:-1])


@given(st.floats(-300, -1e-3), sigmas, st.floats(1, 10))
def test_more_noise_never_costs_more_at_the_same_chance_of_a_miss(
    log_q: float, sigma: float, factor: float
) -> None:
    less = rdp_of_log_miss([log_q], sigma=sigma, orders=ORDERS)
    more = rdp_of_log_miss([log_q], sigma=factor * sigma, orders=ORDERS)
    assert np.all(more <= less * (1 + 1e-9))


def test_more_noise_may_cost_more_on_the_same_votes() -> None:
    # What is cheap is a sure winner, and noise makes it less sure: nobody may take "more
    # noise is cheaper" for granted with this bound, as they may with order / sigma^2.
    cost = [
        rdp_of_log_miss(log_miss([[20, 0]], sigma=s), sigma=s, orders=[2])[0, 0] for s in (2, 6)
    ]
    assert cost[0] < 1e-6 < 1e-2 < cost[1]


def bernoulli_rdp(
    log_p: NDArray[np.float64],
    log_not_p: NDArray[np.float64],
    log_r: NDArray[np.float64],
    log_not_r: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Exact divergence of Bern(p) from Bern(r) at ORDERS, (n, o), from both logarithms."""
    a = ORDERS[None, :]
    yes = a * log_p[:, None] + (1 - a) * log_r[:, None]
    no = a * log_not_p[:, None] + (1 - a) * log_not_r[:, None]
    return np.asarray(np.logaddexp(yes, no) / (a - 1))


@pytest.mark.parametrize("sigma", [0.5, 1, 2, 3, 5, 7, 12, 25])
def test_it_bounds_the_exact_divergence_of_yes_or_no_votes_one_way(sigma: float) -> None:
    reverse_exceeds = False
    for teachers in range(1, 61):
        positives = np.arange(teachers + 1)
        x = (2 * positives - teachers) / (math.sqrt(2) * sigma)
        log_yes, log_no = log_ndtr(x), log_ndtr(-x)
        log_q = log_miss_of_margin(positives, teachers=teachers, sigma=sigma)
        bound = rdp_of_log_miss(log_q, sigma=sigma, orders=ORDERS)
        at, to = slice(None, -1), slice(1, None)
        for here, there in ((at, to), (to, at)):
            exact = bernoulli_rdp(log_yes[here], log_no[here], log_yes[there], log_no[there])
            # 1e-13: what rounding leaves of a logarithm of one, over order - 1.
            assert np.all(exact <= bound[here] * (1 + 1e-9) + 1e-13)
            reverse_exceeds |= bool(np.any(exact > 1.01 * bound[there] + 1e-13))
    # Not true of the other way, which is why it certifies nothing alone.
    assert reverse_exceeds or sigma >= 12


def winner_chances(votes: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Exact law of the noisy winner, (classes,), by quadrature over the winner's own noise."""
    x = np.linspace(-9, 9, 1201)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    beats = ndtr(x[None, None, :] + (votes[:, None] - votes[None, :])[:, :, None] / sigma)
    beats[np.arange(votes.size), np.arange(votes.size)] = 1
    return np.asarray((beats.prod(axis=1) * density).sum(axis=1))


@pytest.mark.parametrize(
    "votes", [(9, 3, 0), (6, 6, 1), (12, 0, 0, 0), (8, 3, 2, 1), (20, 4, 4, 4, 4)]
)
@pytest.mark.parametrize("sigma", [1.5, 3, 6])
def test_it_bounds_the_exact_divergence_of_winners_one_way(
    votes: tuple[int, ...], sigma: float
) -> None:
    here = winner_chances(np.array(votes, dtype=float), sigma)
    log_q = log_miss([votes], sigma=sigma)
    assert 1 - here.max() <= math.exp(log_q[0]) + 1e-12
    bound = rdp_of_log_miss(log_q, sigma=sigma, orders=ORDERS)[0]
    for loses, gains in product(range(len(votes)), repeat=2):
        if loses == gains or not votes[loses]:
            continue
        moved = np.array(votes, dtype=float)
        moved[loses] -= 1
        moved[gains] += 1
        there = np.log(winner_chances(moved, sigma))[:, None]
        exact = logsumexp(ORDERS * np.log(here)[:, None] + (1 - ORDERS) * there, axis=0)
        # 1e-11: what is left of the quadrature's rounding, over order - 1.
        assert np.all(exact / (ORDERS - 1) <= bound * (1 + 1e-9) + 1e-11)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: log_miss([[3, -1]], sigma=1),
        lambda: log_miss([[3, math.nan]], sigma=1),
        lambda: log_miss([[3, 1]], sigma=0),
        lambda: log_miss([[3]], sigma=1),
        lambda: log_miss([[3, 1]], sigma=1, classes=1),
        lambda: log_miss([3, 1], sigma=1),
        lambda: log_miss_of_margin([11], teachers=10, sigma=1),
        lambda: log_miss_of_margin([math.nan], teachers=10, sigma=1),
        lambda: rdp_of_log_miss([0.1], sigma=1, orders=[2]),
        lambda: rdp_of_log_miss([-1], sigma=1, orders=[1]),
        lambda: rdp_of_log_miss([math.nan], sigma=1, orders=[2]),
        lambda: log_answered([math.inf], threshold=1, sigma_threshold=1),
        lambda: rdp_of_answering([3], threshold=1, sigma_threshold=-1, orders=[2]),
    ],
)
def test_what_is_no_vote_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        wrong()
