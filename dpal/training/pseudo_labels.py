"""Labels that a released model gives to records which nobody labeled: post-processing of it.

A model that has learnt from few labels prefers some classes. How often it should name each is known
where records are public, so its answers are weighed until they come as often there as they
should: it is one fixed function of single records.

Source of the weights: prior correction by expectation-maximisation turned round (Saerens, Latinne &
Decaestecker 2002): there the shares are looked for, and here they are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.labels import Task

_ROUNDS = 50
_LARGEST = 10.0  # factor on a class; a class that is never named would be weighed without end


@dataclass(frozen=True, eq=False)
class PseudoLabeler:
    """Turns a model's probabilities into labels.

    Attributes:
      task: what a label is.
      weights: (classes,) factors on probabilities of classes; ones for several labels.
    """

    task: Task
    weights: NDArray[np.float64]

    def label(self, guesses: NDArray[np.float64]) -> NDArray[np.int64]:
        """Labels of records.

        Args:
          guesses: (n, classes) probabilities.

        Returns:
          (n,) class numbers, or (n, labels) zeros and ones.
        """
        if self.task is Task.MULTI_LABEL:
            return (guesses >= 0.5).astype(np.int64)
        return np.asarray((guesses * self.weights).argmax(axis=1), dtype=np.int64)


def fitted_labeler(
    task: Task, guesses: NDArray[np.float64], labels: NDArray[np.int64]
) -> PseudoLabeler:
    """The labeler whose answers come, on public records, as often as the classes there.

    Args:
      task: what a label is.
      guesses: (m, classes) probabilities on public records.
      labels: (m,) their class numbers, or (m, labels) zeros and ones.
    """
    classes = guesses.shape[1]
    weights = np.ones(classes)
    if task is Task.MULTI_LABEL:
        return PseudoLabeler(task, weights)
    wanted = np.bincount(labels, minlength=classes) / len(labels)
    for _ in range(_ROUNDS):
        weighed = guesses * weights
        shares = (weighed / weighed.sum(axis=1, keepdims=True)).mean(axis=0)
        weights = weights * np.where(wanted > 0, wanted / np.maximum(shares, 1e-12), 1.0)
        weights = np.clip(weights / np.median(weights), 1 / _LARGEST, _LARGEST)
    return PseudoLabeler(task, weights)
