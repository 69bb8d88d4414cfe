"""What every event must keep, checked on its examples; refuses by AssertionError."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from dpal.accounting import rdp
from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import (
    Accountant,
    campaign_epsilon,
    certificate_grid,
    second_opinion,
)
from dpal.accounting.events import EVENTS, Charge, Event, Release, from_record, to_record
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.votes.second_opinion import epsilon_of_votes
from dpal.accounting.worst_path import campaign_profile
from dpal.canonical import canonical_json, digest
from dpal.errors import ParameterError
from dpal.privacy import Adjacency, PrivacyTarget

DELTAS = (1e-3, 1e-5, 1e-7)
TARGET = PrivacyTarget(epsilon=30.0, delta=1e-5)
GRID = 1e-3  # by which bounds on grids of losses may differ; see `pld.CERTIFY`


def history(*events: Event, after: Event | None = None) -> tuple[Release, ...]:
    """A campaign that releases events about a record of the pool; "after" who is selected."""
    pool = tuple(Charge(cohorts=("1", "never_selected"), event=event) for event in events)
    releases = [Release(name="pool", kind="selection", phase=1, charges=pool)]
    if after is not None:
        charge = Charge(cohorts=("1",), event=after)
        releases.append(Release(name="after", kind="training", phase=1, charges=(charge,)))
    return tuple(releases)


def alone(event: Event) -> tuple[Release, ...]:
    """A campaign that does nothing else; answers select, and lead to nothing."""
    if event.answer:
        return history(event)
    charge = Charge(cohorts=("0",), event=event)
    return (Release(name="alone", kind="training", phase=0, charges=(charge,)),)


def targets() -> list[PrivacyTarget]:
    return [replace(TARGET, adjacency=adjacency) for adjacency in Adjacency]


def is_written_and_read(event: Event) -> None:
    """Equal values, one tag, equal bytes; what is unknown is refused."""
    record = to_record(event)
    assert EVENTS[record["mechanism"]] is type(event)
    again = from_record(record)
    assert again == event and hash(again) == hash(event)
    assert canonical_json(to_record(again)) == canonical_json(record)
    # A plan commits to the value, a ledger to the record: both under the same names.
    plain = {key: value for key, value in record.items() if key != "mechanism"}
    assert digest(event) == digest(plain)
    with pytest.raises(ParameterError, match="no parameter"):
        from_record({**record, "another": 1})


def has_a_renyi_curve(event: Event) -> None:
    """Nonnegative, nondecreasing in the order; finite somewhere, and NaN nowhere."""
    for adjacency in Adjacency:
        curve = event.renyi(adjacency)
        assert curve.shape == rdp.ORDERS.shape
        assert not np.isnan(curve).any() and np.isfinite(curve).any()
        finite = curve[np.isfinite(curve)]
        assert (finite >= 0).all()
        # Integrals are exact to about 1e-12 of their size.
        assert (np.diff(finite) >= -1e-9 * (1 + finite[:-1])).all()


def has_a_loss_distribution(event: Event) -> None:
    """A hockey-stick curve in both directions, which mirror each other."""
    step, count = event.composition()
    assert count >= 0 and step.spread > 0
    assert count * step.failure <= event.delta <= 1
    for adjacency in Adjacency:
        losses = np.linspace(0.01, 4, 40)
        deltas = {
            direction: step.delta(np.concatenate([-losses[::-1], losses]), adjacency, direction)
            for direction in Direction
        }
        for direction, found in deltas.items():
            assert (found >= -1e-12).all() and (found <= 1).all()
            assert (np.diff(found) <= 1e-12).all(), "more epsilon may not need more delta"
            low, high = step.reach(adjacency, direction)
            assert low < high
        # H(Q, P; -x) = 1 - e^-x + e^-x H(P, Q; x): the same pair, seen from the other side. A
        # mere chance to fail may be counted in both worlds, which only costs more.
        mirrored = -np.expm1(-losses) + np.exp(-losses) * deltas[Direction.REMOVE][40:]
        other = deltas[Direction.ADD][:40][::-1]
        assert (other >= mirrored - 1e-9).all()
        assert (other <= mirrored + 1e-9 + deltas[Direction.REMOVE][-1]).all()


def has_no_larger_loss_than_it_says(event: Event) -> None:
    """Basic composition adds this loss to any bound, so nothing may be beyond it."""
    if event.pure_epsilon is None:
        return
    step, count = event.composition()
    for adjacency in Adjacency:
        assert (event.renyi(adjacency) <= event.pure_epsilon * (1 + 1e-9)).all()
        for direction in Direction:
            beyond = step.delta(np.array([event.pure_epsilon / count]), adjacency, direction)
            assert beyond[0] <= 1e-12


def costs_less_at_a_larger_delta(event: Event) -> None:
    """In both directions, and finite at every delta above its own."""
    releases = alone(event)
    for target in targets():
        grid = certificate_grid(releases, replace(target, delta=DELTAS[-1]))
        for direction in Direction:
            profile = campaign_profile(
                releases, grid=grid, adjacency=target.adjacency, direction=direction
            )
            costs = [profile.epsilon(delta) for delta in DELTAS]
            assert costs == sorted(costs)
            assert costs[0] >= 0 and math.isfinite(costs[-1])


def never_costs_more_with_more_noise(examples: Sequence[Event]) -> None:
    """By every accountant; the first of all is dearer than the last."""
    for target in targets():
        for cost in (by_pld, by_rdp, by_theirs):
            found = [cost(alone(event), target) for event in examples]
            for dear, cheap in pairwise(found):
                assert cheap <= dear + GRID, found
            assert found[-1] < found[0]


def is_bounded_alike_by_all(event: Event) -> None:
    """Basic Rényi bounds are above the tight ones, dp-accounting's within its tolerance."""
    for target in targets():
        releases = alone(event)
        ours, renyi = by_pld(releases, target), by_rdp(releases, target)
        theirs = by_theirs(releases, target)
        # A largest loss is rounded up to our grid, which is chosen for the variance of losses.
        rounded = GRID + certificate_grid(releases, target).interval
        # What is known by Rényi divergences alone costs less by them, all else more.
        low, high = (renyi, ours) if event.renyi_is_tighter else (ours, renyi)
        assert low <= high + rounded, (ours, renyi)
        apart = tolerance(releases, target)
        assert ours - rounded <= theirs <= ours + apart + GRID, (ours, theirs, apart)


def is_charged_by_every_path(event: Event) -> None:
    """With a Gaussian after it: never below that alone, never above the sum of both."""
    later = EVENTS["noisy_moments"].examples()[0]
    for target in targets():
        both = history(event, after=later)
        ours, after = by_pld(both, target), by_pld(history(after=later), target)
        rounded = GRID + certificate_grid(both, target).interval
        assert after - GRID <= ours <= after + by_pld(alone(event), target) + rounded
        apart = tolerance(both, target)
        assert ours - rounded <= by_theirs(both, target) <= ours + apart + rounded


def is_told_to_their_accountants(event: Event) -> None:
    """As dp-accounting's event its Rényi divergence is ours or more, if there is such an event."""
    try:
        told = event.dp_event()
    except ParameterError:
        return
    # At whole orders, where their series of a sampled Gaussian is exact.
    orders = [order for order in rdp.ORDERS if order == int(order) and order <= 32]
    accountants = [RdpAccountant(orders, relation) for relation in NeighboringRelation]
    able = [accountant for accountant in accountants if accountant.supports(told)]
    if not able:
        assert event.delta > 0, "they refuse a mere chance to fail, and nothing else"
        return
    theirs = able[0].compose(told)._rdp
    ours = event.renyi(Adjacency.ZERO_OUT)[np.isin(rdp.ORDERS, orders)]
    if event.renyi_is_tighter:
        assert (ours <= theirs * (1 + 1e-9)).all()
    else:
        # Discrete noise may lose more than continuous noise, by 1 / LAPLACE_GRID (laplace_scores).
        assert (ours >= theirs * (1 - 1e-9) - 1e-12).all()
        assert (ours <= theirs * (1 + 1e-4) + 1e-6).all()


def is_thinned(event: Event) -> None:
    """Taking part less never costs more, and wholly is the event itself."""
    assert event.thinned(1.0) == event
    for adjacency in Adjacency:
        half = event.thinned(0.5).renyi(adjacency)
        assert (half <= event.renyi(adjacency) * (1 + 1e-9)).all()


def is_a_vote_if_it_says_so(event: Event) -> None:
    """Plain sums find what its Rényi curve says."""
    if not event.is_vote:
        with pytest.raises(ParameterError, match="no vote"):
            event.second_renyi(rdp.ORDERS)
        return
    ours = rdp.epsilon_spent([event], delta=TARGET.delta - event.delta)
    # Orders are chosen from two grids.
    assert epsilon_of_votes([event], delta=TARGET.delta) == pytest.approx(ours, rel=0.02)


def answers_yes_or_no(event: Event) -> None:
    """Chances of both add up in both worlds, and the second opinion knows the same ones."""
    answer = event.answer
    if answer is None:
        return
    assert answer is event
    for adjacency in Adjacency:
        for direction in Direction:
            yes = answer.outcomes(adjacency, direction, yes=True)
            no = answer.outcomes(adjacency, direction, yes=False)
            assert all(0 < chance < 1 for pair in yes for chance in pair)
            assert np.asarray(yes) + np.asarray(no) == pytest.approx(1)
            removing = direction is Direction.REMOVE
            assert set(yes) == set(answer.second_outcomes(adjacency, removing=removing))


def makes_cheaper_what_follows(examples: Sequence[Event]) -> None:
    """Less than what follows alone, the less the seldomer it draws; all accountants agree."""
    later = EVENTS["noisy_moments"].examples()[0]
    for target in targets():
        releases = [history(event, after=later) for event in examples]
        ours = [by_pld(released, target) for released in releases]
        for dear, cheap in pairwise([by_pld(history(after=later), target), *ours]):
            assert 0 < cheap < dear, ours
        for released, epsilon in zip(releases, ours, strict=True):
            apart, rounded = tolerance(released, target), GRID
            assert epsilon - rounded <= by_theirs(released, target) <= epsilon + apart + rounded


def never_holds_where_it_fails(event: Event) -> None:
    """The chance to fail is taken out of delta; Rényi bounds do without the secret."""
    later = EVENTS["noisy_moments"].examples()[0]
    if event.delta:
        target = replace(TARGET, delta=event.delta / 2)
        for cost in (by_pld, by_theirs):
            assert math.isinf(cost(history(event, after=later), target))


BY_ITSELF: tuple[Callable[[Event], None], ...] = (
    has_a_renyi_curve,
    has_a_loss_distribution,
    has_no_larger_loss_than_it_says,
    is_told_to_their_accountants,
    is_thinned,
    is_a_vote_if_it_says_so,
)
BY_PATHS: tuple[Callable[[Event], None], ...] = (
    costs_less_at_a_larger_delta,
    is_bounded_alike_by_all,
)


def keeps_the_contract(kind: type[Event]) -> None:
    """Asserts everything above of an event's examples."""
    examples = kind.examples()
    assert len(examples) >= 2
    if examples[0].entry_chance is not None:
        for event in examples:
            is_written_and_read(event)
            has_a_renyi_curve(event)
            is_thinned(event)
            never_holds_where_it_fails(event)
        makes_cheaper_what_follows(examples)
        return
    for event in examples:
        is_written_and_read(event)
        answers_yes_or_no(event)
        for check in (*(() if event.answer else BY_ITSELF), *BY_PATHS):
            check(event)
    never_costs_more_with_more_noise(examples)
    is_charged_by_every_path(examples[1])


@cache
def by_pld(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """By our loss distributions."""
    return campaign_epsilon(releases, target)


@cache
def by_rdp(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """By our Rényi curves."""
    return campaign_epsilon(releases, target, accountant=Accountant.RDP)


@cache
def by_theirs(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """By dp-accounting."""
    return second_opinion(releases, target)
