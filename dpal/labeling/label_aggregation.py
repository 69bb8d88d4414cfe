"""One label out of what several annotators said about a record.

What becomes of a record depends on the answers about that record alone: never on how many
others are disputed or skipped. The guarantee needs that of every label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dpal.labeling.label_studio_rules import Agreement
from dpal.labels import Label


class UnlabeledReason(StrEnum):
    """What is known about a record that is not its label."""

    WAITING = "waiting"
    SKIPPED = "skipped"
    DISPUTED = "disputed"


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What one person said of a record.

    Attributes:
      said: a label, or that the record was skipped.
      annotator: who said it, by any name.
      seconds: that it took; None if nobody knows.
    """

    said: Label | UnlabeledReason
    annotator: str
    seconds: float | None = None


def agree(
    answers: Sequence[Label | UnlabeledReason], *, annotators: int, agreement: Agreement
) -> Label | UnlabeledReason:
    """Finds the label of one record.

    Args:
      answers: one for each annotator: a label, or that the record was skipped.
      annotators: how many answers are wanted.
      agreement: what happens to disagreement.

    Returns:
      The label; or that answers are missing, that most annotators skipped the record, or that
      one person has to decide. A majority is a single class that was said more often than any
      other; of several labels each is decided by more than half of those who did not skip.

    >>> agree([1, 1, 2], annotators=3, agreement=Agreement.MAJORITY)
    1
    """
    if len(answers) < annotators:
        return UnlabeledReason.WAITING
    if len(set(answers)) == 1:
        return answers[0]
    if agreement is Agreement.ADJUDICATE:
        return UnlabeledReason.DISPUTED
    given = [answer for answer in answers if not isinstance(answer, UnlabeledReason)]
    if 2 * len(given) <= len(answers):
        return (
            UnlabeledReason.SKIPPED if 2 * len(given) < len(answers) else UnlabeledReason.DISPUTED
        )
    several = [label for label in given if isinstance(label, tuple)]
    return _each(several) if several else _most(given)


def _most(given: Sequence[Label]) -> Label | UnlabeledReason:
    counts = Counter(given).most_common(2)
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return UnlabeledReason.DISPUTED
    return counts[0][0]


def _each(given: Sequence[tuple[int, ...]]) -> Label | UnlabeledReason:
    votes = [sum(column) for column in zip(*given, strict=True)]
    if any(2 * count == len(given) for count in votes):
        return UnlabeledReason.DISPUTED
    return tuple(int(2 * count > len(given)) for count in votes)
