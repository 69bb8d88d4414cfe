"""How far the two accountants may lie apart.

Both accountants are upper bounds, so that neither may be below the true epsilon; what
differs is by how much each overstates. dp-accounting's bound overstates more, and by this
much at most (`tolerance`):

Its distributions live on a grid of width h. Each step's loss l is moved to one of the two
grid points around it, to the upper one with chance (1 - e^(-(l - lower))) / (1 - e^-h), so
that its mass is kept in both worlds. Over T steps this adds to the loss a sum E whose
e^(-E) has mean 1 given the loss, and whose variance is at most T h^2 / 4. The divergence is
the mean of max(0, 1 - e^(x - loss)), which is convex in e^(-loss) and linear but for one
kink at x; so to second order it grows by (1/2) (T h^2 / 4) p(x), p being the density of the
loss under P at x. Dividing by its slope, which is p's tail under Q times e^x, moves epsilon
by (T h^2 / 8) times the hazard rate of the loss under Q at x. With s(x) = -d ln delta / dx
that rate is 1 + s - s'/s, and s rises (delta is log-concave in x near the tail), so it is at
most 1 + s; s at epsilon is in turn at most 1 / (epsilon(delta/e) - epsilon(delta)).
A selection is averaged or read along chords on a grid of spacing w, the same with w for h,
and epsilon is rounded up to that grid, which adds w:

    tolerance = w + (1 + s) (T h^2 + S w^2) / 8     for T steps and S selection events.

A release that is known as a claim of (epsilon, delta) alone has its loss at two points, and each of
them is moved up to the grid: h more for each such release.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import Release
from dpal.privacy import PrivacyTarget

_STEP_GRID: Final = 1e-3  # dp-accounting's grid for steps, as `oracle` asks for it
_PATH_GRID: Final = 2e-3  # spacing at which `oracle` samples paths


@lru_cache(maxsize=32)
def tolerance(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    """How far dp-accounting's bound may lie above the true epsilon.

    Args:
      releases: what was reserved, in order.
      target: gives delta and adjacency.

    Source:
      Derived above. Grid: Doroshenko et al. (2022), "Connect the dots".
    """
    events = [charge.event for release in releases for charge in release.charges]
    steps = sum(event.training_steps or 0 for event in events)
    selections = sum(event.training_steps is None for event in events)
    here = campaign_epsilon(releases, target)
    further = campaign_epsilon(releases, replace(target, delta=target.delta / math.e))
    slope = 1 / (further - here) if math.isfinite(further) and further > here else math.inf
    moved = (steps * _STEP_GRID**2 + selections * _PATH_GRID**2) / 8
    # Without a slope (nothing was released, say) there is no second order: only the grid.
    claims = sum(not event.adds_up for event in events) * _STEP_GRID
    return _PATH_GRID + claims + ((1 + slope) * moved if math.isfinite(slope) else 0.0)
