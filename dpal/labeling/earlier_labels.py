"""Labels that an earlier campaign bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpal.data.labeling_state import labels_of
from dpal.errors import LabelError
from dpal.labels import Label


@dataclass(frozen=True)
class EarlierLabels:
    """Answers from the last state of a finished campaign.

    Attributes:
      state: its pool.parquet.
    """

    state: Path

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Looks the records up."""
        labels = labels_of(self.state)
        if not set(ids) <= labels.keys():
            raise LabelError("a carried record has no label in the earlier campaign; nothing was "
                             "merged, restore its files")  # fmt: skip
        return {name: labels[name] for name in ids}
