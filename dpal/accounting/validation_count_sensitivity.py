"""Which counts of validation records are released at once, and how far one of them moves these."""

from __future__ import annotations

from dataclasses import dataclass

from dpal import check
from dpal.privacy import Adjacency

SCORE_BINS = 32  # of a histogram of scores


@dataclass(frozen=True, kw_only=True)
class MeasuredCounts:
    """What is counted of every record that a phase's model is measured on.

    A record of one class is in one count, by its class and the model's answer; one of several
    labels is in one count for each label that is known of it. Where labels of one record, or
    records of one group, may be right and wrong together, counts do not tell how sure the headline
    is: its spread is released as well, a sum to which each record, or group, adds 0 to 1.
    For areas under the ROC curve a record is in one more count for each label, by that label and
    the bin of the model's score.

    Attributes:
      labels: of a record, each judged by itself; 1 for classes.
      auc: whether there are histograms of scores.
      group_records: of one group, at most, where groups are the unit.
    """

    labels: int
    auc: bool = False
    group_records: int = 1

    def __post_init__(self) -> None:
        check.at_least(1, labels=self.labels, group_records=self.group_records)

    @property
    def has_spread(self) -> bool:
        """Whether the spread of the headline is released beside the counts."""
        return self.labels > 1 or self.group_records > 1

    def squared_sensitivity(self, adjacency: Adjacency) -> int:
        """By how much one record, or group, moves all that is released of a phase.

        Blanked, a record leaves its counts, each of which falls by one. Replaced, it joins as many
        others. All records of a group may be in the same counts, which then move by as many. The
        spread moves by 1 at most, whatever a record or group is and was.

        Returns:
          The square of the Euclidean norm.
        """
        worlds = 2 if adjacency is Adjacency.REPLACE_ONE else 1
        counts = worlds * self.labels * (1 + self.auc)
        return self.group_records**2 * counts + self.has_spread
