"""Scores of uncertainty: larger is more wanted, within a public range.

A score reads one record's probabilities and nothing else, so the width of its range is
the most that one record can change.

Source: Schwethelm et al. (2025), Sec. 3.2 and Appendix C; ranges are the sensitivities
there. Disagreement: Houlsby et al. (2011), "Bayesian active learning for classification
and preference learning"; of a committee instead of dropout: McCallum & Nigam (1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dpal import check
from dpal.acquisition.strata import Strata, StratumKind
from dpal.errors import ParameterError
from dpal.labels import Task as Task
from dpal.planning.campaign_spec import Acquisition

Scores = NDArray[np.float64]
Compute = Callable[[Scores], Scores]

ENTROPY_CLIP = 0.8  # a public constant of the source, not read off any data
_TINY = np.finfo(np.float64).tiny


class Passes(StrEnum):
    """What answers about a record more than once.

    DROPOUT: one model, with units left out.
    COMMITTEE: several models.
    """

    DROPOUT = "dropout"
    COMMITTEE = "committee"


class OverLabels(StrEnum):
    """How the values of a record's labels become its score; the range is the same.

    MEAN: unsure of the labels on the whole.
    MAX: unsure of at least one label.
    """

    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, kw_only=True)
class ScoreFunction:
    """A score and the width of its range [0, width].

    Attributes:
      compute: from probabilities (n, classes), or (passes, n, classes) where several
        passes are read, to one value per record, shape (n,); for multi-label tasks to
        one value per label, shape (n, labels).
      full_width: of the unclipped range, for a number of classes.
      clip: a public upper bound on the score; infinite for none.
      passes: what answers several times, where probabilities of several passes are read.
      strata: within which a record's score is ranked; None for scores as they are.
    """

    compute: Compute
    full_width: Callable[[int], float]
    clip: float = math.inf
    passes: Passes | None = None
    strata: StratumKind | None = None

    @property
    def reads_embeddings(self) -> bool:
        """Whether a record's embedding matters as well."""
        return self.strata is StratumKind.CLUSTER

    def width(self, classes: int, *, clipped: bool = True) -> float:
        """Returns the width of the range: the bound on one record's influence.

        Ranks within strata have the range [0, 1], whatever the score.

        Args:
          classes: number of classes or labels.
          clipped: whether scores are cut at the public bound.
        """
        if self.strata is not None:
            return 1.0
        return self.score_width(classes, clipped=clipped)

    def score_width(self, classes: int, *, clipped: bool = True) -> float:
        """Returns the width of the score's own range, before it is ranked."""
        full = self.full_width(classes)
        return min(full, self.clip) if clipped else full


def score(
    acquisition: Acquisition,
    probabilities: Scores,
    *,
    task: Task = Task.SINGLE_LABEL,
    over_labels: OverLabels = OverLabels.MEAN,
    clipped: bool = True,
    strata: Strata | None = None,
    embeddings: Scores | None = None,
) -> Scores:
    """Scores records by how unsure a model is of them.

    Args:
      acquisition: a score; RANDOM has none.
      probabilities: (n, classes); BALD and COMMITTEE take (passes, n, classes), at least two
        passes. Rows sum to 1 in a single-label task and are sigmoids in a multi-label one.
      task: what a label is.
      over_labels: from the values of labels to a record's score; multi-label only.
      clipped: cut scores at the public bound, for noise of a smaller scale. A selection
        that compares scores with a threshold needs no such bound, and is better off
        without the ties that it makes. Mechanisms that add noise of the clipped width
        refuse unclipped scores.
      strata: of public records, within which scores are ranked; CLASS_BALANCED and DIVERSE
        need it, unless these very scores are to make it.
      embeddings: (n, embedding width), for strata that are clusters.

    Returns:
      (n,) values in [0, width]. A record for which the model gives anything not finite
      gets 0, the least wanted: such values would otherwise be selected whatever the noise.

    Raises:
      ParameterError: the task has no such score, or the array has another shape.
    """
    function = score_function(acquisition, task=task)
    classes = _check_shape(acquisition, function, task, probabilities)
    sound = _sound_records(probabilities)
    # One half stands in, so that no broken value enters any arithmetic.
    read = probabilities if sound is None else np.where(sound[:, None], probabilities, 0.5)
    values = function.compute(read)
    if task is Task.MULTI_LABEL:
        values = _REDUCTIONS[over_labels](values)
    whole = np.isfinite(values)
    finite = np.where(whole if sound is None else sound & whole, values, 0.0)
    bounded: Scores = np.clip(finite, 0.0, function.score_width(classes, clipped=clipped))
    return bounded if strata is None else strata.ranked(bounded, probabilities, embeddings)


def score_function(acquisition: Acquisition, *, task: Task = Task.SINGLE_LABEL) -> ScoreFunction:
    """Returns the definition and range of a score.

    Args:
      acquisition: a score; RANDOM has none.
      task: what a label is.

    Raises:
      ParameterError: the acquisition does not score records of this task.
    """
    functions = _TASKS[task]
    if acquisition in functions:
        return functions[acquisition]
    if acquisition in SCORES:
        raise ParameterError(
            f"acquisition {acquisition} is not defined for {task} tasks: labels are no rivals, "
            f"none is the one that a model predicts; use one of {', '.join(functions)}"
        )
    raise ParameterError(f"acquisition {acquisition} does not score records")


def _check_shape(
    acquisition: Acquisition, function: ScoreFunction, task: Task, probabilities: Scores
) -> int:
    """Returns the number of classes of an array that fits."""
    shape = ("passes", "n", "classes") if function.passes else ("n", "classes")
    if probabilities.ndim != len(shape):
        raise ParameterError(
            f"acquisition {acquisition} reads probabilities of shape ({', '.join(shape)}), "
            f"got {probabilities.shape}"
        )
    if function.passes:
        # One pass agrees with itself: everyone would score 0.
        check.at_least(2, passes=probabilities.shape[0])
    classes = int(probabilities.shape[-1])
    check.at_least(2 if task is Task.SINGLE_LABEL else 1, classes=classes)
    return classes


def _sound_records(probabilities: Scores) -> NDArray[np.bool_] | None:
    """Which records have finite values alone, (n,); None where all do, which one sum tells."""
    if probabilities.flags.c_contiguous and np.isfinite(np.vdot(probabilities, probabilities)):
        return None
    record = probabilities.ndim - 2
    others = tuple(axis for axis in range(probabilities.ndim) if axis != record)
    return np.asarray(np.isfinite(probabilities).all(axis=others))


def _least_confidence(probabilities: Scores) -> Scores:
    best: Scores = probabilities.max(axis=-1)
    return 1 - best


def _margin(probabilities: Scores) -> Scores:
    ordered = np.sort(probabilities, axis=-1)
    lead: Scores = ordered[..., -1] - ordered[..., -2]
    return 1 - lead


def _entropy(probabilities: Scores) -> Scores:
    """Share of the largest possible entropy."""
    logarithms = np.log(np.maximum(probabilities, _TINY))  # of 0 as well, where 0 is what counts
    nats: Scores = -np.einsum("...c,...c->...", probabilities, logarithms)
    return nats / math.log(probabilities.shape[-1])


def _closeness_to_half(sigmoids: Scores) -> Scores:
    return 0.5 - np.abs(sigmoids - 0.5)


def _binary_entropy(sigmoids: Scores) -> Scores:
    """In bits, each label by itself."""
    nats: Scores = entr(sigmoids) + entr(1 - sigmoids)
    return nats / math.log(2)


def _disagreement(entropy: Compute) -> Compute:
    """Entropy of the mean pass less mean entropy of a pass: what only passes differ in."""

    def bald(passes: Scores) -> Scores:
        total, within = entropy(passes.mean(axis=0)), entropy(passes)
        between: Scores = total - within.mean(axis=0)
        return between

    return bald


def _one(classes: int) -> float:
    return 1.0


SCORES: dict[Acquisition, ScoreFunction] = {
    Acquisition.LEAST_CONFIDENCE: ScoreFunction(
        compute=_least_confidence, full_width=lambda classes: 1 - 1 / classes
    ),
    Acquisition.MARGIN: ScoreFunction(compute=_margin, full_width=_one),
    Acquisition.ENTROPY: ScoreFunction(compute=_entropy, full_width=_one, clip=ENTROPY_CLIP),
    Acquisition.BALD: ScoreFunction(
        compute=_disagreement(_entropy), full_width=_one, passes=Passes.DROPOUT
    ),
    Acquisition.COMMITTEE: ScoreFunction(
        compute=_disagreement(_entropy), full_width=_one, passes=Passes.COMMITTEE
    ),
    Acquisition.CLASS_BALANCED: ScoreFunction(
        compute=_margin, full_width=_one, strata=StratumKind.PREDICTED_CLASS
    ),
    Acquisition.DIVERSE: ScoreFunction(
        compute=_margin, full_width=_one, strata=StratumKind.CLUSTER
    ),
}

MULTI_LABEL_SCORES: dict[Acquisition, ScoreFunction] = {
    Acquisition.LEAST_CONFIDENCE: ScoreFunction(
        compute=_closeness_to_half, full_width=lambda labels: 0.5
    ),
    Acquisition.ENTROPY: ScoreFunction(compute=_binary_entropy, full_width=_one, clip=ENTROPY_CLIP),
    Acquisition.BALD: ScoreFunction(
        compute=_disagreement(_binary_entropy), full_width=_one, passes=Passes.DROPOUT
    ),
    Acquisition.COMMITTEE: ScoreFunction(
        compute=_disagreement(_binary_entropy), full_width=_one, passes=Passes.COMMITTEE
    ),
    Acquisition.DIVERSE: ScoreFunction(
        compute=_closeness_to_half, full_width=lambda labels: 0.5, strata=StratumKind.CLUSTER
    ),
}

_TASKS = {Task.SINGLE_LABEL: SCORES, Task.MULTI_LABEL: MULTI_LABEL_SCORES}

_REDUCTIONS: dict[OverLabels, Compute] = {
    OverLabels.MEAN: lambda values: np.asarray(values.mean(axis=1)),
    OverLabels.MAX: lambda values: np.asarray(values.max(axis=1)),
}
