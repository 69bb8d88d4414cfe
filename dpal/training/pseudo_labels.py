"""Labels that a released model gives to records which nobody labeled: post-processing of it.

A model that has learnt from few labels prefers some classes. How often each comes is known where
records are public, so probabilities are weighed by class until their means there are those shares
(a factor of 10 either way at most): one function of single records. Where training sees views of a
record, its probabilities are the mean over several, so that all views train on one label.

Source of the weights: prior correction by expectation-maximisation turned round (Saerens, Latinne &
Decaestecker 2002): there the shares are looked for, and here they are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal.labels import Task
from dpal.planning.training_recipe import Augmentation
from dpal.training.augmentation import augment
from dpal.training.evaluation import probabilities

_ROUNDS = 50
_VIEWS = 4  # of a record, over which a model's probabilities are averaged
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


def probabilities_over_views(
    model: nn.Module,
    inputs: Tensor,
    *,
    augmentation: Augmentation,
    generator: torch.Generator,
    physical_batch: int,
    task: Task,
) -> NDArray[np.float64]:
    """Mean probabilities over a few views of each record, shape (n, classes).

    Args:
      model: from records to logits.
      inputs: (n, *input_shape) decoded records.
      augmentation: the views that training sees; without any, records are looked at once.
      generator: of the views; on the CPU.
      physical_batch: records per forward pass.
      task: what a label is.
    """
    single, views = replace(augmentation, multiplicity=1), 1
    if augmentation.flip or augmentation.shift:
        views = _VIEWS
    parts = [
        probabilities(
            model,
            augment(inputs, single, generator=generator),
            physical_batch=physical_batch,
            task=task,
        )
        for _ in range(views)
    ]
    return np.asarray(np.mean(parts, axis=0))


def unweighted_labeler(task: Task, classes: int) -> PseudoLabeler:
    """The labeler that takes probabilities as they are, where nothing public weighs classes."""
    return PseudoLabeler(task, np.ones(classes))


def fitted_labeler(
    task: Task, guesses: NDArray[np.float64], labels: NDArray[np.int64]
) -> PseudoLabeler:
    """The labeler whose weighed probabilities have the classes' shares as means on public records.

    Where records have several labels each, probabilities are taken as they are.

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
