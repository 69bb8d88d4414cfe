"""The pool's own label column answers; for research, rehearsals and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dpal.data.label_columns import as_label
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import LabelError
from dpal.labels import UNKNOWN, Label, Task


@dataclass(frozen=True)
class OracleLabeler:
    """Reads labels from the pool's file.

    Attributes:
      source: a pool with a label column.
      classes: number of classes or labels.
    """

    source: Source
    classes: int

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Looks the records up, in one pass over the file."""
        if self.source.label_column is None:
            raise LabelError(
                f"{self.source.name} has no label column, so labeler.kind oracle cannot answer; "
                "set labeler.kind: file"
            )
        wanted = pa.array(ids, pa.string())
        labels: dict[str, Label] = {}
        for batch in raw_batches(self.source, ["id", self.source.label_column]):
            names = batch.table.column(0).cast(pa.string())
            hits = pc.is_in(names, value_set=wanted)
            for name, label in zip(
                names.filter(hits).to_pylist(),
                batch.table.column(1).filter(hits).to_pylist(),
                strict=True,
            ):
                if label is None or not self._valid(as_label(label)):
                    raise LabelError(
                        f"a selected record has no {self._wanted}; correct the pool's label "
                        "column, nothing was merged"
                    )
                labels[name] = as_label(label)
        if len(labels) != len(ids):
            # How many were selected may be confidential, and errors reach the orchestrator.
            raise LabelError("a selected record is not in the pool; nothing was merged")
        return {name: labels[name] for name in ids}

    def _valid(self, label: Label) -> bool:
        if isinstance(label, int):
            return self.source.task is Task.SINGLE_LABEL and 0 <= label < self.classes
        return len(label) == self.classes and set(label) <= {0, 1, UNKNOWN}

    @property
    def _wanted(self) -> str:
        if self.source.task is Task.SINGLE_LABEL:
            return f"label from 0 to {self.classes - 1}"
        return f"list of {self.classes} labels, each 0 or 1"
