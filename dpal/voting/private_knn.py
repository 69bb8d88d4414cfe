"""privateKNN, a baseline: the nearest private records vote, of a fresh sample each time.

Every query draws a Poisson sample of the private records; the K nearest of it, in a *public*
embedding, vote with their label vectors, clipped and with noise. A record that was not sampled
has no say, which amplifies: a query is one step of a subsampled Gaussian mechanism. Blanking
a record lets the next neighbour in, so what moves is one ballot replaced by another.

Source: Zhu et al. (2020), "Private-kNN"; its published code samples with replacement and
accounts for Poisson, and clips positives only; here both are as charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import PhaseExposure
from dpal.accounting.votes.mechanisms import PLURALITY
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.mechanisms.poisson_sampling import include
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots
from dpal.voting.draw_noisy_outcomes import Released, noisy_answers

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """How private records vote.

    Attributes:
      rule: `teachers` is K, the number of neighbours.
      sample_rate: chance that a record takes part in a query.
    """

    rule: VotingRule
    sample_rate: float

    def __post_init__(self) -> None:
        check.within(0, 1, sample_rate=self.sample_rate)
        if self.rule.mechanism in PLURALITY or self.rule.confidence is not None:
            raise ParameterError("neighbours vote yes or no on each label, without a check")

    def event(self, queries: int) -> PhaseExposure:
        """What so many queries are charged as."""
        sensitivity = math.sqrt(2 * self.rule.squared_l2_sensitivity)
        return PhaseExposure(
            steps=queries,
            sample_rate=self.sample_rate,
            noise_multiplier=self.rule.answer_sigma / sensitivity,
        )


def ask_neighbours(
    neighbours: Neighbours,
    private: Floats,
    labels: NDArray[np.integer],
    queries: Floats,
    *,
    rng: BitSource,
) -> Released:
    """Answers queries by their nearest private records. Whoever publishes it pays first.

    Args:
      neighbours: how they vote.
      private: (n, d) public embeddings of private records.
      labels: (n, k) zeros and ones.
      queries: (q, d) embeddings of public records.
      rng: source of samples and noise.

    Raises:
      ParameterError: shapes do not belong together.
    """
    rule = neighbours.rule
    if private.shape[1:] != queries.shape[1:] or labels.shape != (len(private), rule.labels):
        raise ParameterError("private records, their labels and queries do not belong together")
    squares = (private**2).sum(axis=1)
    counts = np.zeros((len(queries), rule.labels))
    for row, query in enumerate(queries):
        # Of all records, sampled or not: the last bits of a product depend on where a row
        # stands, and a record that is left out may not change which of two equal ones is nearer.
        apart = squares - 2 * private @ query
        sampled = include(len(private), neighbours.sample_rate, rng=rng)
        nearest = sampled[np.argsort(apart[sampled], kind="stable")[: rule.teachers]]
        ballots = np.zeros((1, rule.teachers, rule.labels), dtype=np.uint8)
        ballots[0, : nearest.size] = labels[nearest]  # with fewer, the rest say no to all
        counts[row] = Ballots.of(ballots).counts(rule)[0]
    return Released(noisy_answers(rule, counts, rng=rng))
