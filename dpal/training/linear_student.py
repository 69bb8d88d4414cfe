"""A linear student in closed form: ridge regression on answers, or on noisy shares of votes.

How hard weights are pulled to zero is chosen by leaving each answered record out once, for all
labels together. That reads what was released and public records alone, so it is free; and as the
noise on a share is unbiased and its own for every record, the error on those left out ranks
penalties as the shares without noise would.

Source: leave-one-out by one decomposition, Golub, Heath and Wahba (1979), "Generalized
cross-validation as a method for choosing a good ridge parameter", as scikit-learn has it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from dpal.errors import ParameterError

Floats = NDArray[np.float64]

# Of the mean squared length of records around their mean, times how many there are.
PENALTIES = tuple(10.0**power for power in np.arange(-5, 2.01, 0.5))
# The slope of the logistic function at 1/2 is 1/4: a share of 0.6 becomes a probability of 0.6.
_LOGITS_PER_SHARE = 4.0


def fit_linear_student(features: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """The linear model that follows from shares of votes, or from answers.

    Args:
      features: (n, d) public records as the model's first layer sees them.
      shares: (n, labels or classes): noisy shares, which may lie outside [0, 1], or zeros and
        ones; NaN where there is no answer.

    Returns:
      (labels, d) weights and (labels,) biases of logits: 0 where the share is 1/2.

    Raises:
      ParameterError: fewer than two records have an answer.
    """
    known = ~np.isnan(shares)
    if known.any(axis=1).sum() < 2:
        raise ParameterError(
            f"{int(known.any(axis=1).sum())} of {len(shares):,} public records have an answer, and "
            "a student by least_squares needs two; take student.method supervised"
        )
    if known.all():
        weights, bias = _ridge(features, shares)
    else:
        # Labels are answered on records of their own.
        heads = [_one(features, column) for column in shares.T]
        weights, bias = np.stack([head[0] for head in heads]), np.array([head[1] for head in heads])
    return _LOGITS_PER_SHARE * weights, _LOGITS_PER_SHARE * (bias - 0.5)


def _one(features: Floats, column: Floats) -> tuple[Floats, float]:
    """Of one label; what hardly anybody was told is no."""
    known = ~np.isnan(column)
    if known.sum() < 2:
        return np.zeros(features.shape[1]), 0.0
    weights, bias = _ridge(features[known], column[known][:, None])
    return weights[0], float(bias[0])


def _ridge(features: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """(labels, d) weights and (labels,) biases, with the penalty that leaves out best."""
    centred = features - features.mean(axis=0)
    spread = max(float((centred**2).sum()), 1e-12)
    fitted = RidgeCV(alphas=[spread * share for share in PENALTIES]).fit(features, shares)
    weights = np.asarray(fitted.coef_, dtype=np.float64).reshape(shares.shape[1], -1)
    return weights, np.broadcast_to(np.asarray(fitted.intercept_, np.float64), len(weights)).copy()
