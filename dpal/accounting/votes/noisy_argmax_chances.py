"""Who wins a noisy plurality, exactly.

Every count of m classes gets noise N(0, sigma^2), and the class in front is released. Its law
is one integral per distinct count,

    P(class j wins) = E_x[ phi((x - v_j) / sigma) prod over i != j of Phi((x - v_i) / sigma) ].

What a winner tells about one ballot is in `dpal.accounting.votes.winner_costs`.

Source: the integral is the law of an argmax; the trapezoidal rule converges on it faster
than any power of the spacing (Trefethen & Weideman, 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_REACH, _SPACING = 11.0, 0.08  # of the integral, in standard deviations
_HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


@dataclass(frozen=True)
class _Histogram:
    """Distinct counts, and how many classes have each."""

    values: Floats
    classes: Floats


def plurality_law(counts: NDArray[np.integer], *, classes: int, sigma: float) -> Floats:
    """Chances of winning of the given bins, and of all other classes together, (bins + 1,)."""
    values, back = np.unique(np.append(counts, 0), return_inverse=True)
    many = np.bincount(back, minlength=values.size).astype(np.float64)
    many[0] += classes - counts.size - 1
    present = many > 0
    chances = np.zeros(values.size)
    chances[present] = np.exp(_law(_Histogram(values[present], many[present]), sigma))
    mine: Floats = chances[back[:-1]]
    return np.append(mine, max(0.0, (classes - counts.size) * chances[0]))


def _law(histogram: _Histogram, sigma: float) -> Floats:
    """Log-chance that one class of each distinct count wins, (values,)."""
    values = histogram.values / sigma
    far = math.sqrt(2 * math.log(1 + histogram.classes.sum()))
    # The largest of very many classes varies over about 1 / far: a finer grid for it.
    spacing = _SPACING * min(1.0, 5 / far)
    x = np.arange(values.min() - _REACH, values.max() + far + _REACH, spacing)
    apart = x[None, :] - values[:, None]
    below = scipy.special.log_ndtr(apart)
    together = histogram.classes @ below
    density = -(apart**2) / 2 - _HALF_LOG_TWO_PI
    return np.asarray(
        scipy.special.logsumexp(density - below + together, axis=1) + math.log(spacing)
    )
