"""Answers of a public model, which stand until so many teachers object that it shows through noise.

Counts of objecting teachers, their threshold and the noise on both are whole numbers, so that a
world is mapped to its neighbour by shifts of whole noise and nothing is lost to rounding.

Source: docs/guarantee.md; `dpal.accounting.votes.public_consensus`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.public_consensus import PublicConsensus, require_consensus
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataError
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.randomness import BitSource
from dpal.voting.ballots import Choices, require_fitting
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, release

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsensusRelease:
    """What was released.

    Attributes:
      released: the answers; queries from `reached` on are UNANSWERED.
      reached: how many queries were looked at; public.
      objections: on how many of them the teachers answered; public.
    """

    released: Released
    reached: int
    objections: int


def release_by_consensus(
    rule: VotingRule,
    ballots: Choices,
    public: Rows,
    consensus: PublicConsensus,
    *,
    rng: BitSource,
) -> ConsensusRelease:
    """Answers queries in order, until the teachers objected as often as is paid for.

    Args:
      rule: by which the teachers answer where they object.
      ballots: of every teacher on every query, in the order of asking.
      public: (queries,) classes that a public model names; a function of public records alone.
      consensus: when they object, and how often at most.
      rng: source of the noise.

    Raises:
      DataError: the public answers are not one class for each query. Nothing was drawn.
      ParameterError: the rule is no plurality of classes, or nobody could object.
    """
    require_fitting(rule, ballots)
    require_consensus(rule, consensus)
    classes = public.size and not 0 <= public.min() <= public.max() < rule.labels
    if public.shape != (ballots.queries,) or classes:
        raise DataError.before_release(
            "a public model answers every query that teachers vote on with one of their classes"
        )
    objecting = (ballots.chosen != public[:, None]).sum(axis=1)
    stops = objections_to(objecting, consensus, rng=rng)
    full = len(stops) == consensus.objections
    reached = int(stops[-1]) + 1 if full else ballots.queries
    labels = np.where(np.arange(ballots.queries) < reached, public, UNANSWERED)
    if len(stops):
        asked = Choices(ballots.chosen[stops], ballots.classes)
        labels[stops] = release(rule, asked, rng=rng).labels
    return ConsensusRelease(
        released=Released(labels.astype(np.int64)), reached=reached, objections=len(stops)
    )


def objections_to(objecting: Rows, consensus: PublicConsensus, *, rng: BitSource) -> Rows:
    """Which queries are above a noisy threshold, in order, until there are enough of them.

    Args:
      objecting: (queries,) how many teachers name another class than the public answer.
      consensus: threshold, noise, and how many are enough.
      rng: source of the noise.

    Returns:
      (n,) their places, ascending; at most `consensus.objections`.
    """
    # Every query is compared once, with the threshold of its run: noise of its own for each.
    noisy = objecting + laplace_noise(
        objecting.size, consensus.query_epsilon, rng=rng, sensitivity=1
    )
    # Drawn anew for every run: one that an objection was told of is known better than before.
    thresholds = consensus.threshold + laplace_noise(
        consensus.objections, consensus.threshold_epsilon, rng=rng, sensitivity=1
    )
    stops: list[int] = []
    start = 0
    for threshold in thresholds:
        above = np.flatnonzero(noisy[start:] >= threshold)
        if not above.size:
            break
        stops.append(start + int(above[0]))
        start = stops[-1] + 1
    return np.array(stops, dtype=np.int64)
