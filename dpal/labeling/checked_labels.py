"""Labels by whatever labeler, checked before they are believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from dpal.errors import LabelError
from dpal.labeling import Labeler
from dpal.labels import UNKNOWN, Label, Task


@dataclass(frozen=True)
class ProgramLabeler:
    """A labeler whose answers are checked.

    Attributes:
      labeler: answers queries.
      classes: number of classes or labels.
      task: what a label is.
      may_skip: whether records may stay without an answer.
    """

    labeler: Labeler
    classes: int
    task: Task
    may_skip: bool = False

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Returns the class of each record, or for each label 0, 1, or -1 where it is not known.

        Raises:
          LabelError: what came is no mapping; an answer is missing, was not asked for, or is no
            label. Nothing was merged.
          LabelsPending: the labeler says so.
        """
        answers: Any = self.labeler.label(ids)
        if not isinstance(answers, Mapping):
            raise LabelError(
                f"the labeler returned a {type(answers).__name__}; return a dict with the label of "
                "each id, nothing was merged"
            )
        missing = 0 if self.may_skip else sum(name not in answers for name in ids)
        unknown = len(set(answers) - set(ids))
        if missing or unknown:
            raise LabelError(
                "the labeler left out {missing} of {asked} records and named {unknown} that were "
                "not asked for; answer each id once, nothing was merged",
                missing=missing, asked=len(ids), unknown=unknown,
            )  # fmt: skip
        return {name: self._checked(answers[name]) for name in ids if name in answers}

    def _checked(self, answer: Any) -> Label:
        label = _as_label(answer)
        if self.task is Task.SINGLE_LABEL:
            sound = isinstance(label, int) and 0 <= label < self.classes
        else:
            allowed = {0, 1, UNKNOWN}
            sound = isinstance(label, tuple) and len(label) == self.classes and {*label} <= allowed
        if label is None or not sound:
            wanted = (
                f"a class from 0 to {self.classes - 1}"
                if self.task is Task.SINGLE_LABEL
                else f"{self.classes} zeros and ones"
            )
            raise LabelError(
                f"the labeler gave an answer that is not {wanted}; correct it, nothing was merged"
            )
        return label


def _as_label(answer: Any) -> Label | None:
    """An integer, or a tuple of them, of whatever library; None for anything else."""
    try:
        if isinstance(answer, str | bytes | bool):
            return None
        return tuple(map(index, answer)) if hasattr(answer, "__iter__") else index(answer)
    except TypeError:
        return None
