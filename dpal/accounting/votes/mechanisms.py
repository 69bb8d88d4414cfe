"""How teachers may vote, by name: what settings need to know, without what computes costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal import check

FEWEST_TEACHERS = 3
MOST_BLOCKS = 10_000  # of queries: each is a release, an entry of the ledger, a file
MOST_OBJECTIONS = 1_000  # grids of both accountants are fine enough for so many


class Mechanism(StrEnum):
    """What a query releases, and from which noisy counts.

    BINARY: for each label whether more teachers say yes than no.
    TOP_M: the same, of ballots with at most `limit` positives.
    TAU_L2, TAU_L1: the same, of ballots scaled down to a norm of at most `limit`.
    POWERSET: the set of labels that most teachers cast; with a `limit`, of at most so many.
    GNMAX: the class that most teachers name; for single-label data.
    """

    BINARY = "binary"
    TOP_M = "top_m"
    TAU_L2 = "tau_l2"
    TAU_L1 = "tau_l1"
    POWERSET = "powerset"
    GNMAX = "gnmax"


class ReleasedVotes(StrEnum):
    """What leaves of noisy votes.

    ANSWERS: what most teachers say.
    COUNTS: noisy numbers of votes, from which answers follow; charged as such.
    """

    ANSWERS = "answers"
    COUNTS = "counts"


CLIPPED = (Mechanism.TOP_M, Mechanism.TAU_L2, Mechanism.TAU_L1)
SCALED = (Mechanism.TAU_L2, Mechanism.TAU_L1)
PLURALITY = (Mechanism.POWERSET, Mechanism.GNMAX)


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Answer only where the largest count, with noise, is above a threshold.

    Of yes-or-no votes every label is checked by itself.

    Attributes:
      threshold: votes that are wanted.
      sigma: standard deviation of the noise on the largest count.
    """

    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        check.at_least(0, threshold=self.threshold)
        check.positive(confidence_sigma=self.sigma)
