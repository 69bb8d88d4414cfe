"""How far teachers agree, told with noise: what one ballot moves, and what the noise is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import AGREEMENT_QUANTILES, VotingRule, summary_event
from dpal.errors import ParameterError
from dpal.planning.choose_cost_bound import require_shares
from dpal.randomness import secure
from dpal.voting.agreement_quantiles import (
    noisy_quantiles,
    shares_between,
    shares_of_public,
    votes_on_the_side_of_the_majority,
)
from dpal.voting.ballots import Choices


@pytest.mark.parametrize(("teachers", "classes"), [(3, 2), (3, 4), (4, 3), (5, 3)])
def test_one_ballot_moves_the_agreement_on_a_query_by_one_vote_at_most(teachers, classes):
    """Exhaustive. Seen red with the whole lead in place of half of it."""
    all_votes = np.array(list(itertools.product(range(classes), repeat=teachers)))
    agreeing = votes_on_the_side_of_the_majority(Choices(all_votes, classes))
    by_votes = dict(zip(map(tuple, all_votes.tolist()), agreeing, strict=True))
    furthest = 0.0
    for votes, here in by_votes.items():
        for teacher, other in itertools.product(range(teachers), range(classes)):
            changed = (*votes[:teacher], other, *votes[teacher + 1 :])
            furthest = max(furthest, abs(here - by_votes[changed]))
    assert furthest == 1.0


def test_each_quantile_is_charged_one_vote_and_moves_no_further():
    rng = np.random.default_rng(2)
    rule = VotingRule(mechanism=Mechanism.GNMAX, teachers=9, labels=4, sigma=1.0)
    assert summary_event(rule, 3.0).squared_sensitivity == AGREEMENT_QUANTILES
    for _ in range(60):
        votes = rng.integers(0, rng.integers(1, 5), (11, 9))
        other = votes.copy()
        other[:, 4] = rng.integers(0, 4, 11)
        told = [
            np.array(noisy_quantiles(Choices(one, 4), 1e-9, rng=secure())) for one in (votes, other)
        ]
        assert len(told[0]) == AGREEMENT_QUANTILES
        assert np.abs(told[0] - told[1]).max() <= (1 + 1e-6) / 9 + 1e-4  # four digits are told


def test_the_noise_is_what_is_charged():
    """Of 400 draws the standard deviation is known to 3.5 %; seen red with half of the noise."""
    votes = np.array([[0] * 75 + [1] * 25] * 50)  # a lead of 50 on every query: 75 votes of 100
    draws = [noisy_quantiles(Choices(votes, 3), 4.0, rng=secure()) for _ in range(400)]
    # In order, their sum is that of five independent draws.
    means = 100 * np.array(draws).mean(axis=1)
    assert means.mean() == pytest.approx(75, abs=0.5)
    assert means.std() == pytest.approx(4 / np.sqrt(AGREEMENT_QUANTILES), rel=0.14)


def test_a_guess_has_near_ties_also_where_no_quantile_is_one():
    shares = shares_between([0.7, 0.9, 0.95, 1.0, 1.0])
    require_shares(shares)
    assert list(shares) == sorted(shares)
    assert shares[0] < 0.6
    assert np.mean(shares) == pytest.approx(np.mean([0.7, 0.9, 0.95, 1.0, 1.0]), abs=0.03)
    with pytest.raises(ParameterError):
        shares_between([])


def test_public_ballots_give_their_own_quantiles():
    votes = np.array([[0] * (50 + agree) + [1] * (50 - agree) for agree in range(51)])
    shares = shares_of_public(Choices(votes, 3))
    assert shares == pytest.approx(0.5 + (np.arange(20) + 0.5) / 40, abs=0.006)
