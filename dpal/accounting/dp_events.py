"""Our events as dp-accounting's, and back."""

from __future__ import annotations

import math
from functools import singledispatch

from dp_accounting import dp_event

from dpal.accounting.events import (
    AnchoredAnswers,
    Event,
    NoisyCounts,
    NoisyMajorities,
    NoisyMoments,
    NoisyScores,
    NoisyThreshold,
    NoisyVotes,
    PhaseExposure,
    VotesWithin,
)
from dpal.errors import ParameterError


@singledispatch
def to_dp_event(event: object) -> dp_event.DpEvent:
    """Translates an event for dp-accounting's accountants.

    Raises:
      ParameterError: no translation is registered for this kind of event.
    """
    raise ParameterError(f"{type(event).__name__} has no registered dp-accounting event")


@to_dp_event.register
def _(event: PhaseExposure) -> dp_event.DpEvent:
    if event.steps == 0 or event.sample_rate == 0:
        return dp_event.NoOpDpEvent()
    step = dp_event.PoissonSampledDpEvent(
        event.sample_rate, dp_event.GaussianDpEvent(event.noise_multiplier)
    )
    return dp_event.SelfComposedDpEvent(step, event.steps)


@to_dp_event.register
def _(event: NoisyScores) -> dp_event.DpEvent:
    return dp_event.LaplaceDpEvent(1 / event.epsilon)


@to_dp_event.register
def _(event: NoisyThreshold) -> dp_event.DpEvent:
    noise = dp_event.GaussianDpEvent(event.noise_multiplier)
    if not event.overflow:
        return noise
    # dp-accounting has no event for a mere chance to fail; its accountants refuse this one.
    failing = dp_event.PoissonSampledDpEvent(event.overflow, dp_event.NonPrivateDpEvent())
    return dp_event.ComposedDpEvent([noise, failing])


@to_dp_event.register
def _(event: AnchoredAnswers) -> dp_event.DpEvent:
    raise ParameterError(
        "dp-accounting has no event for anchored answers: its randomised response compares "
        "with the uniform answer only; they are charged by path (dpal.accounting.envelope)"
    )


@to_dp_event.register
def _(event: NoisyMoments) -> dp_event.DpEvent:
    return dp_event.GaussianDpEvent(event.noise_multiplier)


@to_dp_event.register
def _(event: NoisyCounts) -> dp_event.DpEvent:
    return dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(1 / event.epsilon), event.moved)


@to_dp_event.register
def _(event: NoisyVotes) -> dp_event.DpEvent:
    once = dp_event.GaussianDpEvent(event.sigma / math.sqrt(event.squared_sensitivity))
    return dp_event.SelfComposedDpEvent(once, event.queries)


@to_dp_event.register
def _(event: NoisyMajorities) -> dp_event.DpEvent:
    # dp-accounting knows the noisy counts that an answer is read off; they tell more.
    return dp_event.GaussianDpEvent(event.noise_multiplier)


@to_dp_event.register
def _(event: VotesWithin) -> dp_event.DpEvent:
    raise ParameterError(
        "dp-accounting has no event for a divergence at one order; votes within a limit are "
        "charged by Renyi divergences (dpal.accounting.rdp)"
    )


def from_dp_event(event: dp_event.DpEvent) -> Event:
    """Reads a dp-accounting event that `to_dp_event` could have written.

    Raises:
      ParameterError: it is none of them.
    """
    if isinstance(event, dp_event.LaplaceDpEvent):
        return NoisyScores(epsilon=1 / event.noise_multiplier)
    if isinstance(event, dp_event.GaussianDpEvent):
        return NoisyThreshold(noise_multiplier=event.noise_multiplier)
    steps, step = 1, event
    if isinstance(event, dp_event.SelfComposedDpEvent):
        steps, step = event.count, event.event
    if isinstance(step, dp_event.PoissonSampledDpEvent) and isinstance(
        step.event, dp_event.GaussianDpEvent
    ):
        return PhaseExposure(
            steps=steps,
            sample_rate=step.sampling_probability,
            noise_multiplier=step.event.noise_multiplier,
        )
    match event:
        case dp_event.ComposedDpEvent(
            events=[
                dp_event.GaussianDpEvent() as noise,
                dp_event.PoissonSampledDpEvent(event=dp_event.NonPrivateDpEvent()) as failing,
            ]
        ):
            return NoisyThreshold(
                noise_multiplier=noise.noise_multiplier, overflow=failing.sampling_probability
            )
    raise ParameterError(f"{type(event).__name__} is no release of a campaign")
