"""The analysis and the drawing of votes beside plain loops, measured in one run on one core.

Times depend on the machine, ratios hardly do: those are asserted, at a quarter or less of
what was measured. The peers are written as one would write down the definition: one query
after the other, one label after the other, all 2^k sets in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm

from dpal.accounting.votes import papernot
from dpal.accounting.votes.cost_analysis import ORDERS, Conversion, Mode, analyse
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.accounting.votes.winner_costs import plurality_divergences
from dpal.randomness import secure
from dpal.voting.ballots import Ballots, votes_for
from dpal.voting.draw_noisy_outcomes import release
from tests.accounting.votes.slow_plurality import plurality_divergence

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]
ROUNDS, TEACHERS, LABELS, SIGMA, DELTA = 5, 50, 20, 7.0, 1e-5
BINARY = VotingRule(mechanism=Mechanism.BINARY, teachers=TEACHERS, labels=LABELS, sigma=SIGMA)


def speed(queries: int, task: Callable[[], object]) -> float:
    """Queries a second of one core's time, best of some rounds."""
    best = math.inf
    for _ in range(ROUNDS):
        start = time.process_time()  # others may be using the machine
        task()
        best = min(best, time.process_time() - start)
    return queries / best


def show(name: str, ours: float, peer: float) -> None:
    print(f"{name}: {ours:,.0f}/s, a loop {peer:,.0f}/s, ratio {ours / peer:,.0f}")  # noqa: T201


def said(queries: int, labels: int, seed: int = 1) -> NDArray[np.bool_]:
    """Ballots of teachers who mostly agree."""
    rng = np.random.default_rng(seed)
    return rng.random((queries, TEACHERS, labels)) < rng.beta(0.3, 1.2, (queries, 1, labels))


def converted(cost: Floats) -> float:
    return float(np.min(cost - math.log(DELTA) / (ORDERS - 1)))


def exact_cost(yes: int) -> Floats:
    """Of one answer: the dearest of both neighbours, both directions."""
    chance = [ndtr((2 * v - TEACHERS) / (math.sqrt(2) * SIGMA)) for v in (yes - 1, yes, yes + 1)]
    worst = np.zeros(ORDERS.size)
    for other in (chance[0], chance[2]):
        for p, q in ((chance[1], other), (other, chance[1])):
            p, q = max(p, 1e-300), max(q, 1e-300)
            with np.errstate(over="ignore", divide="ignore"):
                yes_part = p * (p / q) ** (ORDERS - 1)
                no_part = (1 - p) * ((1 - p) / (1 - q)) ** (ORDERS - 1) if q < 1 else 0.0
                worst = np.maximum(worst, np.log(yes_part + no_part) / (ORDERS - 1))
    return worst


def published_cost(yes: int) -> Floats:
    log_q = norm.logsf(abs(2 * yes - TEACHERS) / (math.sqrt(2) * SIGMA))
    return np.asarray(papernot.rdp_of_log_miss([log_q], sigma=SIGMA, orders=ORDERS)[0])


def by_loop(counts: NDArray[np.int64], cost: Callable[[int], Floats]) -> list[float]:
    total, epsilons = np.zeros(ORDERS.size), []
    for query in counts:
        for yes in query:
            total = total + cost(int(yes))
        epsilons.append(converted(total))
    return epsilons


# Measured: exact 1.08 M/s against 780/s, papernot 1.06 M/s against 510/s: 1,380 and 2,090 times
# as fast. The goal is 500,000/s.
@pytest.mark.parametrize(
    ("mode", "cost"), [(Mode.EXACT, exact_cost), (Mode.PAPERNOT, published_cost)]
)
def test_binary_analysis_against_a_loop_over_labels(mode, cost):
    queries, few = 20_000, 60
    counts = said(queries, LABELS).sum(axis=1)
    counts = np.clip(counts, 1, TEACHERS - 1)  # the loop knows no ends

    def ours(votes: NDArray[np.int64]) -> Floats:
        return analyse(
            BINARY, votes, mode=mode, delta=DELTA, conversion=Conversion.CLASSIC
        ).epsilons

    np.testing.assert_allclose(ours(counts[:few]), by_loop(counts[:few], cost), rtol=1e-6)
    fast = speed(queries, lambda: ours(counts))
    slow = speed(few, lambda: by_loop(counts[:few], cost))
    show(f"binary, {mode}", fast, slow)
    assert fast > 300 * slow


def test_powerset_analysis_against_a_loop_over_queries():
    queries, few = 5_000, 60
    # Measured, with counting the ballots: 142,000/s against 3,030/s, or 47 times. The goal is
    # 10,000/s.
    rule = VotingRule(mechanism=Mechanism.POWERSET, teachers=TEACHERS, labels=LABELS, sigma=SIGMA)
    ballots = Ballots.of(said(queries, LABELS))
    votes = votes_for(rule, ballots)

    def loop() -> list[float]:
        total, epsilons = np.zeros(ORDERS.size), []
        for row in ballots.rows(slice(few)).unpacked():
            _, counts = np.unique(row, axis=0, return_counts=True)
            log_q = papernot.log_miss([counts], sigma=SIGMA, classes=rule.classes)
            total = total + papernot.rdp_of_log_miss(log_q, sigma=SIGMA, orders=ORDERS)[0]
            epsilons.append(converted(total))
        return epsilons

    def ours(some: Ballots) -> Floats:
        return analyse(
            rule,
            votes_for(rule, some),
            mode=Mode.PAPERNOT,
            delta=DELTA,
            conversion=Conversion.CLASSIC,
        ).epsilons

    np.testing.assert_allclose(ours(ballots.rows(slice(few))), loop(), rtol=1e-9)
    assert votes.shape == (queries, TEACHERS)
    fast, slow = speed(queries, lambda: ours(ballots)), speed(few, loop)
    show("powerset, papernot", fast, slow)
    assert fast > 10 * slow


# Measured beside other work on both cores: of teachers who mostly agree 8,800 to 9,600/s against
# 98 to 111/s, of such who scatter 5,750 to 5,830/s against 44 to 48/s. The goal is 5,000/s.
@pytest.mark.parametrize("sigma", [10.0, 40.0])
@pytest.mark.parametrize("agreeing", [True, False], ids=["agreeing", "scattered"])
def test_winners_at_once_against_one_move_of_a_vote_after_the_other(agreeing, sigma):
    # 250 teachers, 10 classes, histograms that all differ.
    queries, few, rng = 2_000, 12, np.random.default_rng(1)
    shares = rng.dirichlet(np.full(10, 0.3), queries)
    if agreeing:
        most = rng.beta(8, 1, (queries, 1))
        shares = (1 - most) * shares + most * np.eye(10)[rng.integers(10, size=queries)]
    votes = np.array([rng.multinomial(250, row) for row in shares / shares.sum(1, keepdims=True)])
    rule: dict[str, Any] = {"classes": 10, "sigma": sigma, "orders": ORDERS}

    def loop() -> Floats:
        return np.array([plurality_divergence(row, **rule) for row in votes[:few]])

    np.testing.assert_allclose(
        plurality_divergences(votes[:few], **rule), loop(), rtol=1e-9, atol=1e-10
    )
    fast = speed(queries, lambda: plurality_divergences(votes, **rule))
    slow = speed(few, loop)
    show(f"winners, exact, agreeing {agreeing}, sigma {sigma:g}", fast, slow)
    assert fast > 15 * slow


def test_sparse_sets_against_noise_on_all_of_them():
    # Of fourteen labels; of twenty, all sets of one query are 8 MB of noise. Measured: 319,000/s
    # against 5,690/s, or 56 times.
    labels, queries, few = 14, 5_000, 100
    rule = VotingRule(mechanism=Mechanism.POWERSET, teachers=TEACHERS, labels=labels, sigma=SIGMA)
    ballots, rng = Ballots.of(said(queries, labels)), np.random.default_rng(1)
    weights = 1 << np.arange(labels - 1, -1, -1)

    def dense() -> list[int]:
        winners = []
        for row in ballots.rows(slice(few)).unpacked():
            histogram = np.bincount(row @ weights, minlength=1 << labels)
            winners.append(int((histogram + SIGMA * rng.standard_normal(1 << labels)).argmax()))
        return winners

    fast = speed(queries, lambda: release(rule, ballots, rng=secure()))
    slow = speed(few, dense)
    show("sparse sets, k = 14, against dense ones", fast, slow)
    assert fast > 15 * slow
