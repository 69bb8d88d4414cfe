"""How much a cost that depends on votes may change with them, and what telling it costs.

A cost R(D) read off private votes is itself private. Telling it needs noise in proportion
to how much it can change, and that too depends on the votes; its beta-smooth bound SS(D),
which neighbours share up to a factor e^beta, can stand for it.

Adjacency: one ballot of the teachers is replaced by another; distance d is d ballots.

Source: Nissim, Raskhodnikova & Smith (2007), Def. 2.2 and Sec. 3.1; for noisy votes
Papernot et al. (2018), "Scalable private learning with PATE", App. B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dpal import check
from dpal.accounting.votes import papernot
from dpal.errors import ParameterError

Floats = NDArray[np.float64]

_TIE = 1e-9  # relative; nearer than that, ln q counts as on the border
_ROUNDING = 1e-9  # relative; what rounding may take from a cost that never falls


def table_local_sensitivity(cost: ArrayLike) -> Floats:
    """Tabulates how much a cost per count can change one ballot away from d ballots away.

    Exact, and no condition on the shape of the cost: every count is looked at.

    Args:
      cost: (n + 1,), cost of what is released about a count of 0..n, any unit; one ballot
        moves the count by one at most.

    Returns:
      (n + 1, n + 1), entry [p, d] the largest step between neighbouring counts of which
      one lies within d of p; rows never fall with d.

    Raises:
      ParameterError: cost is not (n + 1,) finite numbers.
    """
    reach = list(_steps_within(cost, 1))
    return np.stack(reach, axis=1)


def summed_local_sensitivity(cost: ArrayLike, often: ArrayLike, *, moved: int = 1) -> Floats:
    """Adds up how much the costs of many counts can change, by distance in ballots.

    As `table_local_sensitivity`, row by row as often as each count occurs, without the table.

    Args:
      cost: (n + 1,), by a count of 0..n.
      often: (n + 1,), how many queries have each count; or their weights.
      moved: by how much one ballot moves the count at most.

    Returns:
      (n + 1,), by distance d = 0..n.

    Raises:
      ParameterError: cost is not (n + 1,) finite numbers.
    """
    weights = np.asarray(often, dtype=np.float64)
    return np.array([float(weights @ reach) for reach in _steps_within(cost, moved)])


def _steps_within(cost: ArrayLike, moved: int) -> Iterator[Floats]:
    """The largest step that one ballot makes within d ballots of each count, for d = 0, 1, ..."""
    table = np.asarray(cost, dtype=np.float64)
    if table.ndim != 1 or not table.size or not np.all(np.isfinite(table)):
        raise ParameterError("cost must be (n + 1,) finite numbers, one for each count 0..n")
    reach = np.zeros(table.size)
    for by in range(1, min(moved, table.size - 1) + 1):
        steps = np.abs(table[by:] - table[:-by])
        reach[:-by] = np.maximum(reach[:-by], steps)
        reach[by:] = np.maximum(reach[by:], steps)
    yield reach
    whole = float(reach.max())
    for _ in range(1, table.size):
        if reach.min() < whole:  # afterwards every count has reached the largest step
            around = np.pad(reach, moved)
            sides = np.lib.stride_tricks.sliding_window_view(around, 2 * moved + 1)
            reach = sides.max(axis=1)
        yield reach


def threshold_local_sensitivity(
    teachers: int, *, threshold: float, sigma_threshold: float, order: float
) -> Floats:
    """Tabulates how much the cost of the check of confidence can change, in nats.

    Takes what `rdp_of_answering` takes and refuses what it refuses; n whole ballots.

    Returns:
      (n + 1, n + 1), entry [v, d] at d ballots from a histogram with highest count v.
    """
    check.at_least(1, teachers=teachers)
    cost = papernot.rdp_of_answering(
        range(teachers + 1), threshold=threshold, sigma_threshold=sigma_threshold, orders=[order]
    )
    # One ballot moves the highest count by one at most, as it does any other count.
    return table_local_sensitivity(cost[:, 0])


def smooth(local_sensitivity: ArrayLike, *, beta: float) -> float:
    """Returns the beta-smooth bound SS = max over d of e^(-beta d) LS(d), in the cost's unit.

    Costs of several queries add up, and so do their local sensitivities: one teacher may
    change every query. Add the arrays, then smooth the sum.

    Args:
      local_sensitivity: (n + 1,), by distance d = 0..n, in the unit of the cost.
      beta: by how much ln SS may differ between neighbours, at least 0.

    Raises:
      ParameterError: beta or a sensitivity is negative or not finite.
    """
    check.at_least(0, beta=beta)
    local = np.asarray(local_sensitivity, dtype=np.float64)
    if local.ndim != 1 or not local.size or not np.all((local >= 0) & np.isfinite(local)):
        raise ParameterError("local_sensitivity must be (d,) finite numbers >= 0")
    return float(np.max(np.exp(-beta * np.arange(local.size)) * local))


@dataclass(frozen=True, kw_only=True)
class WinnerCost:
    """The data-dependent cost of one released winner, as a function of ln q alone.

    Papernot's bound below ln q0 (`crossing`), order / sigma^2 from there on. What is bounded
    here is the sensitivity of this very function, so this is what has to be charged.

    Attributes:
      sigma: standard deviation of the Gaussian noise per vote count, in votes.
      order: Rényi order above 1.
      classes: how many bins the votes have, empty ones included.
    """

    sigma: float
    order: float
    classes: int

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)
        check.inside(1, math.inf, order=self.order)
        check.at_least(2, classes=self.classes)

    @property
    def cap(self) -> float:
        """What a winner costs whatever the votes, in nats."""
        return self.order / self.sigma**2

    @cached_property
    def crossing(self) -> float:
        """Ln q0: below it the theorem holds and promises less than the cap."""
        # The theorem needs mu1 > order; published numbers stop this much before. Any cut
        # inside of its range is sound.
        high = -(((self.order - 0.99) / self.sigma) ** 2)
        if self._helps(high):
            return high
        low = high - 1.0
        while not self._helps(low):
            low *= 2
        # Ends on the side where the bound has been seen to hold.
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if self._helps(middle) else (low, middle)
        return low

    @cached_property
    def edge(self) -> float:
        """Ln q1: the least ln q from which one ballot may reach the crossing."""
        return float(self.moved(np.array([self.crossing]), -1)[0])

    def at(self, log_miss: Floats) -> Floats:
        """Returns the cost for ln q, in nats, shape (n,)."""
        bound = papernot.rdp_of_log_miss(log_miss, sigma=self.sigma, orders=[self.order])[:, 0]
        return np.where(log_miss < self.crossing, bound, self.cap)

    def moved(self, log_miss: Floats, ballots: int) -> Floats:
        """Bounds ln q after ballots went against the winner (for it, if negative), (n,)."""
        spread = math.log(self.classes - 1)
        # q/(m-1) = P[N > z] of equal runners-up; a ballot moves each gap by 2 at most. For
        # unequal ones this is a bound, since q -> P[N > z(q) -+ shift] is concave or convex.
        z = -scipy.special.ndtri_exp(log_miss - spread) - ballots * math.sqrt(2) / self.sigma
        return np.asarray(np.minimum(scipy.special.log_ndtr(-z) + spread, 0.0))

    def local_sensitivity(self, log_miss: Floats) -> Floats:
        """Bounds the change of the cost by one ballot, for ln q, in nats, shape (n,)."""
        # Ties go to the plateau, which is as high as its edge: there one ballot reaches the
        # cap, also where the cost jumps to it.
        flat = (log_miss >= self.edge * (1 + _TIE)) & (log_miss <= self.crossing * (1 - _TIE))
        start = np.where(flat, self.edge, log_miss)
        here = self.at(start)
        up = np.where(flat, self.cap, self.at(self.moved(start, 1))) - here
        return np.maximum(up, here - self.at(self.moved(start, -1)))

    def _helps(self, log_q: float) -> bool:
        sigma, orders = self.sigma, [self.order]
        bound = papernot.rdp_of_log_miss([log_q], sigma=sigma, orders=orders, capped=False)
        holds = papernot.theorem_holds([log_q], sigma=sigma, orders=orders)
        return bool(holds[0, 0] and bound[0, 0] <= self.cap)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What `winner_local_sensitivity` rests on, seen on a fine grid (no proof between points)."""

    rising: bool  # C5, the cost never falls as q grows to q0
    growing: bool  # C6, its step by one ballot never falls as q grows to q1


@lru_cache(maxsize=4096)
def winner_conditions(cost: WinnerCost) -> Conditions:
    """Looks whether the conditions C5 and C6 of Papernot et al. (2018), App. B, hold."""
    # Beyond the last point every cost is below the smallest float.
    last = 40 * max(40.0, (cost.order + 1) ** 2 / cost.sigma**2, -cost.crossing)
    below = -(np.geomspace(1, last / -cost.crossing, 4000) * -cost.crossing)[::-1]
    below[-1] = np.nextafter(cost.crossing, -np.inf)
    to_edge = below + (cost.edge - cost.crossing)
    steps = cost.at(cost.moved(to_edge, 1)) - cost.at(to_edge)
    return Conditions(rising=_never_falls(cost.at(below)), growing=_never_falls(steps))


def winner_local_sensitivity(counts: ArrayLike, *, cost: WinnerCost) -> Floats:
    """Bounds how much the cost of a released winner can change, by distance in ballots.

    Args:
      counts: (classes,), whole votes per bin, n in all.
      cost: of the released winner.

    Returns:
      (n + 1,), in nats, entry d for the histograms d ballots away.

    Raises:
      ParameterError: counts are no such histogram, or C5 or C6 fails and nothing is proven.

    Source: Papernot et al. (2018), App. B: the votes that lead fastest to the steepest cost.
    """
    held = winner_conditions(cost)
    if not (held.rising and held.growing):
        raise ParameterError(
            f"smooth sensitivity is not proven for sigma {cost.sigma:g}, order {cost.order:g} and "
            f"{cost.classes} classes (condition {'C6' if held.rising else 'C5'} fails); use more "
            "noise, a lower order, or the exact table for two classes"
        )
    return unproven_local_sensitivity(counts, cost=cost)


def unproven_local_sensitivity(counts: ArrayLike, *, cost: WinnerCost) -> Floats:
    """Does as `winner_local_sensitivity`, and never asks whether it is proven: to compare."""
    votes = np.sort(np.asarray(counts, dtype=np.float64))[::-1]
    if votes.shape != (cost.classes,) or not np.all((votes >= 0) & (votes == np.rint(votes))):
        raise ParameterError(f"counts must be ({cost.classes},) whole votes >= 0")
    teachers = int(votes.sum())
    path = [votes]
    falls = papernot.log_miss(votes[None], sigma=cost.sigma)[0] > cost.crossing
    # One ballot at a time between the winner and its runner-up, while that changes ln q.
    while path[-1][1] > 0 if falls else path[-1][0] > path[-1][1] + 1:
        votes = path[-1].copy()
        votes[:2] += (1, -1) if falls else (-1, 1)
        path.append(np.sort(votes)[::-1])
    along = papernot.log_miss(np.array(path), sigma=cost.sigma)
    # Where C5 and C6 hold, the plateau is the largest of all: it stands for what lies beyond.
    reach = np.full(teachers + 1, cost.local_sensitivity(np.array([cost.edge]))[0])
    arrived = along <= cost.crossing if falls else along >= cost.edge
    seen = int(np.argmax(arrived)) if arrived.any() else len(path)
    reach[:seen] = cost.local_sensitivity(along[:seen])
    return reach


def _never_falls(values: Floats) -> bool:
    return bool(np.all(np.diff(values) >= -_ROUNDING * np.abs(values[1:])))


def sanitizing_cost(order: float, *, beta: float, noise: float) -> float:
    """Returns what it costs to release f(D) + SS(D) * noise * N(0, 1), at one Rényi order.

    The exact supremum over all f and SS that are as promised: |f(D) - f(D')| is at most
    SS(D) and SS(D'), whose ratio is at most e^beta. Between N(0, 1) and N(x, r^2), in units
    of noise * SS(D), it is (Gil, Alajaji & Linder, 2013, Table 2), for w = 1 + order (r^2 - 1),

        order x^2 / (2 w) + [order ln r - ln(w) / 2] / (order - 1),   x = min(1, r) / noise,

    where w > 0. Up to r = 1 both terms fall with r; from there the sum first falls, then
    rises. So one of the ends r = e^-beta and r = e^beta is the worst.

    Args:
      order: Rényi order above 1 and below 1 / (1 - e^(-2 beta)), where w > 0 ends.
      beta: of the smooth bound, at least 0 (0: the sensitivity does not depend on votes).
      noise: standard deviation of the noise over SS(D).

    Returns:
      Rényi divergence in nats, for both directions.

    Raises:
      ParameterError: a value is outside of its range.

    >>> round(sanitizing_cost(4, beta=0, noise=2), 9)  # order / (2 noise^2)
    0.5
    """
    check.at_least(0, beta=beta)
    check.positive(noise=noise)
    shrink = -math.expm1(-2 * beta)
    check.inside(1, 1 / shrink if shrink else math.inf, order=order)
    worst = 0.0
    for log_ratio in (-beta, beta):
        width = 1 + order * math.expm1(2 * log_ratio)
        moved = math.exp(min(0.0, 2 * log_ratio)) / noise**2
        spread = (order * log_ratio - math.log(width) / 2) / (order - 1)
        worst = max(worst, order * moved / (2 * width) + spread)
    return worst


def published_sanitizing_cost(order: float, *, beta: float, noise: float) -> float:
    """Returns the published cost of `sanitizing_cost`, for comparing with printed numbers.

    Takes what `sanitizing_cost` takes, with orders below 1 / (2 beta). Not a bound: where
    order * beta is above about 1/4 and noise is small, two Gaussians that its conditions
    allow are further apart (order 3.5, beta 0.134, noise 1.43: 3.89 against 2.99). At small
    beta it is twice what is needed or more. Source: Papernot et al. (2018), Thm 23.
    """
    check.at_least(0, beta=beta)
    check.positive(noise=noise)
    check.inside(1, 1 / (2 * beta) if beta else math.inf, order=order)
    spread = (order * beta - math.log1p(-2 * order * beta) / 2) / (order - 1)
    return order * math.exp(2 * beta) / noise**2 + spread
