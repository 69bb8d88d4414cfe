"""Releases as values, and their translation to dp-accounting events.

A release is anything computed from private records that leaves the trusted process.
It charges cohorts: records with one privacy history, named "0", "1", ... by the phase
in which they were labeled, and `NEVER_SELECTED` for the rest of the pool.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any

from dp_accounting import dp_event

from dpal import check
from dpal.errors import ParameterError

NEVER_SELECTED = "never_selected"
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

    Attributes:
      epsilon: pure loss of one record's score; the score range bounds its sensitivity
        under both adjacencies.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check.within(*SELECTION_RANGE, epsilon=self.epsilon)


Event = PhaseExposure | NoisyScores


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
      charges: what it costs whom.
    """

    name: str
    kind: str
    charges: tuple[Charge, ...]


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


_TYPES: dict[str, type[PhaseExposure] | type[NoisyScores]] = {
    "poisson_subsampled_gaussian": PhaseExposure,
    "laplace": NoisyScores,
}


def to_record(event: Event) -> dict[str, Any]:
    """Writes an event with its mechanism and parameters, ready for JSON."""
    name = next(name for name, kind in _TYPES.items() if isinstance(event, kind))
    return {"mechanism": name, **asdict(event)}


def from_record(record: dict[str, Any]) -> Event:
    """Reads what `to_record` wrote.

    Raises:
      ParameterError: the mechanism is unknown.
    """
    fields = dict(record)
    name = fields.pop("mechanism", None)
    if name not in _TYPES:
        raise ParameterError(f"mechanism {name!r} is unknown to this version of dpal")
    return _TYPES[name](**fields)
