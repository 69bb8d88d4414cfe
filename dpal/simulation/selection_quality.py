"""How good a selection was, where the scores may be known: public or simulated data only.

Source: Schwethelm et al. (2025), Table 5 and Figs. 9 to 11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # which loads its parts as they are used
from numpy.typing import NDArray

from dpal import check


@dataclass(frozen=True, kw_only=True)
class SelectionQuality:
    """A selection beside the exact top k of the same scores. Not private.

    Attributes:
      selected: how many were selected.
      query: how many were asked for, k.
      hits: share of the selected that are in the true top k. Records that tie at its edge fill its
        last places in random order, and this is the exact mean over all orders: equal scores
        make no selection look good.
      iou: selected and true top k, intersection over union; the exact mean over the same orders.
      mse: mean squared difference of both sets' scores, each sorted.
      mean_score: of the selected.
      best_mean_score: of the true top k.
      chance: share of hits that a random selection is expected to have.
    """

    selected: int
    query: int
    hits: float
    iou: float
    mse: float
    mean_score: float
    best_mean_score: float
    chance: float


def measure_selection(
    scores: NDArray[np.float64], chosen: NDArray[np.int64], *, query: int
) -> SelectionQuality:
    """Compares a selection with the exact top `query` of the same scores.

    Args:
      scores: (n,) of public or simulated records, whole: a clip would make equal what is not.
      chosen: (m,) positions of the selected, at most `query`, none twice.
      query: how many were asked for.

    Raises:
      ParameterError: the query is not within the pool.
    """
    check.within(1, scores.size, query=query)
    ordered = np.sort(scores)[::-1]
    picked = np.sort(scores[chosen])[::-1]
    edge = ordered[query - 1]
    better, tied = int((picked > edge).sum()), int((picked == edge).sum())
    places = query - int((ordered > edge).sum())
    # Of all that tie, those that a random order puts into the top k: hypergeometric.
    ties = int((ordered == edge).sum())
    in_top = np.arange(max(0, tied + places - ties), min(tied, places) + 1)
    chances = np.ones(1)
    if in_top.size > 1:
        chances = scipy.stats.hypergeom.pmf(in_top, ties, places, tied)
        chances /= chances.sum()
    count = picked.size
    common = better + in_top
    iou = float(chances @ (common / (count + query - common)))
    return SelectionQuality(
        selected=count,
        query=query,
        hits=(better + tied * places / ties) / count if count else 0.0,
        iou=iou,
        mse=float(np.mean((ordered[:count] - picked) ** 2)) if count else 0.0,
        mean_score=float(picked.mean()) if count else 0.0,
        best_mean_score=float(ordered[:query].mean()),
        chance=query / scores.size,
    )
