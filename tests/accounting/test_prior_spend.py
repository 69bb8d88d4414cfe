"""What an improvement costs together with its start, against dp-accounting and printed numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion, spending
from dpal.accounting.events import (
    GUIDANCE,
    NEVER_SELECTED,
    SELECTION,
    TRAINING,
    Charge,
    NoisyCounts,
    NoisyMoments,
    NoisyThreshold,
    PhaseExposure,
    Release,
    from_record,
    to_record,
)
from dpal.accounting.prior_spend import Declared, PriorSpend, total_epsilon, total_second_opinion
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.errors import ParameterError
from dpal.privacy import Adjacency, PrivacyTarget

TARGET = PrivacyTarget(epsilon=8, delta=1e-5)
# 60,000 records, batch 256, 40 epochs; noise such that it costs 2.2 alone.
TRAINED = PhaseExposure(steps=9375, sample_rate=256 / 60_000, noise_multiplier=1.0158)
COMPONENTS = NoisyMoments(noise_multiplier=7.03)  # epsilon 0.5 alone
SUPPORT = NoisyCounts(epsilon=0.5)


def release(kind: str, phase: int, cohorts: tuple[str, ...], event: object) -> Release:
    charge = Charge(cohorts=cohorts, event=event)  # type: ignore[arg-type]
    return Release(name=f"{kind}-{phase}", kind=kind, phase=phase, charges=(charge,))


def guided(*events: object, phase: int = 0, cohorts: tuple[str, ...] = ("0", NEVER_SELECTED)):
    return [release(GUIDANCE, phase, cohorts, event) for event in events]


START = PriorSpend(campaign="start", releases=(release(TRAINING, 0, ("0",), TRAINED),))


def test_joint_accounting_is_far_below_the_sum_of_epsilons():
    # Privacy notes 4.1: training 2.2, with components 2.28, with votes 2.69; summed as in the
    # paper, by RDP and at a delta of its own each, 3.36.
    start = total_epsilon(START, [], TARGET)
    assert start == pytest.approx(2.2, abs=0.03)
    assert total_epsilon(START, guided(COMPONENTS), TARGET) - start == pytest.approx(0.08, abs=0.02)
    both = total_epsilon(START, guided(COMPONENTS, SUPPORT), TARGET)
    assert both - start == pytest.approx(0.49, abs=0.03)
    assert both < start + 0.5 + 0.5 - 0.4


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("moved", [1, 2])
def test_dp_accounting_finds_the_same_total(adjacency, moved):
    target = replace(TARGET, adjacency=adjacency)
    events = guided(COMPONENTS, NoisyCounts(epsilon=0.3, l0_sensitivity=moved))
    ours, theirs = total_epsilon(START, events, target), total_second_opinion(START, events, target)
    assert ours == pytest.approx(theirs, abs=0.01)
    assert ours <= total_epsilon(START, events, target, accountant=Accountant.RDP) + 1e-9


def test_two_moved_counts_are_two_laplace_mechanisms():
    # Written out with dp-accounting's own words, nothing of ours in between.
    one = pld_of.from_laplace_mechanism(1 / 0.4, value_discretization_interval=1e-4)
    expected = one.compose(one).get_epsilon_for_delta(1e-3)
    two = guided(NoisyCounts(epsilon=0.4, l0_sensitivity=2))
    reached = campaign_epsilon(two, replace(TARGET, delta=1e-3))
    assert reached == pytest.approx(expected, abs=2e-3)
    assert reached > campaign_epsilon(guided(NoisyCounts(epsilon=0.4)), replace(TARGET, delta=1e-3))


def test_the_never_selected_pay_for_guidance_as_well():
    threshold = NoisyThreshold(noise_multiplier=20.0)
    campaign = [
        release(TRAINING, 0, ("0",), TRAINED),
        release(SELECTION, 1, ("1", NEVER_SELECTED), threshold),
        release(TRAINING, 1, ("0", "1"), replace(TRAINED, steps=100)),
    ]
    noisy = NoisyMoments(noise_multiplier=0.8)  # dearer than all training
    more = guided(noisy, phase=1, cohorts=("0", "1", NEVER_SELECTED))
    before = spending(NEVER_SELECTED, campaign, TARGET).epsilon_pld
    after = spending(NEVER_SELECTED, [*campaign, *more], TARGET).epsilon_pld
    alone = campaign_epsilon(guided(noisy), TARGET)
    assert before < 0.3
    assert alone <= after <= alone + 0.3
    # The envelope over all paths covers them; dp-accounting's own walk agrees.
    free = [one for one in campaign if one.kind == SELECTION]
    whole = campaign_epsilon([*free, *more], TARGET)
    assert whole >= after - 1e-6
    assert whole == pytest.approx(second_opinion([*free, *more], TARGET), abs=0.02)
    # And so does the filter over campaigns.
    limit = RenyiFilter(epsilon=8, delta=1e-5, order=6.0)
    charged = limit.charge([*free, *more], TARGET.adjacency).divergence
    assert charged > limit.charge(free, TARGET.adjacency).divergence * 10


def test_a_declared_cost_is_added_and_its_delta_taken_off():
    declared = PriorSpend(declared=Declared(epsilon=2.0, delta=4e-6))
    assert total_epsilon(declared, [], TARGET) == 2.0
    events = guided(COMPONENTS, SUPPORT)
    left = replace(TARGET, delta=6e-6)
    assert total_epsilon(declared, events, TARGET) == 2.0 + campaign_epsilon(events, left)
    greedy = PriorSpend(declared=Declared(epsilon=2.0, delta=1e-5))
    assert math.isinf(total_epsilon(greedy, events, TARGET))  # no delta is left: nothing may go
    assert math.isinf(total_second_opinion(greedy, events, TARGET))
    assert math.isinf(total_epsilon(greedy, [], replace(TARGET, delta=1e-6)))


@given(noise=st.floats(2, 50), epsilon=st.floats(0.05, 1.5), moved=st.sampled_from([1, 2]))
@settings(max_examples=4, deadline=None)
def test_more_noise_never_costs_more_and_guidance_never_helps(noise, epsilon, moved):
    events = guided(
        NoisyMoments(noise_multiplier=noise), NoisyCounts(epsilon=epsilon, l0_sensitivity=moved)
    )
    quieter = guided(
        NoisyMoments(noise_multiplier=2 * noise),
        NoisyCounts(epsilon=epsilon / 2, l0_sensitivity=moved),
    )
    start, total = total_epsilon(START, [], TARGET), total_epsilon(START, events, TARGET)
    assert start - 1e-6 <= total_epsilon(START, quieter, TARGET) <= total + 1e-3
    assert total <= start + moved * epsilon + total_epsilon(None, events[:1], TARGET) + 1e-2


def test_events_are_written_and_read():
    for event in (COMPONENTS, NoisyCounts(epsilon=0.25, l0_sensitivity=2)):
        assert from_record(to_record(event)) == event
        assert event.dp_event() is not None
    with pytest.raises(ParameterError, match="l0_sensitivity"):
        NoisyCounts(epsilon=0.5, l0_sensitivity=3)
    with pytest.raises(ParameterError, match="noise_multiplier"):
        NoisyMoments(noise_multiplier=0.0)


def test_further_attempts_at_a_start_count():
    again = replace(START.releases[0], name="training-0#2")
    twice = START.with_more([START.releases[0], again])
    assert [one.name for one in twice.releases] == ["training-0", "training-0#2"]
    assert total_epsilon(twice, [], TARGET) > total_epsilon(START, [], TARGET) + 0.5
