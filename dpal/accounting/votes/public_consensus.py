"""A public model answers, and teachers where enough of them object to its answer.

On each query it is counted how many teachers name another class than the public answer: one ballot
that is replaced moves that by one at most. AboveThreshold says where it is above a threshold, and
starts again after each such objection.

Source: Dwork & Roth (2014), "The algorithmic foundations of differential privacy", Algorithm 1;
Lyu, Su & Li (2017), "Understanding the sparse vector technique", Sec. 4, for how epsilon is split
where counts may move either way; docs/guarantee.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpal import check
from dpal.accounting.events import Event, SparseVector
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS
from dpal.accounting.votes.mechanisms import MOST_OBJECTIONS, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError

_NEGLIGIBLE = 40.0  # noise is beyond with a chance of exp of its negative
_WHOLE = 1 << 20  # epsilons that are drawn are whole multiples of its inverse
_OF_THRESHOLD = 1 / (1 + 2 ** (2 / 3))  # share of epsilon


@dataclass(frozen=True, kw_only=True)
class PublicConsensus:
    """When the answer of a public model stands.

    Attributes:
      epsilon: largest loss of one run of AboveThreshold, up to an objection.
      objections: after so many of them nothing more is answered.
      threshold: teachers that name another class, from which on they object; before noise.
    """

    epsilon: float
    objections: int
    threshold: int

    def __post_init__(self) -> None:
        check.within(*PURE_EPSILONS, epsilon=self.epsilon)
        check.within(1, MOST_OBJECTIONS, objections=self.objections)
        check.at_least(1, threshold=self.threshold)
        if self.query_epsilon <= 0:
            raise ParameterError.before_release(
                f"epsilon {self.epsilon:g} of an objection is too small to be drawn"
            )

    @property
    def threshold_epsilon(self) -> float:
        """By which the threshold is noisy: a shift by one vote costs that much."""
        return math.floor(self.epsilon * _OF_THRESHOLD * _WHOLE) / _WHOLE

    @property
    def query_epsilon(self) -> float:
        """By which each count is noisy, for a shift by one vote.

        A count and the threshold may move apart by two votes, which costs the rest of epsilon.
        """
        return math.floor((self.epsilon - self.threshold_epsilon) / 2 * _WHOLE) / _WHOLE

    @property
    def mean_noise(self) -> float:
        """Root of the mean square of the noise between a count and its threshold, in votes."""
        weights = [math.exp(-self.threshold_epsilon), math.exp(-self.query_epsilon)]
        return math.sqrt(sum(2 * weight / (1 - weight) ** 2 for weight in weights))

    @property
    def false_objection_probability(self) -> float:
        """Chance that noise alone objects to a query to which no teacher does; public."""
        first, second = self.threshold_epsilon, self.query_epsilon
        reach = math.ceil(_NEGLIGIBLE / first)
        noise = np.arange(-reach, reach + 1)
        chances = math.tanh(first / 2) * np.exp(-first * np.abs(noise))
        needed = self.threshold + noise
        # Of a count's noise to be so large; below 0 it is what is left to 1.
        tail = np.exp(-second * np.where(needed > 0, needed, 1 - needed)) / (1 + math.exp(-second))
        return float(chances @ np.where(needed > 0, tail, 1 - tail))

    def events(self, rule: VotingRule) -> tuple[Event, ...]:
        """What queries are charged as, however many they are: answers to objections, and these."""
        told = SparseVector(stops=self.objections, epsilon=self.epsilon)
        return (*rule.events(self.objections), told)


def require_consensus(rule: VotingRule, consensus: PublicConsensus) -> None:
    """Requires teachers who name one class each and answer whenever they object.

    Raises:
      ParameterError: they do not, or they could never object.
    """
    if rule.mechanism is not Mechanism.GNMAX or rule.confidence is not None or rule.counts:
        raise ParameterError.before_release(
            "teachers object to a public model's class, and answer by gnmax voting without a "
            "threshold; leave voting.mechanism, threshold, answer_from and release out, or "
            "voting.objections"
        )
    if consensus.threshold > rule.teachers:
        raise ParameterError.before_release(
            f"{rule.teachers} teachers cannot object {consensus.threshold} at a time; lower "
            "voting.object_from"
        )
