"""Scores that spread a batch: records are ranked among their like, and every stratum takes part.

The most uncertain records of a pool are often alike. Here each record is in a stratum: the class
that the model predicts for it, or the cluster of its embedding. Public records say how many of
the pool lie above it within its stratum, and a record is wanted the more, the fewer these are. A
threshold on that takes about as many of every stratum, and all of the small ones: diversity, or
balance, without anybody competing. It is one function of a single record, of released models and of
public records; so nothing of the account changes, and its range is [0, 1].

Source: batches by rounds over clusters: Citovsky et al. (2021), "Batch active learning at scale".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from dpal.errors import ParameterError

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_CLUSTERS = 20  # at most, and no fewer than so many public records in each on average:
_LEAST_OF_A_CLUSTER = 25


class StratumKind(StrEnum):
    """What puts a record into a stratum."""

    PREDICTED_CLASS = "predicted_class"
    CLUSTER = "cluster"


@dataclass(frozen=True, eq=False)
class Strata:
    """What public records say of each stratum.

    Attributes:
      kind: what puts a record into one.
      width: of the range of scores before they are ranked.
      scores: by stratum, the public records' scores, ascending.
      centres: (strata, embedding width) of clusters; None for predicted classes.
    """

    kind: StratumKind
    width: float
    scores: tuple[Floats, ...]
    centres: Floats | None

    def ranked(self, scores: Floats, probabilities: Floats, embeddings: Floats | None) -> Floats:
        """How much each record is wanted, shape (n,), in [0, 1].

        Args:
          scores: (n,) in [0, width].
          probabilities: (n, classes) or (passes, n, classes) of the same model.
          embeddings: (n, embedding width) of the same model; None where nobody asks for them.

        Returns:
          1 - (public records of its stratum that lie above it) / (those of the largest stratum).
          Between two public records it falls in a straight line. 0 for a record of which the
          model says anything not finite.
        """
        places, sound = self._places(probabilities, embeddings)
        largest = max(1, *(known.size for known in self.scores))
        above = np.zeros(scores.size)
        for stratum, known in enumerate(self.scores):
            here = places == stratum
            knots = np.concatenate([[0.0], known, [self.width]])
            below = np.arange(knots.size) / (knots.size - 1)
            above[here] = known.size * (1 - np.interp(scores[here], knots, below))
        return np.where(sound, np.clip(1 - above / largest, 0.0, 1.0), 0.0)

    def _places(
        self, probabilities: Floats, embeddings: Floats | None
    ) -> tuple[Places, NDArray[np.bool_]]:
        """The stratum of each record, and whether the model's answer is finite."""
        means = probabilities if probabilities.ndim == 2 else probabilities.mean(axis=0)
        sound = np.asarray(np.isfinite(means).all(axis=1), dtype=np.bool_)
        if self.centres is None:
            return np.where(sound[:, None], means, 0.0).argmax(axis=1), sound
        if embeddings is None:
            raise ParameterError("records are ranked within clusters of embeddings; give them")
        sound &= np.isfinite(embeddings).all(axis=1)
        return _nearest(np.where(sound[:, None], embeddings, 0.0), self.centres), sound

    def to_bytes(self) -> bytes:
        """For whoever scores elsewhere, as safetensors; nothing of it is private."""
        sizes = np.array([known.size for known in self.scores], dtype=np.int64)
        tensors = {"sizes": sizes, "scores": np.concatenate([*self.scores, np.empty(0)])}
        if self.centres is not None:
            tensors["centres"] = np.ascontiguousarray(self.centres)
        tensors["width"] = np.array([self.width])
        return save(tensors, metadata={"kind": self.kind.value})

    @classmethod
    def from_bytes(cls, content: bytes) -> Strata:
        """Reads what `to_bytes` wrote."""
        tensors = load(content)
        bounds = np.cumsum(tensors["sizes"])[:-1]
        centres = tensors.get("centres")
        return cls(
            StratumKind.PREDICTED_CLASS if centres is None else StratumKind.CLUSTER,
            float(tensors["width"][0]),
            tuple(np.split(tensors["scores"], bounds)),
            centres,
        )


def strata_of(
    kind: StratumKind,
    scores: Floats,
    probabilities: Floats,
    embeddings: Floats | None,
    *,
    width: float,
) -> Strata:
    """Divides public records into strata.

    Args:
      kind: what puts a record into one.
      scores: (m,) of public records, in [0, width].
      probabilities: (m, classes) or (passes, m, classes).
      embeddings: (m, embedding width); for clusters.
      width: of the range of scores.

    Raises:
      ParameterError: clusters are asked for, and there are no embeddings.
    """
    centres = None
    strata = int(probabilities.shape[-1])
    if kind is StratumKind.CLUSTER:
        centres = _centres(embeddings)
        strata = len(centres)
    divided = Strata(kind, width, (np.empty(0),) * strata, centres)
    places, sound = divided._places(probabilities, embeddings)
    known = tuple(np.sort(scores[sound & (places == stratum)]) for stratum in range(strata))
    return Strata(kind, width, known, centres)


def _centres(embeddings: Floats | None) -> Floats:
    """Centres of clusters of public embeddings: the same for the same records."""
    from sklearn.cluster import KMeans

    if embeddings is None:
        raise ParameterError("records are ranked within clusters of embeddings; give them")
    sound = embeddings[np.isfinite(embeddings).all(axis=1)]
    clusters = max(1, min(_CLUSTERS, len(sound) // _LEAST_OF_A_CLUSTER))
    if not len(sound):
        return np.zeros((1, embeddings.shape[1]))
    fitted = KMeans(n_clusters=clusters, n_init=3, random_state=0).fit(sound)
    return np.asarray(fitted.cluster_centers_, dtype=np.float64)


def _nearest(embeddings: Floats, centres: Floats) -> Places:
    """The nearest centre of each row; every row by itself, whatever the others are."""
    distances = np.stack([((embeddings - centre) ** 2).sum(axis=1) for centre in centres])
    return np.asarray(distances.argmin(axis=0), dtype=np.int64)
