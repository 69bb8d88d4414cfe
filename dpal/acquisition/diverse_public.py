"""DiversePublic: uncertain public records, spread over groups of similar ones.

Free: the model is released, the records are public, and nothing else is read.

Source: Zhao, Papernot, Singh, Polyzotis & Odena (2019), "Improving differentially private
models with active learning", Algorithm 1. How short and empty clusters are filled up, and how
ties are broken, is ours: the paper does not say.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.exceptions import ConvergenceWarning

from dpal.acquisition.principal_projection import Projection
from dpal.acquisition.public_choice import Candidates, ChosenRecords, ModelOutputs, most_uncertain
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import ChoiceSpec
from dpal.randomness import seeded

Floats = NDArray[np.float64]

_WHOLE = 20_000  # candidates up to which k-means reads all of them in every round
_MINI_BATCH = 4096


def choose_diverse(seen: Iterable[ModelOutputs], spec: ChoiceSpec, *, task: Task) -> ChosenRecords:
    """Chooses public records by Algorithm 1, in one pass over them.

    Args:
      seen: batches of all public records in the order of the file.
      spec: how many candidates, components, clusters, and records of each.
      task: what logits mean.

    Raises:
      ParameterError: there are fewer public records than candidates, or embeddings are narrower
        than the number of components.
    """
    pca = _Pca(spec.components)
    candidates = most_uncertain(pca.watch(seen), spec.candidates, spec.uncertainty, task=task)
    return spread_out(candidates, pca.projection(), spec)


def spread_out(candidates: Candidates, projection: Projection, spec: ChoiceSpec) -> ChosenRecords:
    """Takes the records nearest to the centre of each cluster of the projected candidates.

    A cluster with too few members gives all it has; what is missing is taken from the others in
    turns, always the nearest to a centre that is left. Equally near ones go by row number.
    """
    points = projection(_finite(candidates.embeddings))
    labels, centres = _clusters(points, spec)
    distance = np.linalg.norm(points - centres[labels], axis=1)
    order = np.lexsort((candidates.rows, distance, labels))
    rank = np.empty(order.size, dtype=np.int64)
    sizes = np.bincount(labels, minlength=len(centres))
    rank[order] = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # By rank first: where every cluster has enough, this is N_each of each.
    chosen = np.lexsort((candidates.rows, distance, rank))[: spec.labels]
    return ChosenRecords(candidates.rows[chosen], labels[chosen].astype(np.int64), rank[chosen])


class _Pca:
    """Principal components of a stream, found while it passes by."""

    def __init__(self, components: int) -> None:
        self._components = components
        self._pca = IncrementalPCA(n_components=components)
        self._waiting: list[Floats] = []

    def watch(self, seen: Iterable[ModelOutputs]) -> Iterator[ModelOutputs]:
        for batch in seen:
            width = batch.embeddings.shape[1]
            if width < self._components:
                raise ParameterError(
                    f"{self._components} components of embeddings that are {width} wide are "
                    f"impossible; set choice.components to at most {width}"
                )
            sound = np.isfinite(batch.embeddings).all(axis=1)
            self._waiting.append(batch.embeddings[sound])
            if sum(map(len, self._waiting)) >= max(2 * self._components, 2):
                self._pca.partial_fit(np.concatenate(self._waiting))
                self._waiting = []
            yield batch

    def projection(self) -> Projection:
        left = np.concatenate(self._waiting) if self._waiting else np.empty((0, 0))
        # The last few rows alone may be fewer than the components: they are left out then.
        if len(left) >= self._components:
            self._pca.partial_fit(left)
        if not hasattr(self._pca, "components_"):
            raise ParameterError(
                f"there are too few public records for {self._components} components; lower "
                "choice.components"
            )
        return Projection(np.asarray(self._pca.mean_), np.asarray(self._pca.components_))


def _clusters(points: Floats, spec: ChoiceSpec) -> tuple[NDArray[np.int64], Floats]:
    """Which cluster each point is in, and the centres; repeatable, as all of it is public."""
    start = int(seeded(spec.seed, "clusters of public records").integers(2**31))
    if len(points) <= _WHOLE:
        means = KMeans(spec.clusters, n_init=1, random_state=start)
    else:
        means = MiniBatchKMeans(spec.clusters, n_init=3, batch_size=_MINI_BATCH, random_state=start)
    with warnings.catch_warnings():
        # Fewer distinct points than clusters: some stay empty, and others fill up for them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = np.asarray(means.fit_predict(points), dtype=np.int64)
    return labels, np.asarray(means.cluster_centers_, dtype=np.float64)


def _finite(points: Floats) -> Floats:
    """Broken embeddings, which only a pool of little else lets through, become zeros."""
    return np.where(np.isfinite(points), points, 0.0)
