"""What a campaign may choose about annotators in Label Studio."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal import check


class Agreement(StrEnum):
    """What happens when annotators disagree about a record."""

    MAJORITY = "majority"
    ADJUDICATE = "adjudicate"


class Media(StrEnum):
    """How pictures reach the labeling project."""

    INLINE = "inline"
    HOSTED = "hosted"


class Skipped(StrEnum):
    """What happens to a record that annotators skip."""

    RETIRE = "retire"
    ASK_AGAIN = "ask_again"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How labels come out of a project.

    Attributes:
      annotators: people who label each record.
      agreement: what happens when they disagree.
      media: how pictures get there.
      skipped: what happens to skipped records.
    """

    annotators: int = 1
    agreement: Agreement = Agreement.MAJORITY
    media: Media = Media.INLINE
    skipped: Skipped = Skipped.RETIRE

    def __post_init__(self) -> None:
        check.at_least(1, annotators=self.annotators)
