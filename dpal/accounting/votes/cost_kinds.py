"""What a cost of votes promises, and to whom it may be told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal.accounting.votes.voting_rule import VotingRule


class Mode(StrEnum):
    """How a query's cost is counted.

    DATA_INDEPENDENT: as if the noisy counts were released, whatever the votes are.
    SHARPENED: by the released answers, whatever the votes are; counts where none is known.
    PAPERNOT: the published data-dependent bound.
    EXACT: by the law of the released answers, for the votes that were cast.
    SANITIZED: a data-dependent cost that is told with noise, and charged for that: answers leave
      only if it is within a limit set before (`dpal.voting.check_cost_then_release`). Not added
      up here.
    """

    DATA_INDEPENDENT = "data_independent"
    SHARPENED = "sharpened"
    PAPERNOT = "papernot"
    EXACT = "exact"
    SANITIZED = "sanitized"


class VoteCostKind(StrEnum):
    """Whether a number bounds the privacy loss, or only what it is on average."""

    GUARANTEE = "guarantee"
    EXPECTATION = "expectation"


@dataclass(frozen=True, kw_only=True)
class VoteCostProperties:
    """What a cost promises, and to whom it may be told.

    Attributes:
      mode: how it was counted.
      kind: guarantee or expectation.
      any_votes: whether it holds whatever the votes are; if not, the number is private.
      both_directions: whether it bounds the divergence both ways; (epsilon, delta) needs both.
    """

    mode: Mode
    kind: VoteCostKind
    any_votes: bool
    both_directions: bool

    @property
    def certifies(self) -> bool:
        """Whether it may be published as a promise."""
        return self.kind is VoteCostKind.GUARANTEE and self.any_votes and self.both_directions

    def __str__(self) -> str:
        about = "any votes" if self.any_votes else "these votes only, so the number is private"
        ways = "" if self.both_directions else ", one direction only"
        return f"{self.mode}: {self.kind} for {about}{ways}"


def claim_of(mode: Mode, rule: VotingRule) -> VoteCostProperties:
    """What a mode promises about a rule."""
    expected = mode is Mode.PAPERNOT and rule.confidence is not None
    return VoteCostProperties(
        mode=mode,
        kind=VoteCostKind.EXPECTATION if expected else VoteCostKind.GUARANTEE,
        any_votes=mode in (Mode.DATA_INDEPENDENT, Mode.SHARPENED, Mode.SANITIZED),
        both_directions=mode is not Mode.PAPERNOT,
    )
