"""Draws what a query releases, exactly by the law that is charged.

A yes-or-no answer is drawn by its chance, which is what noise on both counts comes to; a
plurality is drawn with noise on every cast bin, and one answer to whether any of all the empty
ones is above the best of them. Chances and noise are exact, however small a chance is
(`dpal.mechanisms.coins`, `dpal.mechanisms.gaussian`).

Source: docs/voting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.mechanisms.coins import below, normal_below
from dpal.mechanisms.gaussian import STEPS, noisy_sum, on_grid
from dpal.mechanisms.poisson_sampling import uniform_below
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, Cast, Choices, Codes, require_fitting

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

UNANSWERED = -1


@dataclass(frozen=True, eq=False)
class Released:
    """What was released; public from here on.

    Attributes:
      labels: (queries, labels) 0, 1 or UNANSWERED; for `gnmax` (queries,) class numbers or
        UNANSWERED.
      counts: (queries, labels or classes) noisy votes, in votes; None where answers alone leave.
    """

    labels: NDArray[np.int8] | NDArray[np.int64]
    counts: Floats | None = None

    @property
    def answered(self) -> float:
        """Share of labels that were answered."""
        return float((self.labels != UNANSWERED).mean()) if self.labels.size else 0.0


def release(rule: VotingRule, ballots: Ballots | Choices, *, rng: BitSource) -> Released:
    """Answers every query. Whoever publishes it pays first.

    Args:
      rule: how.
      ballots: of every teacher on every query.
      rng: source of the noise.

    Raises:
      DataError: the ballots are not of the rule's teachers and labels. Nothing was drawn.
    """
    require_fitting(rule, ballots)
    if rule.counts:
        return _noisy_counts(rule, ballots.counts(rule), rng)
    if isinstance(ballots, Choices):
        return Released(_winners(rule, ballots, rng))
    if rule.mechanism is Mechanism.POWERSET:
        return Released(_sets(rule, ballots, rng))
    return Released(noisy_answers(rule, ballots.counts(rule), rng=rng))


def noisy_answers(rule: VotingRule, counts: Floats, *, rng: BitSource) -> Labels:
    """Yes-or-no answers of (queries, labels) counts of yes, each drawn by its chance."""
    spread = math.sqrt(2) * rule.answer_sigma
    yes = normal_below((2 * counts.ravel() - rule.teachers) / spread, rng=rng)
    said = yes.astype(np.int8)
    if rule.confidence is not None:
        largest = np.maximum(counts, rule.teachers - counts).ravel()
        said[~_passes(rule.confidence, largest, rng)] = UNANSWERED
    return np.asarray(said.reshape(counts.shape))


def _noisy_counts(rule: VotingRule, counts: Floats, rng: BitSource) -> Released:
    """Every count with noise of its own, and the answers that anybody reads off them."""
    noisy = noisy_sum(counts.ravel(), rule.sigma, rng=rng).reshape(counts.shape)
    if rule.mechanism is Mechanism.GNMAX:
        return Released(noisy.argmax(axis=1), noisy)
    return Released((2 * noisy > rule.teachers).astype(np.int8), noisy)


def winning_sets(rule: VotingRule, cast: Cast, *, rng: BitSource) -> tuple[Codes, Floats]:
    """The set in front, noise on all of them, in time and memory of the cast ones.

    None of the M = classes - cast empty sets is above the best cast one, at x standard
    deviations, with chance Phi(x)^M; if one is, which it is, is uniform.

    Returns:
      (queries,) sets as numbers, and the largest count of each query.
    """
    queries, width = cast.votes.shape
    counts = cast.votes.ravel().astype(np.float64)
    noisy = on_grid(counts, rule.sigma, rng=rng)[0].reshape(queries, width)
    noisy[cast.votes == 0] = -np.inf
    best = _highest(noisy, rng)
    rows = np.arange(queries)
    codes = cast.codes[rows, best].copy()
    empty = rule.classes - (cast.votes > 0).sum(axis=1)
    ahead = ~_above_all(noisy[rows, best], empty, rng)
    if ahead.any():
        used = cast.codes[ahead], cast.votes[ahead] > 0
        codes[ahead] = _unused(rule, *used, rng)
    return codes, cast.votes.max(axis=1).astype(np.float64)


def _sets(rule: VotingRule, ballots: Ballots, rng: BitSource) -> Labels:
    codes, largest = winning_sets(rule, ballots.sets(rule), rng=rng)
    places = np.arange(rule.labels - 1, -1, -1, dtype=np.uint64)
    labels = ((codes[:, None] >> places) & np.uint64(1)).astype(np.int8)
    if rule.confidence is not None:
        labels[~_passes(rule.confidence, largest, rng)] = UNANSWERED
    return labels


def _winners(rule: VotingRule, choices: Choices, rng: BitSource) -> NDArray[np.int64]:
    counts = choices.counts(rule)
    noisy, _ = on_grid(counts.ravel(), rule.sigma, rng=rng)
    winners = noisy.reshape(counts.shape).argmax(axis=1)
    if rule.confidence is not None:
        winners[~_passes(rule.confidence, counts.max(axis=1), rng)] = UNANSWERED
    return np.asarray(winners)


def _highest(noisy: Floats, rng: BitSource) -> NDArray[np.intp]:
    """The column of each row's highest value; any of them, evenly, where several are equal."""
    best = noisy.argmax(axis=1)
    equal = noisy == noisy[np.arange(len(noisy)), best][:, None]
    for row in np.flatnonzero(equal.sum(axis=1) > 1):
        tied = np.flatnonzero(equal[row])
        drawn = uniform_below(np.array([tied.size], dtype=np.uint64), rng=rng)
        best[row] = tied[int(drawn[0])]
    return np.asarray(best)


def _above_all(steps: Floats, empty: NDArray[np.int64], rng: BitSource) -> NDArray[np.bool_]:
    """Whether noisy counts, in grid steps, are above the noise of so many empty sets each.

    An empty set may have the very same step. Then both are as likely to be in front as if they
    were compared to their last bit: the chance is the mean of Phi^M over the step.
    """
    chances = np.exp(empty * scipy.special.log_ndtr((steps + 0.5) / STEPS))

    def exact(index: int) -> Any:
        from mpmath import mp

        more = int(empty[index]) + 1
        with mp.extraprec(256):  # both ends agree in the first hundred bits
            low, high = (mp.ncdf(mp.mpf(int(steps[index]) + end) / STEPS) for end in (0, 1))
            mean = (mp.power(high, more) - mp.power(low, more)) / (more * (high - low))
        return +mean

    return below(chances, exact, rng=rng)


def _unused(rule: VotingRule, codes: Codes, used: NDArray[np.bool_], rng: BitSource) -> Codes:
    """A uniform set that nobody cast, for each row: drawn again until it is one."""
    unused = np.zeros(len(codes), dtype=np.uint64)
    open_rows = np.arange(len(codes))
    while open_rows.size:
        drawn = _any_set(rule, open_rows.size, rng)
        taken = ((codes[open_rows] == drawn[:, None]) & used[open_rows]).any(axis=1)
        unused[open_rows[~taken]] = drawn[~taken]
        open_rows = open_rows[taken]
    return unused


def _any_set(rule: VotingRule, count: int, rng: BitSource) -> Codes:
    """Uniform sets of labels, of at most `limit` of them where there is a limit."""
    if rule.limit is None:
        return rng.words(count) >> np.uint64(64 - rule.labels)
    sizes = np.array([math.comb(rule.labels, size) for size in range(int(rule.limit) + 1)])
    drawn = uniform_below(np.full(count, rule.classes, dtype=np.uint64), rng=rng)
    size = np.searchsorted(np.cumsum(sizes), drawn.astype(np.int64), side="right")
    order = np.argsort(rng.words(count * rule.labels).reshape(count, rule.labels), axis=1)
    places = np.uint64(1) << order.astype(np.uint64)
    places[np.arange(rule.labels) >= size[:, None]] = 0
    return np.asarray(places.sum(axis=1, dtype=np.uint64))


def _passes(check: Confidence, largest: Floats, rng: BitSource) -> NDArray[np.bool_]:
    """Whether the largest count, with noise, is above the threshold."""
    return normal_below((largest - check.threshold) / check.sigma, rng=rng)
