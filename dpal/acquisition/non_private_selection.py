"""NOT PRIVATE: selections that show what privacy costs, on public or simulated data.

They read exact scores, or compare records with each other, so that one record decides
about others. Nothing here may choose records of a private pool, and what they return is
of a type that no private selection has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dpal import check
from dpal.errors import ParameterError

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

NOT_PRIVATE = "not private: for comparison on public or simulated data only"

_BLOCK = 1024  # rows whose distances to all centres are held at once


class Reference(StrEnum):
    """How a non-private selection was made."""

    EXACT_TOP_K = "exact_top_k"
    CORE_SET = "core_set"
    BADGE = "badge"
    COMMITTEE = "committee_disagreement"


@dataclass(frozen=True, kw_only=True, eq=False)
class NonPrivateSelection:
    """Rows selected without any privacy.

    Attributes:
      rows: (count,) distinct row numbers, in the order in which they were chosen.
      method: how they were chosen.
      note: what every output that shows them has to say.
    """

    rows: Rows
    method: Reference
    note: str = field(default=NOT_PRIVATE, init=False)


def exact_top_k(scores: Floats, count: int) -> NonPrivateSelection:
    """Selects the highest scores; of equal ones the first rows. NOT PRIVATE.

    Args:
      scores: (n,), higher is more wanted; anything not finite counts as lowest.
      count: rows to select.

    Returns:
      The selection, best first.

    Raises:
      ParameterError: fewer rows are there.
    """
    _check_count(count, len(scores))
    return NonPrivateSelection(rows=_top(scores, count), method=Reference.EXACT_TOP_K)


def committee_disagreement(probabilities: Floats, count: int) -> NonPrivateSelection:
    """Selects the records on which a committee's votes are spread most. NOT PRIVATE.

    Every member would have to be trained privately, each for a share of the budget.

    Args:
      probabilities: (members, n, classes); a record for which any member gives anything
        not finite is wanted least.
      count: rows to select.

    Returns:
      The selection, best first; of equal ones the first rows.

    Raises:
      ParameterError: fewer rows are there, or fewer than two members vote.

    Source:
      Committee: Seung, Opper & Sompolinsky (1992), "Query by committee".
      Vote entropy: Dagan & Engelson (1995), "Committee-based sampling for training
      probabilistic classifiers".
    """
    members, records, classes = probabilities.shape
    check.at_least(2, members=members, classes=classes)
    _check_count(count, records)
    ballots = probabilities.argmax(axis=2)
    shares = np.stack([(ballots == label).mean(axis=0) for label in range(classes)])
    entropy = entr(shares).sum(axis=0) / math.log(classes)
    sound = np.isfinite(probabilities).all(axis=(0, 2))
    rows = _top(np.where(sound, entropy, -np.inf), count)
    return NonPrivateSelection(rows=rows, method=Reference.COMMITTEE)


def core_set(embeddings: Floats, labeled_embeddings: Floats, count: int) -> NonPrivateSelection:
    """Selects, again and again, the record farthest from all labeled ones. NOT PRIVATE.

    Distances depend on the other records, labeled and unlabeled.

    Args:
      embeddings: (n, d) of the unlabeled records, such as inputs of the last layer.
      labeled_embeddings: (n_labeled, d) of the labeled ones, at least one.
      count: rows to select.

    Returns:
      The selection in greedy order; of equal ones the first rows.

    Raises:
      ParameterError: fewer rows are there, none is labeled, or a value is not finite.

    Source:
      Sener & Savarese (2018), "Active learning for convolutional neural networks: a
      core-set approach", Algorithm 1 (k-center greedy).
    """
    _check_count(count, len(embeddings))
    check.at_least(1, labeled_records=len(labeled_embeddings))
    _check_finite(embeddings, labeled_embeddings)
    # Distances do not change with the origin, and lose fewer digits near it.
    origin = labeled_embeddings.mean(axis=0)
    points, labeled = embeddings - origin, labeled_embeddings - origin
    lengths, labeled_lengths = _squares(points), _squares(labeled)
    nearest = np.empty(len(points))
    for start in range(0, len(points), _BLOCK):
        block = slice(start, start + _BLOCK)
        products = points[block] @ labeled.T
        distances = lengths[block, None] + labeled_lengths - 2 * products
        nearest[block] = np.maximum(distances.min(axis=1), 0)

    def distances_to(row: int) -> Floats:
        squared: Floats = lengths + lengths[row] - 2 * (points @ points[row])
        return squared

    def farthest(distances: Floats) -> int:
        return int(distances.argmax())

    rows = _spread(nearest, count, distances_to=distances_to, pick=farthest)
    return NonPrivateSelection(rows=rows, method=Reference.CORE_SET)


def badge(
    probabilities: Floats, features: Floats, count: int, *, rng: np.random.Generator
) -> NonPrivateSelection:
    """Selects records with large and different last-layer gradients. NOT PRIVATE.

    The gradient of a record is taken at the class that the model believes in: the outer
    product of (probabilities - that class) and the last layer's input. Lengths and inner
    products of outer products are products of those of their factors, so gradients,
    (n, classes * d) numbers, are never written out.

    Args:
      probabilities: (n, classes), rows summing to 1.
      features: (n, d), inputs of the last layer.
      count: rows to select.
      rng: of the draws, such as `seeded(config.seed, "badge")`; the data are public, and
        a comparison must repeat.

    Returns:
      The selection in the order of the draws: first the longest gradient, then at
      chances in proportion to the squared distance from the nearest one selected.

    Raises:
      ParameterError: fewer rows are there, arrays do not fit or a value is not finite.

    Source:
      Ash et al. (2020), "Deep batch active learning by diverse, uncertain gradient lower
      bounds"; the first pick is that of the authors' code. Seeding: Arthur &
      Vassilvitskii (2007), "k-means++".
    """
    _check_count(count, len(probabilities))
    if len(features) != len(probabilities):
        raise ParameterError(
            f"{len(features)} rows of features do not fit {len(probabilities)} of probabilities"
        )
    _check_finite(probabilities, features)
    residuals = probabilities - np.eye(probabilities.shape[1])[probabilities.argmax(axis=1)]
    lengths = _squares(residuals) * _squares(features)

    def distances_to(row: int) -> Floats:
        products = (residuals @ residuals[row]) * (features @ features[row])
        squared: Floats = lengths + lengths[row] - 2 * products
        return squared

    def drawn(distances: Floats) -> int:
        # Selected rows lie below 0. Where all others coincide with them, any will do.
        weights = np.maximum(distances, 0)
        if weights.sum() == 0:
            weights = (distances >= 0).astype(np.float64)
        return int(rng.choice(weights.size, p=weights / weights.sum()))

    first = int(lengths.argmax())
    nearest = _nearer(np.full(len(lengths), np.inf), distances_to(first), first)
    rest = _spread(nearest, count - 1, distances_to=distances_to, pick=drawn)
    return NonPrivateSelection(rows=np.concatenate([[first], rest]), method=Reference.BADGE)


def _spread(
    nearest: Floats,
    count: int,
    *,
    distances_to: Callable[[int], Floats],
    pick: Callable[[Floats], int],
) -> Rows:
    """Picks rows one by one, each by its squared distance (n,) from those before it."""
    rows = np.empty(count, dtype=np.int64)
    for position in range(count):
        row = pick(nearest)
        rows[position] = row
        nearest = _nearer(nearest, distances_to(row), row)
    return rows


def _nearer(nearest: Floats, distances: Floats, row: int) -> Floats:
    """Squared distances (n,) from the nearest selected row, now that `row` is one."""
    # Rounding may leave the distance between equal rows below 0.
    updated = np.minimum(nearest, np.maximum(distances, 0))
    updated[row] = -1  # below every distance: not picked again, even among duplicates
    return updated


def _top(scores: Floats, count: int) -> Rows:
    """Rows of the highest scores, best first, the first rows of equal ones."""
    finite = np.where(np.isfinite(scores), scores, -np.inf)
    return np.argsort(-finite, kind="stable")[:count].astype(np.int64)


def _squares(rows: Floats) -> Floats:
    """Squared lengths (n,) of rows."""
    lengths: Floats = np.einsum("ij,ij->i", rows, rows)
    return lengths


def _check_count(count: int, available: int) -> None:
    check.at_least(1, count=count)
    if count > available:
        raise ParameterError(
            f"{count} records are to be selected and {available} are there; lower count"
        )


def _check_finite(*arrays: Floats) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ParameterError("an embedding or probability is not finite: the model has diverged")
