"""How good a selection was, where the scores may be known: public or simulated data only.

Source: Schwethelm et al. (2025), Table 5 and Figs. 9 to 11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check


@dataclass(frozen=True, kw_only=True)
class SelectionQuality:
    """A selection beside the exact top k of the same scores. Not private.

    Attributes:
      selected: how many were selected.
      query: how many were asked for, k.
      hits: share of the selected that are in the true top k; of records that tie at its edge, as
        many as a fair draw would put into it, so that equal scores make no selection look good.
      iou: selected and true top k, intersection over union.
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
      scores: (n,) of public or simulated records.
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
    common = better + tied * places / int((ordered == edge).sum())
    count = picked.size
    return SelectionQuality(
        selected=count,
        query=query,
        hits=common / count if count else 0.0,
        iou=common / (count + query - common),
        mse=float(np.mean((ordered[:count] - picked) ** 2)) if count else 0.0,
        mean_score=float(picked.mean()) if count else 0.0,
        best_mean_score=float(ordered[:query].mean()),
        chance=query / scores.size,
    )
