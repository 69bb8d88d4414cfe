"""Lower bounds on epsilon from guesses: what an attack proves about a mechanism.

Every bound holds with the stated confidence if the mechanism is as claimed. A bound above
a claim proves the claim wrong; one below it proves nothing, as attacks are never the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # which loads its parts as they are used
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpal import check
from dpal.accounting.profiles import PrivacyProfile

_HIGHEST = 60.0  # no attack with fewer than 1e20 guesses shows more

# From the power of a test to the fewest false alarms that a claim allows it.
Tradeoff = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class MembershipGuesses:
    """How an attack in one run did.

    Attributes:
      canaries: records included by a fair coin each.
      made: guesses whether a canary was included; the others were passed over.
      correct: right ones.
    """

    canaries: int
    made: int
    correct: int

    def __post_init__(self) -> None:
        check.at_least(0, correct=self.correct)
        check.within(self.correct, self.canaries, guesses=self.made)


@dataclass(frozen=True, kw_only=True)
class AttackRates:
    """How one test did in independent runs of both worlds.

    Attributes:
      alarms: "present" said where the record was absent.
      absent: runs without the record.
      misses: "absent" said where it was present.
      present: runs with the record.
    """

    alarms: int
    absent: int
    misses: int
    present: int

    def __post_init__(self) -> None:
        check.within(0, self.absent, alarms=self.alarms)
        check.within(0, self.present, misses=self.misses)

    def at_most(self, error: float) -> tuple[float, float]:
        """Upper bounds on the chances of an alarm and of a miss, wrong with chance `error`."""
        half = error / 2
        return _upper(self.alarms, self.absent, half), _upper(self.misses, self.present, half)


def guess_membership(
    scores: NDArray[np.float64], included: NDArray[np.bool_], *, count: int
) -> MembershipGuesses:
    """Guesses the highest scores in and the lowest out, as many of each.

    Args:
      scores: (m,), higher where a canary seems included.
      included: (m,), the truth.
      count: guesses to make; fixed before looking at scores.
    """
    order = np.argsort(scores, kind="stable")
    half = count // 2
    correct = int((~included[order[:half]]).sum() + included[order[scores.size - half :]].sum())
    return MembershipGuesses(canaries=scores.size, made=2 * half, correct=correct)


def best_bound(
    bound: Callable[[MembershipGuesses, float], float],
    tried: Sequence[MembershipGuesses],
    error: float,
) -> float:
    """The best of several bounds, each of which gets its share of the error."""
    return max(bound(guesses, error / len(tried)) for guesses in tried)


def chance_of(guesses: MembershipGuesses, *, epsilon: float, delta: float) -> float:
    """Bounds the chance of this many correct guesses under (epsilon, delta).

    Source: Steinke, Nasr & Jagielski (2023), "Privacy auditing with one (1) training run",
    Thm. 5.2, in the form without randomised guesses.

    >>> chance_of(MembershipGuesses(canaries=10, made=10, correct=10), epsilon=0.0, delta=0.0)
    0.0009765625
    """
    made, correct = guesses.made, guesses.correct
    if correct == 0:
        return 1.0
    right = 1 / (1 + math.exp(-epsilon))
    plain = float(scipy.stats.binom.sf(correct - 1, made, right))
    if delta == 0:
        return plain
    lost = np.arange(1, correct + 1)
    below = scipy.stats.binom.cdf(correct - 1, made, right) - scipy.stats.binom.cdf(
        correct - 1 - lost, made, right
    )
    return min(1.0, plain + 2 * guesses.canaries * delta * float(np.max(below / lost)))


def epsilon_in_one_run(guesses: MembershipGuesses, *, delta: float, error: float) -> float:
    """The largest epsilon that these guesses refute, whatever the mechanism.

    Args:
      guesses: of one run.
      delta: of the claim.
      error: chance of refuting a true claim.
    """

    def refuted(epsilon: float) -> bool:
        return chance_of(guesses, epsilon=epsilon, delta=delta) <= error

    return _largest(refuted, _HIGHEST)


def refutes(guesses: MembershipGuesses, tradeoff: Tradeoff, *, error: float) -> bool:
    """Whether guesses refute a claimed trade-off between false alarms and misses.

    Args:
      guesses: of one run.
      tradeoff: `of_profile` of a claim, or `of_gaussian`.
      error: chance of refuting a true claim.

    Source: Mahloujifar, Melis & Chaudhuri (2024), "Auditing f-differential privacy in one
    run", Alg. 3.
    """
    made, correct, canaries = guesses.made, guesses.correct, guesses.canaries
    right, wrong = error * correct / canaries, error * (made - correct) / canaries
    for i in range(correct - 1, -1, -1):
        more = max(wrong, tradeoff(right))
        if more == wrong:
            break
        right = min(1.0, right + i / (made - i) * (more - wrong))
        wrong = more
    return right + wrong > made / canaries


def epsilon_if_gaussian(guesses: MembershipGuesses, *, delta: float, error: float) -> float:
    """The largest epsilon that these guesses refute for a Gaussian mechanism.

    Tighter than `epsilon_in_one_run`, and fit for training with noise: after many steps its
    trade-off is nearly that of one Gaussian mechanism.
    """

    def refuted(shift: float) -> bool:
        return refutes(guesses, of_gaussian(shift), error=error)

    return epsilon_of_gaussian(_largest(refuted, 12.0), delta=delta)


def of_gaussian(shift: float) -> Tradeoff:
    """Trade-off of telling N(0, 1) from N(shift, 1)."""

    def tradeoff(x: float) -> float:
        return float(ndtr(ndtri(x) - shift))

    return tradeoff


def of_profile(*profiles: PrivacyProfile) -> Tradeoff:
    """Trade-off of a claimed privacy profile: the least that each of its points allows.

    Args:
      profiles: both directions of one claim, on one grid.
    """
    deltas = np.max([profile.deltas for profile in profiles], axis=0)
    losses = profiles[0].grid.losses
    near = np.abs(losses) <= _HIGHEST
    deltas, falling = deltas[near], np.exp(-losses[near])

    def tradeoff(x: float) -> float:
        return max(0.0, float(np.max((x - deltas) * falling)))

    return tradeoff


def epsilon_of_gaussian(shift: float, *, delta: float) -> float:
    """The epsilon at which N(0, 1) and N(shift, 1) are indistinguishable up to delta.

    Source: Balle & Wang (2018), "Improving the Gaussian mechanism for differential
    privacy", Thm. 8.
    """
    if shift <= 0:
        return 0.0

    def exceeded(epsilon: float) -> bool:
        first = ndtr(shift / 2 - epsilon / shift)
        second = math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift)
        return float(first - second) > delta

    return _largest(exceeded, _HIGHEST)


def epsilon_of_rates(rates: AttackRates, *, delta: float, error: float) -> float:
    """The largest epsilon that one test, run many times in both worlds, refutes.

    Args:
      rates: of independent runs.
      delta: of the claim.
      error: chance that the bound is above the truth.

    Source: exact binomial bounds by Clopper & Pearson (1934); the test's constraint by
    Kairouz, Oh & Viswanath (2015), "The composition theorem for differential privacy".
    """
    alarms, misses = rates.at_most(error)
    gains = [(1 - delta - alarms) / misses, (1 - delta - misses) / alarms]
    return max(0.0, *(math.log(gain) for gain in gains if gain > 0))


def epsilon_of_rates_if_gaussian(rates: AttackRates, *, delta: float, error: float) -> float:
    """The same for a Gaussian mechanism.

    Source: Nasr et al. (2023), "Tight auditing of differentially private machine learning".
    """
    alarms, misses = rates.at_most(error)
    return epsilon_of_gaussian(float(-ndtri(alarms) - ndtri(misses)), delta=delta)


def rates_refute(rates: AttackRates, tradeoff: Tradeoff, *, error: float) -> bool:
    """Whether a test's rates refute a claimed trade-off."""
    alarms, misses = rates.at_most(error)
    return alarms < tradeoff(1 - misses)


def _upper(hits: int, runs: int, error: float) -> float:
    """Upper bound on a chance, wrong with chance `error`."""
    return 1.0 if hits >= runs else float(scipy.stats.beta.ppf(1 - error, hits + 1, runs - hits))


def _largest(refuted: Callable[[float], bool], high: float) -> float:
    """The largest value found that is refuted; 0.0 if none is. Ends on the refuted side."""
    low = 0.0
    if not refuted(low):
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
