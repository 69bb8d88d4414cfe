"""Releases as values.

A release is anything computed from private records that leaves the trusted process.
It charges cohorts: records with one privacy history, named "0", "1", ... by the phase
in which they were labeled, and `NEVER_SELECTED` for the rest of the pool.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from dpal import check
from dpal.accounting.votes.events import NoisyMajorities as NoisyMajorities
from dpal.accounting.votes.events import NoisyVotes as NoisyVotes
from dpal.accounting.votes.events import VotesWithin as VotesWithin
from dpal.errors import ParameterError

NEVER_SELECTED = "never_selected"
SELECTION, TRAINING = "selection", "training"  # kinds of releases
GUIDANCE, VOTING = "guidance", "voting"
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


@dataclass(frozen=True, kw_only=True)
class NoisyMoments:
    """The noisy second-moment matrix of clipped vectors; a private PCA is computed from it.

    Attributes:
      noise_multiplier: noise standard deviation of the matrix, as a vector of its isometric
        coordinates, over what one record can change in it (Frobenius norm, under the
        adjacency of the promise).

    Source: Dwork, Talwar, Thakurta & Zhang (2014), "Analyze Gauss".
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check.positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """A histogram to which every record gives at most one vote, with Laplace noise.

    The noise is discrete, on a grid of `SCORE_GRID` steps to a vote.

    Attributes:
      epsilon: pure loss of one count that moves by one.
      moved: counts that one record can move, each by one. One, where every record decides by
        itself whether to vote and the other world has it blank; two, where its vote goes
        elsewhere there, or where another one votes in its place.
    """

    epsilon: float
    moved: int = 1

    def __post_init__(self) -> None:
        check.within(*SELECTION_RANGE, epsilon=self.epsilon)
        check.within(1, 2, moved=self.moved)


Event = (
    PhaseExposure
    | NoisyScores
    | NoisyThreshold
    | AnchoredAnswers
    | NoisyMoments
    | NoisyCounts
    | NoisyVotes
    | NoisyMajorities
    | VotesWithin
)


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
      kind: "selection" and "training" of a campaign; "guidance" of a choice of public records;
        "voting" of an ensemble of teachers.
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


_TYPES: dict[str, type[Event]] = {
    "poisson_subsampled_gaussian": PhaseExposure,
    "laplace": NoisyScores,
    "noisy_threshold": NoisyThreshold,
    "anchored_answers": AnchoredAnswers,
    "noisy_moments": NoisyMoments,
    "noisy_counts": NoisyCounts,
    "noisy_votes": NoisyVotes,
    "noisy_majorities": NoisyMajorities,
    "votes_within": VotesWithin,
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
    name = str(fields.pop("mechanism", None))
    if name not in _TYPES:
        raise ParameterError(f"mechanism {name!r} is unknown to this version of dpal")
    return _TYPES[name](**fields)
