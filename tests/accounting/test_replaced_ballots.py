"""Every ballot that can be replaced, replaced: no answer's law moves by more than is charged.

All ensembles of 3 to 6 teachers and up to 3 labels, every rule, all neighbours, both
directions. Two symmetries are used: who of the teachers cast which ballot does not matter
to any law, and of a plurality neither do the names of the classes. Laws and clipping are
written down here once more; nothing of the accounting is used but the costs in question.

Seen red: with either direction alone in `move_divergences`, in the divergence of a plurality,
and in that of scaled ballots; with the factor 2 left out of `moved` of `top_m`, `tau_l2` and
`tau_l1`, and out of the events of a plurality; with checks of scaled ballots charged for whole
votes only; with neighbours that give a vote to cast classes only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr

from dpal.accounting.votes.cost_analysis import Conversion, Mode, analyse
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from tests.variants import quick_and_slow

Floats = NDArray[np.float64]

ORDERS = np.array([1.2, 2.0, 8.0, 40.0])
NODE, WEIGHT = np.polynomial.legendre.leggauss(400)


def charged(rule: VotingRule, votes: Floats, mode: Mode) -> Floats:
    """Cost of each query at ORDERS, (queries, o), read off epsilons at a delta of nearly 1."""
    found = [
        analyse(
            rule,
            votes,
            mode=mode,
            delta=1 - 2.0**-52,
            orders=np.array([order]),
            conversion=Conversion.CLASSIC,
        ).epsilons
        for order in ORDERS
    ]
    return np.diff(np.stack(found, axis=1), axis=0, prepend=0.0)


def renyi(p: Floats, q: Floats) -> Floats:
    """Divergence of laws along the last axis, given by logarithms, (..., o)."""
    moments = logsumexp(ORDERS * p[..., None] + (1 - ORDERS) * q[..., None], axis=-2)
    return np.asarray(moments / (ORDERS - 1))


def passing(top: Floats, confidence: Confidence) -> tuple[Floats, Floats]:
    """Log-chances that an answer is given, and that it is not."""
    above = (top - confidence.threshold) / confidence.sigma
    return log_ndtr(above), log_ndtr(-above)


def answer_law(counts: Floats, rule: VotingRule) -> Floats:
    """Log-chances of no, yes and perhaps unanswered of every count, (..., outcomes)."""
    # One noisy count against half of the teachers, or two against each other.
    spread = rule.sigma if rule.noises == 1 else rule.sigma / math.sqrt(2)
    x = (counts - rule.teachers / 2) / spread
    said = np.stack([log_ndtr(-x), log_ndtr(x)], axis=-1)
    if rule.confidence is None:
        return said
    given, refused = passing(np.maximum(counts, rule.teachers - counts), rule.confidence)
    return np.concatenate([said + given[..., None], refused[..., None]], axis=-1)


def clipped(rule: VotingRule) -> Floats:
    """What each of the 2^k ballots adds to the counts, (2^k, k)."""
    ballots = []
    for bits in product([0.0, 1.0], repeat=rule.labels):
        ballot, limit = list(bits), rule.limit or 0.0
        if rule.mechanism is Mechanism.TOP_M:
            for label in range(rule.labels):
                ballot[label] *= sum(bits[: label + 1]) <= limit
        elif rule.mechanism is not Mechanism.BINARY:
            order = 2 if rule.mechanism is Mechanism.TAU_L2 else 1
            norm = sum(one**order for one in bits) ** (1 / order)
            ballot = [one * min(1.0, limit / norm) if norm else 0.0 for one in bits]
        ballots.append(ballot)
    return np.array(ballots)


def answers_moved(rule: VotingRule) -> tuple[Floats, Floats]:
    """Counts of every ensemble (m, k), and the most that one ballot moves its law (m, o)."""
    adds = clipped(rule)
    cast = np.array(list(combinations_with_replacement(range(len(adds)), rule.teachers)))
    counts = adds[cast].sum(axis=1)
    others = counts[:, None, None] - adds[cast][:, :, None] + adds[None, None]
    levels, at = np.unique(np.round([*counts.ravel(), *others.ravel()], 9), return_inverse=True)
    laws = answer_law(levels, rule)
    table = renyi(laws[:, None], laws[None])
    here = at[: counts.size].reshape(len(cast), 1, 1, -1)
    there = at[counts.size :].reshape(others.shape)
    labels = range(rule.labels)
    ways = [
        np.sum([one[at[0][..., j], at[1][..., j]] for j in labels], axis=0).max(axis=(1, 2))
        for one, at in ((table, (here, there)), (table, (there, here)))
    ]
    # Ensembles with the same counts have one law: what counts is the dearest ballot of any.
    distinct, back = np.unique(here[:, 0, 0], axis=0, return_inverse=True)
    most = np.zeros((len(distinct), ORDERS.size))
    np.maximum.at(most, back.ravel(), np.maximum(*ways))
    return levels[distinct], most


def checks_of(teachers: int) -> Iterator[Confidence | None]:
    yield None
    yield Confidence(threshold=teachers / 2 - 0.1, sigma=0.1)  # a hair from a tie
    yield Confidence(threshold=teachers - 1.0, sigma=1.5)


def answer_rules(teachers: int, labels: int) -> Iterator[VotingRule]:
    kinds: list[tuple[Mechanism, float | None]] = [(Mechanism.BINARY, None)]
    kinds += [(Mechanism.TOP_M, float(m)) for m in range(1, labels + 1)]
    if labels > 1:  # one label is never scaled down
        kinds += [(Mechanism.TAU_L2, one) for one in (1.0, 1.2, 1.5)]
        kinds += [(Mechanism.TAU_L1, one) for one in (1.0, 1.5, 2.0)]
    noise = [(0.6, 2), (3.0, 1)]
    for (mechanism, limit), (sigma, noises) in product(kinds, noise):
        rule = VotingRule(
            mechanism=mechanism,
            teachers=teachers,
            labels=labels,
            sigma=sigma,
            limit=limit,
            noises=noises,
        )
        for confidence in checks_of(teachers):
            yield replace(rule, confidence=confidence)


def in_order(rule: VotingRule, truth: Floats, votes: Floats) -> Floats:
    """Truth <= exact <= sharpened <= data_independent; returns exact."""
    exact, sharpened, independent = (
        charged(rule, votes, mode) for mode in (Mode.EXACT, Mode.SHARPENED, Mode.DATA_INDEPENDENT)
    )
    # Rounding: of chances next to 1 over order - 1 = 0.2, and of a thousand costs added up.
    for low, high in ((truth, exact), (exact, sharpened), (sharpened, independent)):
        assert np.all(low <= high * (1 + 1e-7) + 1e-11), rule
    return exact


@pytest.mark.parametrize(
    ("labels", "teachers"),
    quick_and_slow([(1, 3), (1, 4), (1, 5), (2, 3), (2, 5)], product([1, 2, 3], [3, 4, 5, 6])),
)
def test_no_ballot_moves_yes_or_no_answers_by_more_than_is_charged(teachers, labels):
    tightest: dict[Mechanism, float] = {}
    for rule in answer_rules(teachers, labels):
        votes, truth = answers_moved(rule)
        exact = in_order(rule, truth, votes)
        if rule.confidence is None:
            share = float((truth.max(axis=0) / exact.max(axis=0)).max())
            tightest[rule.mechanism] = max(share, tightest.get(rule.mechanism, 0.0))
    # Not by charging anything: some ballot of some ensemble does cost so much.
    assert all(share > 0.6 for share in tightest.values()), tightest
    assert tightest[Mechanism.BINARY] == pytest.approx(1, abs=1e-6)


def partitions(total: int, parts: int, most: int) -> Iterator[list[int]]:
    """Histograms of so many classes, the largest first: their names do not matter."""
    if parts == 0:
        if total == 0:
            yield []
        return
    for first in range(min(total, most), -1, -1):
        for rest in partitions(total - first, parts - 1, first):
            yield [first, *rest]


def winner_law(votes: Floats, rule: VotingRule) -> Floats:
    """Log-chance of each class and perhaps of no answer, by Gauss-Legendre."""
    low, high = votes.min() / rule.sigma - 9, votes.max() / rule.sigma + 9
    x = (low + high) / 2 + (high - low) / 2 * NODE
    apart = x[None] - votes[:, None] / rule.sigma
    below = ndtr(apart)
    density = np.exp(-(apart**2) / 2) / math.sqrt(2 * math.pi) * WEIGHT * (high - low) / 2
    others = [np.delete(below, one, axis=0).prod(axis=0) for one in range(votes.size)]
    law: Floats = np.log((density * np.array(others)).sum(axis=1))
    if rule.confidence is None:
        return law
    given, refused = passing(votes.max(keepdims=True), rule.confidence)
    return np.concatenate([law + given, refused])


def winners_moved(rule: VotingRule) -> tuple[Floats, Floats]:
    """Every histogram (m, classes), and the most that one ballot moves the winner's law."""
    found, most = [], []
    for histogram in partitions(rule.teachers, rule.classes, rule.teachers):
        votes = np.array(histogram, dtype=np.float64)
        here, worst = winner_law(votes, rule), np.zeros(ORDERS.size)
        for giver, taker in product(range(votes.size), repeat=2):
            if giver == taker or not votes[giver]:
                continue
            moved = votes.copy()
            moved[giver] -= 1
            moved[taker] += 1
            there = winner_law(moved, rule)
            worst = np.maximum(worst, np.maximum(renyi(here, there), renyi(there, here)))
        found.append(votes)
        most.append(worst)
    return np.array(found), np.array(most)


def winner_rules(teachers: int) -> Iterator[VotingRule]:
    kinds: list[tuple[Mechanism, int, float | None]]
    kinds = [(Mechanism.GNMAX, classes, None) for classes in (2, 3, 5)]
    for labels in (1, 2, 3):
        kinds.append((Mechanism.POWERSET, labels, None))
        kinds += [(Mechanism.POWERSET, labels, float(m)) for m in range(1, labels)]
    for (mechanism, labels, limit), sigma in product(kinds, (0.7, 4.0)):
        for confidence in checks_of(teachers):
            yield VotingRule(
                mechanism=mechanism,
                teachers=teachers,
                labels=labels,
                sigma=sigma,
                limit=limit,
                confidence=confidence,
            )


@pytest.mark.parametrize("teachers", quick_and_slow([3], [3, 4, 5, 6]))
def test_no_ballot_moves_a_winner_by_more_than_is_charged(teachers):
    for rule in winner_rules(teachers):
        votes, truth = winners_moved(rule)
        exact = in_order(rule, truth, votes)
        # Every neighbour was looked at on both sides: no less, and no more.
        assert_allclose(exact, truth, rtol=1e-6, atol=1e-10)
