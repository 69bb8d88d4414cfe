"""NearPrivate: public records that private ones lie near to, by a noisy vote.

Every private record that the model is unsure of votes for the one public candidate nearest to
it; the counts of all candidates are released with noise. What decides whether a record votes is
a public number, so that no record's vote depends on another record. (The paper lets the k most
uncertain private records vote: zeroing one lets another in, two counts move, and Laplace noise
of scale 1 / epsilon does not cover that. `Voters.TOP_K` does it, charged for two counts.)

Source: Zhao, Papernot, Singh, Polyzotis & Odena (2019), "Improving differentially private
models with active learning", Algorithm 2. Correction: docs/public-data.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from dpal.acquisition.highest_of_stream import HighestOfStream
from dpal.acquisition.principal_projection import Projection
from dpal.acquisition.public_choice import (
    LEAST,
    Candidates,
    ChosenRecords,
    ModelOutputs,
    uncertainty,
)
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import Uncertainty, Voters

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Poll:
    """Whom private records may vote for, and who may vote. All of it is public or released.

    Attributes:
      candidates: the public records.
      projection: onto the released components.
      kind: of uncertainty.
      voters: who votes.
      task: what logits mean.
    """

    candidates: Candidates
    projection: Projection
    kind: Uncertainty
    voters: Voters
    task: Task

    @property
    def threshold(self) -> float:
        """The uncertainty of the least uncertain candidate: from there on a record votes."""
        return float(self.candidates.uncertainty[-1])


def count_votes(poll: Poll, seen: Iterable[ModelOutputs]) -> Rows:
    """Counts the votes of private records. The counts are private; noise comes next.

    Args:
      poll: whom they may vote for.
      seen: batches of private records.

    Returns:
      (candidates,) votes. A record gives one vote or none; one for which the model gives
      anything not finite gives none.
    """
    size = poll.candidates.rows.size
    points = poll.projection(poll.candidates.embeddings)
    index = NearestNeighbors(n_neighbors=1).fit(np.where(np.isfinite(points), points, 0.0))
    counts = np.zeros(size, dtype=np.int64)
    best = HighestOfStream(size)
    for batch in seen:
        unsure = uncertainty(batch.logits, poll.kind, task=poll.task)
        own = poll.projection(batch.embeddings)
        sound = np.isfinite(own).all(axis=1) & (unsure > LEAST)
        if poll.voters is Voters.THRESHOLD:
            sound &= unsure >= poll.threshold
        # All rows of the batch are asked, whoever votes: its shape is public. With the voters
        # alone, distances could round differently with their number, and a near tie of one record
        # would depend on another one.
        asked = np.where(np.isfinite(own), own, 0.0)
        nearest = index.kneighbors(asked, return_distance=False)[:, 0].astype(np.int64)
        votes = nearest[sound]
        if poll.voters is Voters.THRESHOLD:
            counts += np.bincount(votes, minlength=size)
        else:
            # Of equally uncertain records the one with the lower row number votes.
            best.offer(unsure[sound], -batch.rows[sound], votes)
    if kept := best.columns():
        counts += np.bincount(kept[-1], minlength=size)
    return counts


def choose_supported(rows: Rows, support: Floats, count: int) -> ChosenRecords:
    """Takes the candidates with most noisy support: post-processing.

    Args:
      rows: (candidates,) row numbers of the public records.
      support: (candidates,) released noisy counts, in the same order.
      count: records to choose.

    Raises:
      ParameterError: there are fewer candidates, or another number of counts.
    """
    if support.shape != rows.shape or count > support.size:
        raise ParameterError(
            f"{count:,} records are to be chosen of {rows.size:,} candidates with "
            f"{support.size:,} counts; set choice.candidates above choice.labels"
        )
    return ChosenRecords(rows[np.lexsort((rows, -support))[:count]])
