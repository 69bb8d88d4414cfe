"""A linear head that is fitted in one release, instead of being trained step by step.

Each phase releases sums over the records that it labels, and over no others: sums of earlier phases
are there already and are added, so that a record pays once, whatever follows. The head is solved
from all of them, which is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpal import check


class TrainingMethod(StrEnum):
    """How a phase makes its model.

    DP_SGD: noisy gradients, step by step, of any model.
    LEAST_SQUARES, PROTOTYPES: a linear model in one release, as `HeadKind` says.
    """

    DP_SGD = "dp_sgd"
    LEAST_SQUARES = "least_squares"
    PROTOTYPES = "prototypes"


class HeadKind(StrEnum):
    """What is released of labeled records, and how a linear head follows.

    LEAST_SQUARES: second moments of features, and their products with labels; a ridge regression.
    PROTOTYPES: a sum of features for each class, and so its size; the nearest mean.
    """

    LEAST_SQUARES = "least_squares"
    PROTOTYPES = "prototypes"


@dataclass(frozen=True, kw_only=True)
class LinearHead:
    """How a linear model is fitted.

    Attributes:
      kind: what is released.
      components: directions of features that are kept, those in which the public validation set
        differs most; where it is protected, all are.
      max_feature_norm: longest features of a record, after normalisation and projection; None takes
        the median length in a public validation set, or the root of the number of features.
    """

    kind: HeadKind
    components: int
    max_feature_norm: float | None = None

    def __post_init__(self) -> None:
        check.at_least(1, **{"training.components": self.components})
        if self.max_feature_norm is not None:
            check.positive(**{"training.max_feature_norm": self.max_feature_norm})
