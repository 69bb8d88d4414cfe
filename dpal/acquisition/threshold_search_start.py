"""Where the search for a threshold begins: around a quantile of public scores.

The validation set's scores suggest which share of the pool lies above a score. They may be
wrong, as a sample or because the pool is another population; so cuts are close together around
the suggested quantile, and ever wider apart up to both ends of all scores. A bad start makes the
search end far from its aim, which costs labels. No charge and no cap depends on it.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.acquisition.noisy_threshold_search import FineKeys

_OTHER_POPULATION = 0.3  # deviation of the log odds, beside that of a sample of such a size
_END = float(1 << 32)


def cut_points(public: FineKeys, *, share: float, bits: int) -> FineKeys:
    """Places cuts where about a given share of the pool is expected above.

    Log odds of the true share lie around the suggested ones by a Cauchy distribution: its middle
    is as wide as a sample's error, and its tails reach any quantile. Cuts are its quantiles, so
    that each halving of the search is as likely to go up as down.

    Args:
      public: (m,) fine keys of public records, in any order; m may be 0.
      share: of the pool's records that should lie above, in (0, 1).
      bits: comparisons of the search.

    Returns:
      (2**bits - 1,) fine keys, ascending.
    """
    check.inside(0, 1, share=share)
    cells = 1 << bits
    spread = math.sqrt(1 / (public.size * share + 1) + _OTHER_POPULATION**2)
    quantiles = np.arange(1, cells) / cells
    odds = scipy.special.logit(share) - spread * scipy.stats.cauchy.ppf(quantiles)
    return _keys_above(public, scipy.special.expit(odds))


def _keys_above(public: FineKeys, shares: NDArray[np.float64]) -> FineKeys:
    """The fine keys above which such shares of the public records lie, by straight lines between.

    Beyond the public records, and between any two, lies as much as between any other two.
    """
    known = np.concatenate([[0.0], np.sort(public).astype(np.float64), [_END]])
    below = np.arange(known.size) / (known.size - 1)
    keys = np.interp(1 - shares, below, known)
    return np.asarray(np.minimum(np.ceil(keys), _END - 1), dtype=np.uint32)
