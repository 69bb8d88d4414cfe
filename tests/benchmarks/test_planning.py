"""Planning and certifying beside plain loops over dp-accounting, in the same run.

The peer is what somebody would write first: bisections, and for every epsilon a new
PLDAccountant at its default width of 1e-4. Seconds depend on the machine, ratios hardly do:
those are asserted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, Strategy
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.cohort_budget import Budget
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.strategies.naive import plan_naive
from tests.planning.specs import campaign

pytestmark = pytest.mark.slow

RATIO = 50
Training = tuple[int, float, float]  # steps, rate, noise


class OutOfTime(Exception):
    """The peer has used all the time that it was given."""


class Peer:
    """Epsilons by dp-accounting, until a deadline."""

    def __init__(self, delta: float, seconds: float = float("inf")) -> None:
        self.delta, self.asked = delta, 0
        self.deadline = time.perf_counter() + seconds

    def epsilon(self, history: Sequence[Training]) -> float:
        if time.perf_counter() > self.deadline:
            raise OutOfTime
        self.asked += 1
        accountant = PLDAccountant(
            NeighboringRelation.REPLACE_SPECIAL, value_discretization_interval=1e-4
        )
        for steps, rate, noise in history:
            step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
            accountant.compose(step, steps)
        return accountant.get_epsilon(self.delta)


def bisect(holds: Callable[[float], bool], low: float, high: float, rounds: int = 12) -> float:
    """The largest number found for which something holds; it holds at `low`."""
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def paper_spec(strategy: Strategy) -> CampaignSpec:
    """CIFAR-10 of Schwethelm et al. (2025), selected by chance."""
    return campaign(
        pool_size=50_000,
        delta=4e-5,
        acquisition=Acquisition.RANDOM,
        initial=10_000,
        queries=(10_000, 3000, 1000, 1000),
        batch_size=4096,
        epochs=30,
        strategy=strategy,
    )


def naive_noise(peer: Peer, base: Sequence[BasePhase]) -> float:
    """One noise for all phases, every cohort looked at."""

    def fits(quietness: float) -> bool:
        cohorts = [
            [(phase.steps, phase.sample_rate, 1 / quietness) for phase in base[at:]]
            for at in range(len(base))
        ]
        return max(map(peer.epsilon, cohorts)) <= 8

    return 1 / bisect(fits, 0.1, 0.5)


def amplified(peer: Peer, base: Sequence[BasePhase], batch: int) -> list[Training]:
    """Steps and rates of every phase, solved backwards as step amplification wants them."""
    noise = 1 / bisect(
        lambda x: peer.epsilon([(one.steps, one.sample_rate, 1 / x) for one in base]) <= 8, 0.1, 0.5
    )
    later: list[Training] = []
    for at in range(len(base) - 1, 0, -1):
        phase = base[at]
        earlier = [(one.steps, one.sample_rate, noise) for one in base[:at]]

        def rate(steps: int, before: Sequence[Training], after: Sequence[Training]) -> float:
            return bisect(
                lambda x: peer.epsilon([*before, (steps, x, noise), *after]) <= 8, 1e-6, 1.0
            )

        def too_large(steps: float, phase=phase, earlier=earlier, after=tuple(later)) -> bool:
            old, new = rate(round(steps), earlier, after), rate(round(steps), [], after)
            old_records = phase.labeled - phase.cohort_size
            return old * old_records + new * phase.cohort_size > batch

        steps = 1 + round(bisect(too_large, phase.steps, 3 * phase.steps, rounds=8))
        later.insert(0, (steps, rate(steps, earlier, later), noise))
    return later


def show(line: str) -> None:
    print(line)  # noqa: T201


def test_one_noise_for_all_phases():
    spec = paper_spec(Strategy.NAIVE)
    start = time.perf_counter()
    plan = plan_naive(Budget(spec, spec.planning_epsilon))
    assert campaign_epsilon(list(plan.releases()), spec.target) <= 8
    ours = time.perf_counter() - start
    start = time.perf_counter()
    certified_plan(spec)
    with_second_opinion = time.perf_counter() - start
    start = time.perf_counter()
    peer = Peer(spec.target.delta)
    noise = naive_noise(peer, base_phases(spec.schedule))
    theirs = time.perf_counter() - start
    show(
        f"naive: {ours:.2f} s, with the second opinion {with_second_opinion:.2f} s, loop "
        f"{theirs:.0f} s ({peer.asked} epsilons): {theirs / ours:.0f} and "
        f"{theirs / with_second_opinion:.0f} times"
    )
    assert plan.phases[0].training.noise_multiplier == pytest.approx(noise, rel=5e-3)
    assert theirs >= RATIO * ours


def test_step_amplification_with_all_certificates():
    """The loop gets the ratio's time, and has not finished then."""
    spec = paper_spec(Strategy.STEP_AMPLIFICATION)
    start = time.perf_counter()
    certified_plan(spec)
    ours = time.perf_counter() - start
    peer = Peer(spec.target.delta, RATIO * ours)
    with pytest.raises(OutOfTime):
        amplified(peer, base_phases(spec.schedule), spec.schedule.batch_size)
    show(
        f"step amplification: {ours:.2f} s with all certificates; a loop that needs about "
        f"{12 + 4 * 8 * 24} epsilons had {peer.asked} after {RATIO * ours:.0f} s"
    )
