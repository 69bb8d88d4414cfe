"""Objections of teachers as an event of the ledger: by exact sums, and by dp-accounting."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import optimize, stats

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion
from dpal.accounting.events import SparseVector
from dpal.accounting.votes.second_opinion import epsilon_of_votes
from dpal.errors import ParameterError
from dpal.privacy import PrivacyTarget
from tests.accounting.event_contract import alone

TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)
EVENTS = [
    SparseVector(stops=1, epsilon=0.7),
    SparseVector(stops=10, epsilon=0.3),
    SparseVector(stops=40, epsilon=0.1),
    SparseVector(stops=100, epsilon=0.05),
]


def exact(event: SparseVector, delta: float) -> float:
    """Epsilon of so many randomized responses, by the sum over how many of them are right."""
    right = np.arange(event.stops + 1)
    chance = 1 / (1 + math.exp(-event.epsilon))
    here, there = (stats.binom.pmf(right, event.stops, p) for p in (chance, 1 - chance))

    def above(epsilon: float) -> float:
        return float(np.maximum(0, here - math.exp(epsilon) * there).sum()) - delta

    return float(optimize.brentq(above, 0, event.stops * event.epsilon)) if above(0) > 0 else 0.0


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_its_epsilon_is_that_of_randomized_responses(event):
    found, known = campaign_epsilon(alone(event), TARGET), exact(event, TARGET.delta)
    assert known - 1e-9 <= found <= known * 1.005 + 2e-3
    assert known - 1e-9 <= second_opinion(alone(event), TARGET) <= known * 1.005 + 2e-3
    bit = privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(event.epsilon)), 2, value_discretization_interval=1e-5
    )
    theirs = bit.self_compose(event.stops).get_epsilon_for_delta(TARGET.delta)
    assert theirs == pytest.approx(known, rel=5e-3, abs=2e-3)
    assert exact(replace(event, epsilon=1.1 * event.epsilon), TARGET.delta) > found + 2e-3


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_renyi_divergences_cost_a_little_more_and_no_less(event):
    by_rdp = campaign_epsilon(alone(event), TARGET, accountant=Accountant.RDP)
    assert exact(event, TARGET.delta) <= by_rdp <= 1.5 * exact(event, TARGET.delta)
    assert epsilon_of_votes([event], delta=TARGET.delta) == pytest.approx(by_rdp, rel=0.02)


def test_large_epsilons_are_numbers():
    event = SparseVector(stops=3, epsilon=64.0)
    orders = np.array([1.01, 2.0, 1e4])
    assert (event.second_renyi(orders) <= 192.0).all()
    assert np.isfinite(event.second_renyi(orders)).all()
    cost = campaign_epsilon(alone(event), TARGET, accountant=Accountant.RDP)
    assert 190 < cost < 192.01


@pytest.mark.parametrize("wrong", [{"stops": 0}, {"epsilon": 0.0}, {"epsilon": 65.0}], ids=str)
def test_what_is_no_such_release_is_refused(wrong):
    with pytest.raises(ParameterError):
        replace(EVENTS[0], **wrong)
