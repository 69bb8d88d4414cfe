"""Scores of uncertainty: larger is more wanted, within a public range.

Source: Schwethelm et al. (2025), Sec. 3.2; ranges are the sensitivities there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError
from dpal.planning.spec import Acquisition

Scores = NDArray[np.float64]

ENTROPY_CLIP = 0.8  # a public constant of the source, not read off any data


@dataclass(frozen=True)
class ScoreFunction:
    """A score and the width of its range [0, width].

    Attributes:
      compute: from probabilities (n, classes) to scores (n,).
      width: of the range, for a number of classes; bounds one record's influence.
    """

    compute: Callable[[Scores], Scores]
    width: Callable[[int], float]


def score(acquisition: Acquisition, probabilities: Scores) -> Scores:
    """Scores records by how unsure a model is of them.

    Args:
      acquisition: a score; RANDOM has none.
      probabilities: (n, classes), rows summing to 1.

    Returns:
      (n,) values in [0, width]. A record for which the model gives anything not finite
      gets 0, the least wanted: such values would otherwise be selected whatever the noise.

    Raises:
      ParameterError: the acquisition has no score.
    """
    if acquisition not in SCORES:
        raise ParameterError(f"acquisition {acquisition} does not score records")
    function = SCORES[acquisition]
    raw = function.compute(probabilities)
    sound = np.isfinite(raw) & np.isfinite(probabilities).all(axis=1)
    finite = np.where(sound, raw, 0.0)
    clipped: Scores = np.clip(finite, 0.0, function.width(probabilities.shape[1]))
    return clipped


def _least_confidence(probabilities: Scores) -> Scores:
    best: Scores = probabilities.max(axis=1)
    return 1 - best


def _margin(probabilities: Scores) -> Scores:
    ordered = np.sort(probabilities, axis=1)
    lead: Scores = ordered[:, -1] - ordered[:, -2]
    return 1 - lead


def _entropy(probabilities: Scores) -> Scores:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(probabilities > 0, probabilities * np.log(probabilities), 0.0)
    total: Scores = terms.sum(axis=1)
    return -total / math.log(probabilities.shape[1])


SCORES: dict[Acquisition, ScoreFunction] = {
    Acquisition.LEAST_CONFIDENCE: ScoreFunction(_least_confidence, lambda classes: 1 - 1 / classes),
    Acquisition.MARGIN: ScoreFunction(_margin, lambda classes: 1.0),
    Acquisition.ENTROPY: ScoreFunction(_entropy, lambda classes: ENTROPY_CLIP),
}
