"""A public model's answers stand unless teachers object: exact law, sampler and answers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpal.accounting.events import SparseVector
from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataError, ParameterError
from dpal.privacy import Adjacency
from dpal.randomness import BitSource, secure
from dpal.voting import public_consensus
from dpal.voting.ballots import Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.public_consensus import objections_to, release_by_consensus
from tests.conftest import nothing_released
from tests.variants import quick_and_slow

FALSE_ALARM = 1e-6
WIDE = 400  # of the threshold's noise: what lies beyond has a chance below 1e-20
Counts = tuple[int, ...]
Law = dict[Counts, float]

RULE = VotingRule(mechanism=Mechanism.GNMAX, teachers=20, labels=4, sigma=1e-3)
CONSENSUS = PublicConsensus(epsilon=1.0, objections=3, threshold=10)


def split(epsilon: float) -> tuple[float, float]:
    """Of the threshold, and of a count for a shift by one; Lyu, Su & Li (2017), written out."""
    threshold = epsilon / (1 + 4 ** (1 / 3))
    return threshold, (epsilon - threshold) / 2


def below(epsilon: float, number: int) -> float:
    """Chance that discrete Laplace noise is below a whole number."""
    weight = math.exp(-epsilon)
    if number > 0:
        return 1 - weight**number / (1 + weight)
    return weight ** (1 - number) / (1 + weight)


@cache
def masses(epsilon: float) -> NDArray[np.float64]:
    """Chances of all noise of the threshold."""
    weight = math.exp(-epsilon)
    return (1 - weight) / (1 + weight) * weight ** np.abs(np.arange(-WIDE, WIDE + 1))


@cache
def passes(count: int, threshold: int, epsilon: float) -> NDArray[np.float64]:
    """Chance that a count stays below, for all noise of the threshold."""
    noise = range(-WIDE, WIDE + 1)
    return np.array([below(epsilon, threshold + more - count) for more in noise])


def law(counts: Counts, threshold: int, noise: tuple[float, float], objections: int) -> Law:
    """Chance of every set of objections."""
    found = {}
    for number in range(min(objections, len(counts)) + 1):
        for stops in itertools.combinations(range(len(counts)), number):
            chance, start = 1.0, 0
            ends = stops if number == objections else (*stops, None)
            for end in ends:
                run = masses(noise[0])
                for count in counts[start:end]:
                    run = run * passes(count, threshold, noise[1])
                if end is not None:
                    run = run * (1 - passes(counts[end], threshold, noise[1]))
                    start = end + 1
                chance *= float(run.sum())
            found[stops] = chance
    return found


def neighbours(teachers: int, queries: int) -> Iterator[tuple[Counts, Counts]]:
    """All counts of objecting teachers, with all that one replaced ballot makes of them."""
    for counts in itertools.product(range(teachers + 1), repeat=queries):
        for moves in itertools.product((-1, 0, 1), repeat=queries):
            moved = tuple(count + move for count, move in zip(counts, moves, strict=True))
            if all(0 <= count <= teachers for count in moved):
                yield counts, moved


def worst_loss(
    teachers: int, threshold: int, noise: tuple[float, float], queries: int = 3
) -> float:
    """Largest loss of one run, over everything."""
    laws = {
        counts: law(counts, threshold, noise, 1)
        for counts in itertools.product(range(teachers + 1), repeat=3)
    }
    return max(
        math.log(laws[counts][stops] / laws[moved][stops])
        for counts, moved in neighbours(teachers, 3)
        for stops in laws[counts]
    )


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(("teachers", "threshold"), [(3, 2), (4, 2), (5, 4)])
def test_no_run_loses_more_than_it_is_charged(teachers, threshold, epsilon):
    loss = worst_loss(teachers, threshold, split(epsilon))
    assert epsilon / 2 < loss <= epsilon * (1 + 1e-9)
    # Noise that covers a count moving by one vote alone, while its threshold moves, too.
    first, second = split(epsilon)
    assert worst_loss(teachers, threshold, (first, 2 * second)) > epsilon


@pytest.mark.parametrize("objections", [1, 2, 3])
def test_runs_together_tell_no_more_than_as_many_randomized_responses(objections):
    epsilon, orders = 1.0, [1.5, 2.0, 8.0, 64.0]
    event = SparseVector(stops=objections, epsilon=epsilon)
    allowed = event.renyi(Adjacency.ZERO_OUT)[np.searchsorted(ORDERS, orders)]
    found = np.zeros(4)
    cached = cache(lambda counts: law(counts, 2, split(epsilon), objections))
    for counts, moved in neighbours(3, 3):
        here, there = cached(counts), cached(moved)
        assert sum(here.values()) == pytest.approx(1)
        mine, other = (np.array([world[stops] for stops in here]) for world in (here, there))
        moments = [(other * (mine / other) ** order).sum() for order in orders]
        found = np.maximum(found, np.log(moments) / (np.array(orders) - 1))
    assert (found <= allowed).all()
    assert found[-1] > allowed[-1] / objections / 2


def test_every_objection_is_charged():
    """Two runs lose more than one may, where each passes some queries before its objection."""
    noise, passed = split(1.0), 6
    here, there = ((3,) * passed + (3,)) * 2, ((4,) * passed + (2,)) * 2
    stops = (passed, 2 * passed + 1)
    loss = math.log(law(here, 3, noise, 2)[stops] / law(there, 3, noise, 2)[stops])
    assert 1 < loss <= 2


def test_epsilon_is_split_without_a_rest():
    for epsilon in (2.0**-18, 0.01, 0.37, 1.0, 7.7, 64.0):
        consensus = replace(CONSENSUS, epsilon=epsilon)
        parts = consensus.threshold_epsilon, consensus.query_epsilon
        assert parts[0] + 2 * parts[1] <= epsilon
        assert parts == pytest.approx(split(epsilon), abs=2.0**-19)
        # What is drawn is rounded down to such steps, and is this very number.
        assert all(part == int(part * 2**20) / 2**20 for part in parts)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("threshold", [1, 3, 20])
def test_objections_by_noise_alone_are_foretold(epsilon, threshold):
    consensus = PublicConsensus(epsilon=epsilon, objections=1, threshold=threshold)
    exact = law((0,), threshold, split(epsilon), 1)[0,]
    assert consensus.false_objection_probability == pytest.approx(exact, rel=1e-4)
    first, second = (2 * math.exp(-part) / (1 - math.exp(-part)) ** 2 for part in split(epsilon))
    assert consensus.mean_noise == pytest.approx(math.sqrt(first + second), rel=1e-4)


def run_lengths(
    consensus: PublicConsensus, count: int, *, times: int, rng: BitSource
) -> NDArray[np.int64]:
    """Queries of each run, where the same number of teachers objects to all of them."""
    found = []
    for _ in range(times):
        stops = objections_to(np.full(60 * consensus.objections, count), consensus, rng=rng)
        assert len(stops) == consensus.objections  # or there were too few queries
        found.append(np.diff(stops, prepend=-1))
    return np.concatenate(found)


def p_value(lengths: NDArray[np.int64], noise: tuple[float, float], count: int) -> float:
    """Of lengths of independent runs, against their exact law."""
    below_it, most = passes(count, CONSENSUS.threshold, noise[1]), 6
    law_of = [
        float((masses(noise[0]) * below_it**length * (1 - below_it)).sum())
        for length in range(most)
    ]
    seen = [int((lengths == length + 1).sum()) for length in range(most)]
    rest = len(lengths) - sum(seen)
    expected = np.array([*law_of, 1 - sum(law_of)]) * len(lengths)
    return float(stats.chisquare([*seen, rest], expected).pvalue)


# At 9 of 10, wrong noise is told from the right one by many more runs.
@pytest.mark.parametrize(
    ("count", "times"), quick_and_slow([(10, 0)], [(9, 40), (10, 0), (12, 15)])
)
def test_runs_have_the_law_that_is_charged(bits, count, times):
    consensus, noise = replace(CONSENSUS, objections=1_000), split(CONSENSUS.epsilon)
    lengths = run_lengths(consensus, count, times=6, rng=bits)
    assert p_value(lengths, noise, count) > FALSE_ALARM
    if count != consensus.threshold:  # there the law depends on the ratio of both alone, nearly
        less = replace(consensus, epsilon=1.25 * consensus.epsilon)
        lengths = run_lengths(less, count, times=times, rng=bits)
        assert p_value(lengths, noise, count) < FALSE_ALARM


@pytest.mark.slow
def test_objections_have_the_law_that_is_charged(bits):
    """Sets of objections to three queries, of which two at most: also where the second run ends."""
    consensus, draws = replace(CONSENSUS, objections=2, threshold=3), 2_000
    exact = law((2, 4, 3), 3, split(1.0), 2)
    counts = np.array([2, 4, 3])
    seen = Counter(tuple(objections_to(counts, consensus, rng=bits).tolist()) for _ in range(draws))
    assert set(seen) <= set(exact)
    found = stats.chisquare(
        [seen[stops] for stops in exact], np.array(list(exact.values())) * draws
    )
    assert found.pvalue > FALSE_ALARM


def choices(objecting: list[int], *, teachers: int = 20) -> Choices:
    """The first teachers name class 2, as many as object, and the rest the public class 1."""
    chosen = np.where(np.arange(teachers) < np.array(objecting)[:, None], 2, 1)
    return Choices(chosen.astype(np.int64), 4)


def test_public_answers_stand_but_where_teachers_object():
    """With next to no noise everything is decided."""
    sure = replace(CONSENSUS, epsilon=60.0)
    ballots = choices([0, 15, 3, 20, 9, 11, 18, 0])
    told = release_by_consensus(RULE, ballots, np.ones(8, np.int64), sure, rng=secure())
    assert told.released.labels.tolist() == [1, 2, 1, 2, 1, 2, UNANSWERED, UNANSWERED]
    assert (told.reached, told.objections) == (6, 3)
    patient = replace(sure, objections=5)
    told = release_by_consensus(RULE, ballots, np.ones(8, np.int64), patient, rng=secure())
    assert told.released.labels.tolist() == [1, 2, 1, 2, 1, 2, 2, 1]
    assert (told.reached, told.objections) == (8, 4)


def test_where_they_object_teachers_answer_with_noise_and_may_agree_with_the_model():
    sure, loud = replace(CONSENSUS, epsilon=60.0), replace(RULE, sigma=100.0)
    ballots = choices([20] * 600)
    told = release_by_consensus(
        loud, ballots, np.ones(600, np.int64), replace(sure, objections=600), rng=secure()
    )
    assert set(np.unique(told.released.labels)) == {0, 1, 2, 3}


def test_nobody_objects_and_no_query_is_asked():
    sure = replace(CONSENSUS, epsilon=60.0)
    for queries in (0, 7):
        public, ballots = np.ones(queries, np.int64), choices([0] * 7).rows(slice(0, queries))
        told = release_by_consensus(RULE, ballots, public, sure, rng=secure())
        assert told.released.labels.tolist() == public.tolist()
        assert (told.reached, told.objections) == (queries, 0)


@pytest.mark.parametrize("public", [[1, 1], [1, 1, 4], [-1, 1, 1], [[1], [1], [1]]], ids=str)
def test_public_answers_that_do_not_fit_are_refused_before_noise(public, monkeypatch):
    monkeypatch.setattr(public_consensus, "laplace_noise", lambda *_, **__: pytest.fail("drawn"))
    with pytest.raises(DataError) as refusal:
        release_by_consensus(
            RULE, choices([0, 5, 9]), np.array(public, np.int64), CONSENSUS, rng=secure()
        )
    assert nothing_released(refusal.value)


@pytest.mark.parametrize(
    ("rule", "consensus"),
    [
        (replace(RULE, confidence=Confidence(threshold=9, sigma=2.0)), CONSENSUS),
        (replace(RULE, counts=True), CONSENSUS),
        (RULE, replace(CONSENSUS, threshold=21)),
    ],
    ids=["threshold", "counts", "more than there are"],
)
def test_other_rules_are_refused_before_noise(rule, consensus, monkeypatch):
    monkeypatch.setattr(public_consensus, "laplace_noise", lambda *_, **__: pytest.fail("drawn"))
    with pytest.raises(ParameterError) as refusal:
        release_by_consensus(rule, choices([3]), np.ones(1, np.int64), consensus, rng=secure())
    assert nothing_released(refusal.value)


@pytest.mark.parametrize(
    "change", [{"epsilon": 0.0}, {"epsilon": 65.0}, {"objections": 0}, {"threshold": 0}], ids=str
)
def test_what_cannot_be_drawn_is_refused(change):
    with pytest.raises(ParameterError):
        replace(CONSENSUS, **change)
