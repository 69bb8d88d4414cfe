"""Which mechanism to choose for labels like these, and why.

Statistics come from public labeled records, or from a noisy summary of the ballots that was
paid for; never from the ballots themselves. The numbers are estimates: they choose settings,
and prove nothing.

Source: the rule of thumb 2 tau^2 < k is Dziedzic et al. (2022), Sec. 4, with the sensitivity of
0/1 ballots; consensus against noise: docs/voting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.cost_analysis import queries_within
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule, powers_of_two
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import noisy_sum
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots

WRONG = 0.01  # chance that noise turns a typical vote, at which mechanisms are compared
_COVERED = 0.95  # share of ballots that a limit leaves as they are


@dataclass(frozen=True, kw_only=True)
class LabelStatistics:
    """What is known about labels.

    Attributes:
      labels: how many there are.
      sizes: chance of a record (or ballot) to have at most 1, 2, 4, 8, ... labels.
      consensus: share of teachers on the majority's side of a typical label.
      joint: entropy of label sets over the sum of the labels' own, from 0 (one follows from
        another) to 1 (independent); None where it is not known.
      source: where that is from.
    """

    labels: int
    sizes: tuple[float, ...]
    consensus: float
    joint: float | None
    source: str

    @property
    def limit(self) -> int:
        """Labels that nearly all ballots keep to, a power of two or all."""
        for power, share in enumerate(self.sizes):
            if share >= _COVERED:
                return min(self.labels, 1 << power)
        return self.labels


@dataclass(frozen=True, kw_only=True)
class Option:
    """One mechanism with the noise that it stands, and what that buys."""

    rule: VotingRule
    queries: int
    why: str


def from_public(labels: NDArray[np.integer], *, consensus: float) -> LabelStatistics:
    """Statistics of public labeled records.

    Args:
      labels: (n, k) zeros and ones.
      consensus: that is expected of the teachers, above one half.
    """
    if labels.ndim != 2 or not len(labels):
        raise ParameterError("public labels must be (records, labels) zeros and ones")
    check.inside(0.5, 1, consensus=consensus)
    size = labels.sum(axis=1)
    rates = labels.mean(axis=0)
    _, many = np.unique(labels, axis=0, return_counts=True)
    alone = float(_entropy(np.stack([rates, 1 - rates])).sum())
    together = float(_entropy(many / len(labels)).sum())
    return LabelStatistics(
        labels=labels.shape[1],
        sizes=tuple(float((size <= most).mean()) for most in powers_of_two(labels.shape[1])),
        consensus=consensus,
        joint=min(1.0, together / alone) if alone else 0.0,
        source="public labels",
    )


def noisy_summary(ballots: Ballots, sigma: float, *, rng: BitSource) -> LabelStatistics:
    """A summary of ballots with noise, charged as `summary_event`. Whoever keeps it pays.

    Each teacher adds shares of its own ballots, between 0 and 1, for each size; and one
    number, the average share of teachers that agree, which its ballots move by 1 at most
    when it is counted in teachers.
    """
    sizes = np.zeros(len(powers_of_two(ballots.labels)))
    agree = 0.0
    for part in ballots.parts():
        votes = part.unpacked()
        size = votes.sum(axis=2, dtype=np.int64)
        sizes += [float((size <= most).sum()) for most in powers_of_two(ballots.labels)]
        yes = votes.sum(axis=1, dtype=np.int64)
        agree += float(np.maximum(yes, ballots.teachers - yes).mean(axis=1).sum())
    exact = np.append(sizes, agree) / max(1, ballots.queries)
    noisy = noisy_sum(exact, sigma, rng=rng) / ballots.teachers
    # At least monotone and within bounds: what is released may be tidied for free.
    shares = np.maximum.accumulate(np.clip(noisy[:-1], 0, 1))
    return LabelStatistics(
        labels=ballots.labels,
        sizes=tuple(float(share) for share in shares),
        consensus=float(np.clip(noisy[-1], 0.51, 0.99)),
        joint=None,
        source="a paid-for summary of the ballots",
    )


def options(
    statistics: LabelStatistics, *, teachers: int, epsilon: float, delta: float
) -> list[Option]:
    """All mechanisms with as much noise as typical votes stand, the one to choose first."""
    lead = (2 * statistics.consensus - 1) * teachers
    # Noise turns a vote that leads by so much with the chance WRONG.
    sigma = max(0.1, lead / (math.sqrt(2) * float(-scipy.special.ndtri(WRONG))))
    binary = VotingRule(
        mechanism=Mechanism.BINARY,
        teachers=teachers,
        labels=statistics.labels,
        sigma=sigma,
    )
    limit = statistics.limit
    candidates = [_option(binary, "one answer for each label", epsilon, delta)]
    if limit < statistics.labels:
        candidates.append(_truncated(binary, limit, epsilon, delta))
        candidates.append(_scaled(binary, limit, epsilon, delta))
    if statistics.labels <= 62:
        candidates.append(_sets(binary, statistics, epsilon, delta))
    return sorted(candidates, key=lambda option: -option.queries)


def _option(rule: VotingRule, why: str, epsilon: float, delta: float) -> Option:
    return Option(rule=rule, why=why, queries=queries_within(rule, epsilon=epsilon, delta=delta))


def _truncated(binary: VotingRule, limit: int, epsilon: float, delta: float) -> Option:
    rule = replace(binary, mechanism=Mechanism.TOP_M, limit=limit)
    helps = 2 * limit < rule.labels
    why = (
        f"nearly all have at most {limit} labels, and 2 x {limit} < {rule.labels}"
        if helps
        else f"2 x {limit} is not below {rule.labels} labels: no gain over binary"
    )
    return _option(rule, why, epsilon, delta)


def _scaled(binary: VotingRule, limit: int, epsilon: float, delta: float) -> Option:
    tau = math.sqrt(limit)
    rule = replace(binary, mechanism=Mechanism.TAU_L2, limit=tau)
    sign = "<" if 2 * tau**2 < rule.labels else "is not below"
    why = f"2 tau^2 = {2 * tau**2:g} {sign} {rule.labels}; top_m is charged by its answers, too"
    return _option(rule, why, epsilon, delta)


def _sets(binary: VotingRule, statistics: LabelStatistics, epsilon: float, delta: float) -> Option:
    """The winning set needs whole ballots to agree."""
    limit = statistics.limit if statistics.limit < statistics.labels else None
    joint = 1.0 if statistics.joint is None else statistics.joint
    whole = statistics.consensus ** (statistics.labels * max(joint, 1 / statistics.labels))
    rule = replace(binary, mechanism=Mechanism.POWERSET, limit=limit)
    # Ahead of the best of all empty sets, not of one.
    spread = math.sqrt(2 * math.log(rule.classes)) + float(-scipy.special.ndtri(WRONG))
    rule = replace(rule, sigma=max(0.1, whole * rule.teachers / spread)).charged(by_answers=True)
    hang = "correlated" if joint < 0.7 else "nearly independent"
    told = "taken as independent" if statistics.joint is None else f"are {hang}"
    why = f"about {whole:.0%} cast the very same set (labels {told})"
    return _option(rule, why, epsilon, delta)


def _entropy(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(chances, where=chances > 0, out=np.zeros_like(chances))
    return -chances * logs
