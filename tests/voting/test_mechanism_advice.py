"""Statistics of labels, and which mechanism they speak for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpal.accounting.votes.cost_analysis import queries_within
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule, powers_of_two, summary_event
from dpal.errors import ParameterError
from dpal.voting.ballots import Ballots
from dpal.voting.mechanism_advice import LabelStatistics, from_public, noisy_summary, options
from tests.conftest import RepeatableBits


def sparse(records: int = 400, labels: int = 20) -> np.ndarray:
    """Independent labels, of which a record has one or none."""
    rng = np.random.default_rng(1)
    found = np.zeros((records, labels), dtype=np.int8)
    found[np.arange(records), rng.integers(0, labels, records)] = 1
    return found


def test_public_labels_say_how_many_a_record_has():
    known = from_public(sparse(), consensus=0.9)
    assert (known.labels, known.sizes[0], known.limit) == (20, 1.0, 1)
    assert known.source == "public labels"
    full = from_public(np.ones((5, 4), dtype=int), consensus=0.9)
    assert full.limit == 4
    assert full.joint == 0.0  # nothing is left open


def test_labels_that_follow_from_another_are_known_to():
    one = np.random.default_rng(2).integers(0, 2, (500, 1))
    same = from_public(np.repeat(one, 4, axis=1), consensus=0.9).joint
    free = from_public(np.random.default_rng(3).integers(0, 2, (5000, 4)), consensus=0.9).joint
    assert same is not None and free is not None
    assert same == pytest.approx(0.25, abs=0.01)
    assert free > 0.99


@pytest.mark.parametrize("consensus", [0.5, 1.0, np.nan])
def test_a_consensus_is_more_than_half(consensus):
    with pytest.raises(ParameterError, match="consensus"):
        from_public(sparse(), consensus=consensus)


@pytest.mark.parametrize("labels", [np.zeros((0, 3), int), np.zeros(4, int)])
def test_no_labels_are_no_statistics(labels):
    with pytest.raises(ParameterError):
        from_public(labels, consensus=0.9)


def test_options_are_ordered_and_within_the_budget():
    known = from_public(sparse(), consensus=0.9)
    found = options(known, teachers=50, epsilon=4.0, delta=1e-5)
    queries = [one.queries for one in found]
    assert queries == sorted(queries, reverse=True)
    assert {one.rule.mechanism for one in found} == {
        Mechanism.BINARY, Mechanism.TOP_M, Mechanism.TAU_L2, Mechanism.POWERSET,
    }  # fmt: skip
    for one in found:
        assert one.queries == queries_within(one.rule, epsilon=4.0, delta=1e-5)
        assert one.rule.teachers == 50
        assert one.why


def test_sparse_labels_speak_for_limits_and_dense_ones_do_not():
    found = options(from_public(sparse(), consensus=0.9), teachers=50, epsilon=4.0, delta=1e-5)
    known = {one.rule.mechanism: one for one in found}
    assert known[Mechanism.TOP_M].queries > 5 * known[Mechanism.BINARY].queries
    dense = from_public(np.random.default_rng(1).integers(0, 2, (300, 4)), consensus=0.9)
    found = options(dense, teachers=50, epsilon=4.0, delta=1e-5)
    assert {one.rule.mechanism for one in found} == {Mechanism.BINARY, Mechanism.POWERSET}


def test_more_agreement_stands_more_noise():
    few, many = (
        options(from_public(sparse(), consensus=one), teachers=50, epsilon=4.0, delta=1e-5)
        for one in (0.6, 0.95)
    )
    assert many[0].queries > few[0].queries


def summary(ballots: np.ndarray, sigma: float) -> LabelStatistics:
    return noisy_summary(Ballots.of(ballots), sigma, rng=RepeatableBits(5))


def test_a_summary_tells_sizes_and_agreement():
    ballots = np.repeat(sparse(30)[:, None], 40, axis=1)
    found = summary(ballots, 1e-9)
    assert found.sizes == pytest.approx([1.0] * len(powers_of_two(20)))
    assert found.consensus == pytest.approx(0.99)  # all agree; kept off the end
    assert "paid" in found.source
    wild = summary(ballots, 1e6)
    assert list(wild.sizes) == sorted(wild.sizes)
    assert all(0 <= one <= 1 for one in wild.sizes)
    assert 0.5 < wild.consensus < 1


def test_one_ballot_moves_a_summary_by_no_more_than_is_charged():
    rng = np.random.default_rng(7)
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=5, labels=20, sigma=1.0)
    charged = summary_event(rule, 1.0).squared_sensitivity
    largest = 0.0
    for _ in range(50):
        ballots = (rng.random((6, 5, 20)) < rng.random()).astype(np.uint8)
        other = ballots.copy()
        other[:, 2] = rng.random((6, 20)) < rng.random()
        counts = [
            np.append(
                [(one.sum(axis=2) <= most).mean(axis=0).sum() for most in powers_of_two(20)],
                np.maximum(one.sum(axis=1), 5 - one.sum(axis=1)).mean(),
            )
            for one in (ballots, other)
        ]
        largest = max(largest, float(((counts[0] - counts[1]) ** 2).sum()))
        # What is summed up here is what the summary tells without noise.
        told = summary(ballots, 1e-9)
        assert np.allclose(np.maximum.accumulate(counts[0][:-1]) / 5, told.sizes, atol=1e-6)
    assert largest <= charged
    # Whoever empties all ballots of one teacher moves every size by one.
    assert charged == len(powers_of_two(20)) + 1 == math.ceil(math.log2(20)) + 1
