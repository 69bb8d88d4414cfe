"""Events: what a release costs, one file a mechanism, and the list of those that are known.

An event is a mechanism with its numbers (`dpal.accounting.events.event` says what it must answer).
It stands in ledgers and certificates for years, so that nothing about its record ever changes
meaning: docs/ledger.md, "What stays readable".
"""

from __future__ import annotations

from typing import Any

from dpal.accounting.events.cost_bounded_votes import CostBoundedVotes as CostBoundedVotes
from dpal.accounting.events.discrete_laplace import LAPLACE_GRID as LAPLACE_GRID
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS as PURE_EPSILONS
from dpal.accounting.events.event import Answer as Answer
from dpal.accounting.events.event import Event as Event
from dpal.accounting.events.laplace_counts import NoisyCounts as NoisyCounts
from dpal.accounting.events.laplace_scores import NoisyScores as NoisyScores
from dpal.accounting.events.majority_votes import MajorityVotes as MajorityVotes
from dpal.accounting.events.noisy_figures import NoisyFigures as NoisyFigures
from dpal.accounting.events.noisy_moments import NoisyMoments as NoisyMoments
from dpal.accounting.events.noisy_statistics import NoisyStatistics as NoisyStatistics
from dpal.accounting.events.noisy_threshold import NoisyThreshold as NoisyThreshold
from dpal.accounting.events.noisy_votes import NoisyVotes as NoisyVotes
from dpal.accounting.events.plurality_votes import PluralityVotes as PluralityVotes
from dpal.accounting.events.randomized_response import RandomizedResponse as RandomizedResponse
from dpal.accounting.events.releases_and_charges import FIGURES as FIGURES
from dpal.accounting.events.releases_and_charges import GUIDANCE as GUIDANCE
from dpal.accounting.events.releases_and_charges import NEVER_SELECTED as NEVER_SELECTED
from dpal.accounting.events.releases_and_charges import SELECTION as SELECTION
from dpal.accounting.events.releases_and_charges import TRAINING as TRAINING
from dpal.accounting.events.releases_and_charges import TRIAL as TRIAL
from dpal.accounting.events.releases_and_charges import VALIDATION as VALIDATION
from dpal.accounting.events.releases_and_charges import VOTING as VOTING
from dpal.accounting.events.releases_and_charges import Charge as Charge
from dpal.accounting.events.releases_and_charges import Release as Release
from dpal.accounting.events.releases_and_charges import scale_sampling_rate as scale_sampling_rate
from dpal.accounting.events.secret_draw import SecretDraw as SecretDraw
from dpal.accounting.events.skellam_scaled_votes import SkellamScaledCounts as SkellamScaledCounts
from dpal.accounting.events.skellam_scaled_votes import (
    SkellamScaledMajorities as SkellamScaledMajorities,
)
from dpal.accounting.events.skellam_votes import SkellamCounts as SkellamCounts
from dpal.accounting.events.skellam_votes import SkellamMajorities as SkellamMajorities
from dpal.accounting.events.sparse_vector import SparseVector as SparseVector
from dpal.accounting.events.subsampled_gaussian import PhaseExposure as PhaseExposure
from dpal.errors import ParameterError

EVENTS: dict[str, type[Event]] = {}


def register_event(kind: type[Event]) -> type[Event]:
    """Makes an event one that can be written and read.

    Raises:
      ParameterError: another event has its mechanism's name.
    """
    if EVENTS.setdefault(kind.mechanism, kind) is not kind:
        raise ParameterError(f"mechanism {kind.mechanism!r} names another event")
    return kind


for _kind in (
    PhaseExposure,
    NoisyScores,
    NoisyThreshold,
    RandomizedResponse,
    NoisyMoments,
    NoisyCounts,
    NoisyFigures,
    NoisyVotes,
    MajorityVotes,
    PluralityVotes,
    CostBoundedVotes,
    SkellamCounts,
    SkellamMajorities,
    SkellamScaledCounts,
    SkellamScaledMajorities,
    SecretDraw,
    NoisyStatistics,
    SparseVector,
):
    register_event(_kind)


def to_record(event: Event) -> dict[str, Any]:
    """Writes an event with its mechanism and parameters, ready for JSON.

    Raises:
      ParameterError: it is not registered, so nobody could read it.
    """
    if EVENTS.get(event.mechanism) is not type(event):
        raise ParameterError(f"{type(event).__name__} is no registered event")
    return event.record()


def from_record(record: dict[str, Any]) -> Event:
    """Reads what `to_record` wrote.

    Raises:
      ParameterError: the mechanism, or a parameter of it, is unknown, or one is missing.
    """
    name = str(record.get("mechanism"))
    if name not in EVENTS:
        raise ParameterError(f"mechanism {name!r} is unknown to this version of dpal")
    return EVENTS[name].of_record(record)
