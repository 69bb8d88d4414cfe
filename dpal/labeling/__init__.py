"""Where labels come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dpal.labels import Label


class Labeler(Protocol):
    """Answers queries about records, each on its own account.

    The guarantee needs the label of a record to depend on that record alone, and on what was
    released before.
    """

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Returns the class of each record, or a 0 or 1 for each label.

        Raises:
          LabelError: a record has no valid label.
          LabelsPending: people are still at work.
        """
        ...
