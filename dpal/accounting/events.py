"""Releases as values, and their translation to dp-accounting events.

A release is anything computed from private records that leaves the trusted process.
It charges cohorts: records with one privacy history, named "0", "1", ... by the phase
in which they were labeled, and `NEVER_SELECTED` for the rest of the pool.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import singledispatch
from typing import Any

from dp_accounting import dp_event

from dpal import check
from dpal.errors import ParameterError

NEVER_SELECTED = "never_selected"
SELECTION, TRAINING = "selection", "training"  # kinds of releases
SCORE_GRID = 1 << 16  # steps over the range of a score; the rounding is far below the noise
SELECTION_RANGE = (2.0**-20, 64.0)  # the epsilons that the noise of one selection is drawn for


@dataclass(frozen=True, kw_only=True)
class PhaseExposure:
    """What DP-SGD does to the records of one cohort during one phase.

    Attributes:
      steps: optimizer steps in the phase.
      sample_rate: chance that a record of the cohort joins a batch.
      noise_multiplier: noise standard deviation over max_grad_norm.
    """

    steps: int
    sample_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.at_least(0, steps=self.steps)
        check.within(0, 1, sample_rate=self.sample_rate)
        check.positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class NoisyScores:
    """One noisy score per unlabeled record, with Laplace noise of scale range / epsilon.

    The noise is discrete, on a grid of `SCORE_GRID` steps over the range.

    Attributes:
      epsilon: pure loss of one record's score; the score range bounds its sensitivity
        under both adjacencies.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check.within(*SELECTION_RANGE, epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class NoisyThreshold:
    """A score threshold found by comparing noisy counts of the records above it.

    Every count has sensitivity 1 under both adjacencies, and Gaussian noise.

    Attributes:
      noise_multiplier: of all its counts together: 1 / sqrt(sum of their 1 / std^2).
      overflow: bound on the chance that more records pass the threshold than may be
        labeled, given that the label budget is then enforced by leaving some out. That
        choice is not private, so this chance counts as delta.
    """

    noise_multiplier: float
    overflow: float = 0.0

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)
        check.within(0, 1, overflow=self.overflow)


@dataclass(frozen=True, kw_only=True)
class AnchoredAnswers:
    """One yes or no per unlabeled record: "label me". Yes costs much, no very little.

    Attributes:
      above: chance of yes for a record whose score is above the threshold.
      below: chance of yes for one below.
      blank: chance of yes for a blanked record, between the two.
    """

    above: float
    below: float
    blank: float

    def __post_init__(self) -> None:
        check.inside(0, 1, above=self.above, below=self.below, blank=self.blank)
        if not self.below <= self.blank <= self.above:
            raise ParameterError(
                f"answers need below <= blank <= above, got {self.below:g}, {self.blank:g} and "
                f"{self.above:g}"
            )


Event = PhaseExposure | NoisyScores | NoisyThreshold | AnchoredAnswers


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One event, and the cohorts that it happens to."""

    cohorts: tuple[str, ...]
    event: Event


@dataclass(frozen=True, kw_only=True)
class Release:
    """A unit of spending: one reservation, one task run, one line of the ledger.

    Attributes:
      name: unique within a campaign, such as "phase-2/training".
      kind: "selection" or "training".
      phase: to which it belongs; the cohort of that name enters in it.
      charges: what it costs whom.
    """

    name: str
    kind: str
    phase: int
    charges: tuple[Charge, ...]

    @property
    def selects(self) -> bool:
        """Whether it picks records for labeling, before the phase's cohort enters."""
        return self.kind == SELECTION


def thin(release: Release, participation: float) -> Release:
    """The release as records meet it whose every sample rate is multiplied by a factor.

    Selections ask such records as they ask all others.
    """
    check.within(0, 1, participation=participation)
    charges = tuple(
        replace(
            charge,
            event=replace(charge.event, sample_rate=participation * charge.event.sample_rate),
        )
        if isinstance(charge.event, PhaseExposure)
        else charge
        for charge in release.charges
    )
    return replace(release, charges=charges)


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


_TYPES: dict[str, type[Event]] = {
    "poisson_subsampled_gaussian": PhaseExposure,
    "laplace": NoisyScores,
    "noisy_threshold": NoisyThreshold,
    "anchored_answers": AnchoredAnswers,
}


def to_record(event: Event) -> dict[str, Any]:
    """Writes an event with its mechanism and parameters, ready for JSON."""
    name = next(name for name, kind in _TYPES.items() if isinstance(event, kind))
    return {"mechanism": name, **asdict(event)}


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


def from_record(record: dict[str, Any]) -> Event:
    """Reads what `to_record` wrote.

    Raises:
      ParameterError: the mechanism is unknown.
    """
    fields = dict(record)
    name = str(fields.pop("mechanism", None))
    if name not in _TYPES:
        raise ParameterError(f"mechanism {name!r} is unknown to this version of dpal")
    return _TYPES[name](**fields)
