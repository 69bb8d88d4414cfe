"""One budget for several campaigns: a Rényi filter at an order chosen in advance.

Campaigns on the same records may be chosen one after the other, each in view of what the
earlier ones released. Their Rényi divergences at one order, fixed before the first, add up
whatever was chosen (Feldman & Zrnic 2021, Thm. 3.1); the tight curves that certify a single
declared plan do not (Honkela, Koskela, Tran & Räisä 2026).

Within a campaign the divergence at that order follows the envelope: with M_t the moment
E[e^((a-1) loss)] of everything after selection t,

    M_t = E_{y ~ P_t} e^((a-1) l_t(y)) max{ M of entering, M_{t+1} },

so it is the worst path's, outputs of selections included. Proof: docs/guarantee.md.
Amounts are whole numbers, charges rounded up and limits down: sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpal import check
from dpal.accounting import rdp
from dpal.accounting.events import Event, Release, scale_sampling_rate
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.worst_path import events_after_entry, last_phase, selection_events
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

_NANO = 10**9  # units of divergence
_ATTO = 10**18  # units of delta
_OVERFLOW_SHARE = 0.1  # of delta, for thresholds that may fail
_LARGEST = 1000  # epsilons beyond it promise nothing, and no arithmetic was made for them
_ROUNDING = 1e-12  # relative error of a sum of floats, generously


@dataclass(frozen=True, order=False)
class Amount:
    """What a campaign takes of a block, or a limit, in whole units.

    Attributes:
      divergence: Rényi divergence at the filter's order, in units of 1e-9.
      overflow: chance that a threshold fails, in units of 1e-18.
    """

    divergence: int
    overflow: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.divergence + other.divergence, self.overflow + other.overflow)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.divergence - other.divergence, self.overflow - other.overflow)

    def within(self, limit: Amount) -> bool:
        """Whether this much may be taken where `limit` is left."""
        return self.divergence <= limit.divergence and self.overflow <= limit.overflow


NOTHING = Amount(0, 0)


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """(epsilon, delta) as a limit on divergences at one order.

    Attributes:
      epsilon: of the data set's limit.
      delta: of the data set's limit; a tenth of it is set aside for thresholds that fail.
      order: fixed before anything is released.
    """

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        _require_limit(self.epsilon, self.delta)
        if self.order not in rdp.ORDERS:
            raise ParameterError(f"order {self.order!r} is none of those that are computed")

    @classmethod
    def fitted(cls, epsilon: float, delta: float) -> RenyiFilter:
        """The filter whose order leaves most room for Gaussian noise, whose cost is linear."""
        _require_limit(epsilon, delta)
        room = (epsilon - _conversion(rdp.ORDERS, delta)) / rdp.ORDERS
        return cls(epsilon=epsilon, delta=delta, order=float(rdp.ORDERS[int(np.argmax(room))]))

    @property
    def limit(self) -> Amount:
        """All that may be taken, rounded down; nothing where delta alone is too small."""
        room = self.epsilon - float(_conversion(self.order, self.delta))
        divergence = max(0, math.floor(room * (1 - _ROUNDING) * _NANO))
        return Amount(divergence, math.floor(_OVERFLOW_SHARE * self.delta * _ATTO))

    def epsilon_of(self, taken: Amount) -> float:
        """The epsilon, at the limit's delta, that so much proves; 0.0 for nothing taken."""
        if taken == NOTHING:
            return 0.0
        return taken.divergence / _NANO + float(_conversion(self.order, self.delta))

    def charge(
        self, releases: Sequence[Release], adjacency: Adjacency, *, participation: float = 1.0
    ) -> Amount:
        """What a campaign's releases take of every record, whatever path it takes.

        Args:
          releases: of one campaign, in order.
          adjacency: which change of the data is meant.
          participation: factor on every sample rate of training.

        Returns:
          The amount, rounded up.
        """
        thinned = [scale_sampling_rate(release, participation) for release in releases]
        divergence = max(
            _campaign_divergence(thinned, self.order, adjacency, direction)
            for direction in Direction
        )
        return self._rounded_up(divergence, releases)

    def charge_of_ended(
        self,
        planned: Sequence[Release],
        reserved: Sequence[Release],
        adjacency: Adjacency,
        *,
        participation: float = 1.0,
    ) -> Amount:
        """What a campaign takes that ends, whoever decides so, in view of whatever it released.

        Losses of thresholds, scores and training add up path by path: what was reserved is what
        is charged. The loss of an answer is what decides on the path, and is charged on average
        over both answers; somebody who saw it could end the campaign just where it pays. So once
        an answer was released, only that flows back which every record, wherever it may be now,
        could still have lost.

        Args:
          planned: all releases of the plan, in order.
          reserved: those that were reserved, in order, and further attempts at them.
          adjacency: which change of the data is meant.
          participation: factor on every sample rate of training.

        Returns:
          The amount, rounded up. Proof: docs/guarantee.md, "What flows back".
        """
        if not any(_answers(release) for release in reserved):
            return self.charge(reserved, adjacency, participation=participation)
        names = {release.name for release in planned}
        made = {release.name for release in reserved}
        met = [scale_sampling_rate(release, participation) for release in planned]
        rest = [release for release in met if release.name not in made]
        again = [
            scale_sampling_rate(release, participation)
            for release in reserved
            if release.name not in names
        ]
        begun = max(release.phase for release in reserved)
        divergence = max(
            _campaign_divergence(met, self.order, adjacency, direction)
            - _least_left(rest, begun, self.order, adjacency, direction)
            for direction in Direction
        )
        divergence += sum(_largest_divergence(release, self.order, adjacency) for release in again)
        return self._rounded_up(divergence, reserved)

    def _rounded_up(self, divergence: float, releases: Sequence[Release]) -> Amount:
        if not math.isfinite(divergence):
            raise ParameterError(
                f"a release has no finite Renyi divergence at order {self.order:g}; it cannot "
                "share a data set's budget"
            )
        failing = [
            event.delta
            for release in releases
            for event in {charge.event for charge in release.charges}
        ]
        return Amount(
            # One unit more: another processor may differ in the last bits.
            math.ceil(divergence * (1 + _ROUNDING) * _NANO) + (divergence > 0),
            math.ceil(sum(failing) * (1 + _ROUNDING) * _ATTO),
        )


def _require_limit(epsilon: float, delta: float) -> None:
    check.positive(epsilon=epsilon)
    check.within(0, _LARGEST, epsilon=epsilon)
    check.inside(0, 1, delta=delta)


def _conversion(order: float | rdp.Curve, delta: float) -> rdp.Curve:
    """What a divergence at an order costs on top (Canonne, Kamath & Steinke 2020, Prop. 12)."""
    orders = np.asarray(order)
    left = (1 - _OVERFLOW_SHARE) * delta
    return np.asarray(np.log1p(-1 / orders) - (math.log(left) + np.log(orders)) / (orders - 1))


def _campaign_divergence(
    releases: Sequence[Release], order: float, adjacency: Adjacency, direction: Direction
) -> float:
    """Divergence at an order over all paths. Sums of logarithms: moments would overflow."""
    initial = _divergence(events_after_entry(releases, 0), order, adjacency)
    pooled = _pool_divergence(releases, order, adjacency, direction)
    return max(initial, pooled, 0.0)


def _pool_divergence(
    releases: Sequence[Release],
    order: float,
    adjacency: Adjacency,
    direction: Direction,
    *,
    after: int = 0,
) -> float:
    """The same for a record that is still in the pool after a phase."""
    scale = order - 1
    last = last_phase(releases)
    stayed = _divergence(events_after_entry(releases, last + 1), order, adjacency)
    for phase in range(last, after, -1):
        entered = _divergence(events_after_entry(releases, phase), order, adjacency)
        stayed = max(entered, stayed)
        for event in reversed(selection_events(releases, phase)):
            if answer := event.answer:
                # Yes leads into the cohort; no to the worse of both (see the envelope).
                stayed = max(
                    float(
                        np.logaddexp(
                            math.log(p) + scale * (math.log(p / q) + entered),
                            math.log1p(-p) + scale * (math.log((1 - p) / (1 - q)) + stayed),
                        )
                    )
                    / scale
                    for p, q in answer.outcomes(adjacency, direction, yes=True)
                )
            else:
                stayed += _divergence([event], order, adjacency)
    return stayed


def _least_left(
    rest: Sequence[Release],
    begun: int,
    order: float,
    adjacency: Adjacency,
    direction: Direction,
) -> float:
    """The least that any record could still have lost, wherever it is after a phase has begun."""
    entered = [
        _divergence(events_after_entry(rest, cohort), order, adjacency)
        for cohort in range(begun + 1)
    ]
    pooled = _pool_divergence(rest, order, adjacency, direction, after=begun)
    return max(0.0, min(*entered, pooled))


def _largest_divergence(release: Release, order: float, adjacency: Adjacency) -> float:
    """Divergence of one release for the records that it costs most."""
    cohorts = {name for charge in release.charges for name in charge.cohorts}
    return max(
        (
            _divergence(
                [charge.event for charge in release.charges if name in charge.cohorts],
                order,
                adjacency,
            )
            for name in cohorts
        ),
        default=0.0,
    )


def _answers(release: Release) -> bool:
    return any(charge.event.answer for charge in release.charges)


def _divergence(events: Sequence[Event], order: float, adjacency: Adjacency) -> float:
    column = int(np.searchsorted(rdp.ORDERS, order))
    return float(sum(event.renyi(adjacency)[column] for event in events))
