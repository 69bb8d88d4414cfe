"""What a model says of records, as scores of uncertainty read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.labels import Task
from dpal.training.committee import committee_probabilities
from dpal.training.embeddings import embed
from dpal.training.evaluation import probabilities
from dpal.training.losses import probabilities_of
from dpal.training.mc_dropout import Masks, mc_probabilities

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """Of n records. Of private ones: private.

    Attributes:
      probabilities: (n, classes), or (passes, n, classes).
      embeddings: (n, embedding width); None where they are not wanted.
    """

    probabilities: Floats
    embeddings: Floats | None = None

    def __repr__(self) -> str:
        return "ScoreInputs(maybe private)"  # wherever it might be printed or logged


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredModel:
    """A model, and how it answers.

    Attributes:
      model: from records to logits, in evaluation mode.
      task: what a label is.
      classes: number of logits.
      physical_batch: records per forward pass.
      masks: of dropout, the same for all records; none where it answers once.
      members: that answer beside each other in its place; none where it answers alone.
      reads_embeddings: whether embeddings are wanted.
    """

    model: nn.Module
    task: Task
    classes: int
    physical_batch: int
    masks: Masks = field(default_factory=dict)
    members: Sequence[nn.Module] = ()
    reads_embeddings: bool = False

    def read(self, inputs: Tensor) -> ScoreInputs:
        """What it says of (n, *input_shape) decoded records, each by itself."""
        batch, embeddings = self.physical_batch, None
        if self.reads_embeddings:
            embeddings, _ = embed(self.model, inputs, classes=self.classes, physical_batch=batch)
        if self.members:
            guesses = committee_probabilities(
                self.members, inputs, physical_batch=batch, task=self.task
            )
        elif self.masks:
            guesses = mc_probabilities(
                self.model,
                inputs,
                self.masks,
                physical_batch=batch,
                to_probabilities=probabilities_of(self.task),
            )
        else:
            guesses = probabilities(self.model, inputs, physical_batch=batch, task=self.task)
        return ScoreInputs(guesses, embeddings)
