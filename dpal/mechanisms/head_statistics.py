"""Sums from which a linear head is fitted, released once with Gaussian noise.

A record with features z, clipped to length 1, and a constant b gives u = (sqrt(1 - b^2) z, b), of
length 1 at most, and its label a code y of length 1 at most. It adds u y^T, and for least squares
u u^T as well. Both leave as one vector v = (u u^T, u y^T), the first in isometric coordinates
(`dpal.mechanisms.symmetric_noise`), with one noise for all of it. What a record can change is

  blanked:   ||v|| <= sqrt(m + 1), with m = 1 where u u^T is released, else 0;
  replaced:  ||v - v'||^2 = 2 m (1 - t^2) + 2 (1 - t c), t = u.u', c = y.y',

for vectors of length 1; shorter ones are not further apart. In c this is linear, and in t a
parabola that opens downwards (m = 1) or a line, so that its maximum is at an end of c and at
t = -c / 2 or an end of t (`HeadStatistics.sensitivity`). u u^T is never turned around, only away,
which is why a replacement costs least squares 2.12, and not 2 * 1.41.

Both parts get the same noise: with half or twice as much weight on either no head was better
(docs/results.md, "Heads on fixed features").

Source: both moments released together for least squares, Wang (2018), "Revisiting differentially
private linear regression: optimal and adaptive prediction & estimation in unbounded domain"
(which gives each its own share of epsilon); of fixed features, Mehta et al. (2023),
"Differentially private image classification from features". The sensitivities are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import NoisyStatistics
from dpal.errors import ParameterError
from dpal.labels import UNKNOWN, Task
from dpal.mechanisms.gaussian import noisy_sum
from dpal.mechanisms.private_pca import clip_rows
from dpal.mechanisms.symmetric_noise import noisy_symmetric
from dpal.privacy import Adjacency
from dpal.randomness import BitSource

Floats = NDArray[np.float64]

CONSTANT = 0.2  # the last number of every u; its square is what it takes of a record's length
_KEPT = math.sqrt(1 - CONSTANT**2)


@dataclass(frozen=True, kw_only=True)
class HeadStatistics:
    """Which sums are made of records.

    Attributes:
      features: numbers of a record.
      classes: classes, or labels.
      task: what a label is.
      moments: whether u u^T is among them.
    """

    features: int
    classes: int
    task: Task
    moments: bool

    def __post_init__(self) -> None:
        check.at_least(1, features=self.features, classes=self.classes)
        if self.task is Task.MULTI_LABEL and not self.moments:
            raise ParameterError("sums of classes need records with one label each")

    @property
    def width(self) -> int:
        """Numbers of u: the features and the constant, which is the last."""
        return self.features + 1

    @property
    def coordinates(self) -> int:
        """Numbers that are released, each with noise of its own."""
        second = self.width * (self.width + 1) // 2 if self.moments else 0
        return second + self.width * self.classes

    @property
    def _centred(self) -> bool:
        """Whether class codes are taken around their mean: shorter by the root of 1 - 1/K."""
        return self.moments and self.task is Task.SINGLE_LABEL

    def codes(self, labels: NDArray[np.int64]) -> Floats:
        """Codes of labels, (n, classes), each row of length 1 at most.

        Args:
          labels: (n,) class numbers; or (n, classes) zeros and ones, -1 where not known, which adds
            nothing to its label's sum.
        """
        if self.task is Task.MULTI_LABEL:
            signs = np.where(labels == UNKNOWN, 0.0, 2.0 * labels - 1.0)
            return np.asarray(signs / math.sqrt(self.classes))
        one_hot = np.zeros((len(labels), self.classes))
        one_hot[np.arange(len(labels)), labels] = 1.0
        if not self._centred:
            return one_hot
        return (one_hot - 1 / self.classes) / math.sqrt(1 - 1 / self.classes)

    @property
    def _products(self) -> tuple[float, float]:
        """Least and greatest c = y.y' of two codes."""
        if self.task is Task.MULTI_LABEL:
            return -1.0, 1.0
        return (-1 / (self.classes - 1) if self._centred else 0.0), 1.0

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Most that one record changes all of it by, in Euclidean norm; derived above."""
        m = 1.0 if self.moments else 0.0
        if adjacency is Adjacency.ZERO_OUT:
            return math.sqrt(m + 1)
        least = -(_KEPT**2) + CONSTANT**2  # of t: opposite features, and the same constant

        def apart(t: float, c: float) -> float:
            return 2 * m * (1 - t**2) + 2 * (1 - t * c)

        return math.sqrt(
            max(
                apart(t, c)
                for c in self._products
                for t in (least, 1.0, min(1.0, max(least, -c / 2)))
            )
        )

    def nothing(self) -> HeadSums:
        """The sums over no record."""
        moments = np.zeros((self.width, self.width)) if self.moments else None
        return HeadSums(moments=moments, products=np.zeros((self.width, self.classes)))

    def of(self, batches: Iterable[tuple[Floats, NDArray[np.int64], Floats]]) -> HeadSums:
        """Adds up a stream of records; private until noise is added.

        Args:
          batches: of features (n, features), of any length and clipped here; of labels as `codes`
            takes them; and of each record's share (n,): 1, or one over the size of its group,
            whose records count together as one.

        Raises:
          ParameterError: features are of another number, or a share is above 1. Nothing was
            released.
        """
        sums = self.nothing()
        for rows, labels, shares in batches:
            if rows.ndim != 2 or rows.shape[1] != self.features:
                raise ParameterError.before_release(
                    f"features have shape {rows.shape}, and {self.features} of each record are "
                    "expected"
                )
            if not ((shares > 0) & (shares <= 1)).all():
                raise ParameterError.before_release("a record counts as more than one")
            vectors = with_constant(clip_rows(rows, 1.0))
            weighted = vectors * shares[:, None]
            sums.products[...] += weighted.T @ self.codes(labels)
            if sums.moments is not None:
                sums.moments[...] += weighted.T @ vectors
        return sums

    def release(
        self, sums: HeadSums, event: NoisyStatistics, *, adjacency: Adjacency, rng: BitSource
    ) -> HeadSums:
        """Adds noise to sums, which may leave then.

        Args:
          sums: of these statistics.
          event: how much noise, as it is charged.
          adjacency: of the promise; it decides the sensitivity.
          rng: source of the noise.
        """
        scale = event.noise_multiplier * self.sensitivity(adjacency)
        moments = sums.moments
        if moments is not None:
            moments = noisy_symmetric(moments, scale, rng=rng)
        flat = noisy_sum(sums.products.ravel(), scale, rng=rng)
        return HeadSums(
            moments=moments,
            products=flat.reshape(sums.products.shape),
            variance=scale**2,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadSums:
    """Sums over records. Private until noise is added.

    Attributes:
      moments: (width, width) sum of u u^T; None where it is not made.
      products: (width, classes) sum of u y^T.
      variance: of the noise in every coordinate; 0 where there is none yet.
    """

    moments: Floats | None
    products: Floats
    variance: float = 0.0

    def __repr__(self) -> str:
        return "HeadSums(private)" if not self.variance else f"HeadSums(noisy, {self.variance:g})"

    def plus(self, other: Self) -> Self:
        """Of both cohorts: sums add up, and so do variances."""
        moments = None
        if self.moments is not None and other.moments is not None:
            moments = self.moments + other.moments
        return replace(
            self,
            moments=moments,
            products=self.products + other.products,
            variance=self.variance + other.variance,
        )


def with_constant(features: Floats) -> Floats:
    """U of every row, (n, features + 1); of length 1 at most where the row is."""
    constant = np.full((len(features), 1), CONSTANT)
    return np.hstack([features * _KEPT, constant])
