"""What a record's label is."""

from __future__ import annotations

from enum import StrEnum

# A class number; or, for each label, 0, 1, or UNKNOWN.
Label = int | tuple[int, ...]

# Above which a label is said: public and the same for all, as a tuned one would read records.
THRESHOLD = 0.5
UNKNOWN = (
    -1
)  # among several labels: one that nobody gave, or was not sure of; never learned or judged


class Task(StrEnum):
    """What a record's label is.

    SINGLE_LABEL: one class out of several; probabilities sum to 1.
    MULTI_LABEL: any subset of the labels; one sigmoid for each.
    """

    SINGLE_LABEL = "single_label"
    MULTI_LABEL = "multi_label"
