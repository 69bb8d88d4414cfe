"""Profiles where cohorts are drawn by coins that nobody outside sees.

P is the law of all that leaves where the record has content, P_in given that its coin drew it and
P_out given that it did not; Q is the law where the record is blank, which whoever is drawn
leaves as it is. With p the chance of the coin, P = p P_in + (1-p) P_out, and for every u in (0, 1)

    H(P, Q; x) <= p H(P_in, Q; x + ln((1-u)/p)) + (1-p) H(P_out, Q; x + ln(u/(1-p))),
    H(Q, P; x) <= (1-u) H(Q, P_in; x + ln(p/(1-u))) + u H(Q, P_out; x + ln((1-p)/u)).

Where nothing is released about a record that is not drawn, P_out = Q and the best u is known:
privacy amplification by subsampling (Balle, Barthe & Gaboardi 2018, Theorem 2). Proofs, and what
holds under replace-one: docs/guarantee.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpal import check
from dpal.accounting.profiles import PrivacyProfile, Values
from dpal.accounting.single_step_curves import Direction
from dpal.privacy import Adjacency

# Of ln(u / (1-u)), around the u at which both parts are read at the same loss. Whatever u is
# taken is a bound, so that the search needs to be good and not perfect.
_SPLITS = np.linspace(-24.0, 24.0, 49)
_GOLDEN = (math.sqrt(5) - 1) / 2
_REFINEMENTS = 24
LEAST_ENTROPY = 128  # bits of a secret draw: digests of what was drawn stand in the ledger
_BINOMIAL_ERROR = 1e-4  # relative, of tails of a binomial distribution; the true one is far less
_ROUNDING = 8 * 2.0**-53  # of a value in [0, 1] at a loss that was moved


def exceeding_chance(most: int, *, pool: int, size: int) -> float:
    """Bounds the chance that coins draw more than `most`, however one record's own coin falls.

    Args:
      most: records that may be labeled.
      pool: records at the start, each of which is drawn in this phase with chance size / pool.
      size: records that are drawn on average.
    """
    import scipy  # settings are read without it

    if most >= pool:
        return 0.0  # there are no more
    return float(scipy.special.bdtrc(most - 1, pool - 1, size / pool)) * (1 + _BINOMIAL_ERROR)


def entropy_of_draw(pool: int, size: int) -> float:
    """How many bits nobody knows of who is drawn, where each of a pool tosses a coin."""
    p = size / pool
    return pool * -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) if 0 < p < 1 else 0.0


def amplified_epsilon(epsilon: float, chance: float) -> float:
    """What (epsilon, delta) of the drawn comes to at (chance * delta), if others lose nothing."""
    if epsilon > 100:  # e^epsilon times the chance is all that is left of the formula
        return max(0.0, epsilon + math.log(chance)) if chance < 1 else epsilon
    return math.log1p(chance * math.expm1(epsilon))


def drawn_epsilon(epsilon: float, chance: float) -> float:
    """What the drawn may lose for `amplified_epsilon` to be so much."""
    if epsilon > 100:
        return epsilon - math.log(chance)
    return math.log1p(math.expm1(epsilon) / chance)


@dataclass(frozen=True, eq=False)
class SecretCohorts:
    """Cohorts that are drawn by coins, out of a pool about which nothing else is released.

    Attributes:
      chance: of being drawn into any of them.
      inside: the profile of those who are drawn, averaged over the cohorts.
    """

    chance: float
    inside: PrivacyProfile

    def __post_init__(self) -> None:
        check.inside(0, 1, chance=self.chance)

    def preceded_by(self, chance: float, entered: PrivacyProfile) -> SecretCohorts:
        """With one more cohort, drawn before these with some chance from everybody."""
        later = (1 - chance) * self.chance
        together = chance + later
        deltas = (chance * entered.deltas + later * self.inside.deltas) / together
        return SecretCohorts(together, PrivacyProfile(entered.grid, deltas))

    def profile(self, adjacency: Adjacency, direction: Direction) -> PrivacyProfile:
        """Of any record of the pool, in one direction."""
        losses = self.inside.grid.losses
        if adjacency is Adjacency.REPLACE_ONE:
            # Both worlds share the branch where the record is not drawn.
            rest = -np.expm1(np.minimum(losses, 0.0))
            equal = self.chance * self.inside.deltas + (1 - self.chance) * rest
            deltas = np.where(losses < 0, equal, self._with_the_record(np.maximum(losses, 0.0)))
        elif direction is Direction.REMOVE:
            deltas = self._with_the_record(losses)
        else:
            deltas = self._without_the_record(losses)
        return PrivacyProfile(self.inside.grid, deltas).raised(_ROUNDING)

    def _with_the_record(self, losses: Values) -> Values:
        """P H(P_in, Q; ln((e^x - 1 + p) / p)), and 1 - e^x where that has no logarithm."""
        p = self.chance
        above = losses > math.log1p(-p)
        room = np.where(above, losses, 0.0)
        moved = room - math.log(p) + np.log1p(-(1 - p) * np.exp(-room))
        return np.where(above, p * self.inside.at(moved), -np.expm1(np.minimum(losses, 0.0)))

    def _without_the_record(self, losses: Values) -> Values:
        """W H(Q, P_in; x + ln(p/w)) with w = 1 - e^x (1-p), and 0 where that is none."""
        least = math.log1p(-self.chance)
        weight = -np.expm1(np.minimum(losses, -least) + least)
        within = weight > 0
        moved = losses + math.log(self.chance) - np.log(np.where(within, weight, 1.0))
        return np.where(within, weight * self.inside.at(moved), 0.0)


def mixed_profile(
    chance: float,
    entered: PrivacyProfile,
    stayed: PrivacyProfile,
    *,
    adjacency: Adjacency,
    direction: Direction,
) -> PrivacyProfile:
    """The profile of a record that enters by a coin, and otherwise stays and may enter later.

    Args:
      chance: of the coin.
      entered: profile of what happens to those who are drawn.
      stayed: of what happens to the others, on the same grid.
      adjacency: under replace-one the two worlds' laws differ wherever the record is, so that
        both parts are read at the same loss (joint convexity).
      direction: which side has the record.
    """
    losses = entered.grid.losses
    together = chance * entered.deltas + (1 - chance) * stayed.deltas
    if adjacency is Adjacency.REPLACE_ONE:
        return PrivacyProfile(entered.grid, together)

    def at(split: Values) -> Values:
        log_out, log_in = -np.logaddexp(0, -split), -np.logaddexp(0, split)  # ln u, ln(1-u)
        to_in, to_out = log_in - math.log(chance), log_out - math.log1p(-chance)
        if direction is Direction.REMOVE:
            return np.asarray(
                chance * entered.at(losses + to_in) + (1 - chance) * stayed.at(losses + to_out)
            )
        return np.asarray(
            np.exp(log_in) * entered.at(losses - to_in)
            + np.exp(log_out) * stayed.at(losses - to_out)
        )

    middle = math.log1p(-chance) - math.log(chance)
    least = np.minimum(together, _least(at, middle, losses.size))
    return PrivacyProfile(entered.grid, least).raised(_ROUNDING)


def _least(at: Callable[[Values], Values], middle: float, size: int) -> Values:
    """The least of convex functions of a split, one for every loss; never below the least."""
    best, place = np.full(size, np.inf), np.full(size, middle)
    for split in _SPLITS:
        here = at(np.array([middle + split]))
        place = np.where(here < best, middle + split, place)
        best = np.minimum(best, here)
    width = _SPLITS[1] - _SPLITS[0]
    low, high = place - width, place + width
    for _ in range(_REFINEMENTS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = at(left), at(right)
        best = np.minimum(best, np.minimum(at_left, at_right))
        lower = at_left <= at_right
        low, high = np.where(lower, low, left), np.where(lower, right, high)
    return best
