"""One-dimensional searches that end on the private side of their bracket."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from dpal.errors import ParameterError

_RELATIVE_WIDTH = 1e-6


def smallest_safe(cost: Callable[[float], float], limit: float, *, low: float) -> float:
    """Finds the least argument of a falling cost that keeps it within a limit.

    Args:
      cost: falls as its argument (a noise multiplier, say) grows.
      limit: largest cost allowed.
      low: a positive argument at which the cost may be too high.

    Returns:
      The least argument found with cost(result) <= limit, within 1e-6 of the best.

    Raises:
      ParameterError: no argument up to a million times `low` is safe.
    """
    cost = cache(cost)  # the ends of the bracket are asked for again
    if cost(low) <= limit:
        return low
    unsafe, safe = low, 2 * low
    while not cost(safe) <= limit:
        unsafe, safe = safe, 2 * safe
        if safe > 1e6 * low:
            raise ParameterError(f"no amount of noise meets a limit of {limit:g}")
    result = _root(cost, limit, unsafe, safe)
    # The root lies on either side; walk to the private one.
    result = min(safe, _short(result, math.ceil))
    while not cost(result) <= limit:
        result = min(safe, _short(result * (1 + _RELATIVE_WIDTH), math.ceil))
    return result


def largest_safe(cost: Callable[[float], float], limit: float, *, low: float, high: float) -> float:
    """Finds the greatest argument in [low, high] of a rising cost that keeps it within a limit.

    Args:
      cost: rises with its argument (a sample rate, say).
      limit: largest cost allowed.
      low: least argument worth having, above 0.
      high: greatest argument allowed.

    Returns:
      The greatest argument found with cost(result) <= limit, within 1e-6 of the best;
      0.0 when even `low` costs too much.
    """
    cost = cache(cost)  # the ends of the bracket are asked for again
    if cost(high) <= limit:
        return high
    if not cost(low) <= limit:
        return 0.0
    result = max(low, _short(_root(cost, limit, low, high), math.floor))
    while not cost(result) <= limit:
        result = max(low, _short(result * (1 - _RELATIVE_WIDTH), math.floor))
    return result


def first_true(holds: Callable[[int], bool], *, low: int, guess: int | None = None) -> int:
    """Finds the least integer >= low for which a monotone predicate holds.

    Args:
      holds: false up to some integer, true from there on.
      low: where to begin.
      guess: a number that may be near the answer; saves time, changes nothing.
    """
    start = max(low, guess if guess is not None else low)
    width = 1
    if holds(start):
        above = start
        while above > low and holds(max(low, above - width)):
            above = max(low, above - width)
            width *= 2
        if above == low:
            return low
        below = max(low, above - width)
    else:
        below = start
        while not holds(start + width):
            below, width = start + width, 2 * width
        above = start + width
    while above - below > 1:
        middle = (above + below) // 2
        if holds(middle):
            above = middle
        else:
            below = middle
    return above


def _short(value: float, towards: Callable[[float], int]) -> float:
    """Rounds to seven digits, towards the private side.

    Last bits of sums differ from processor to processor. Without them a plan made anew
    elsewhere is the same plan, and its campaign continues.
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 6)
    return float(f"{towards(value / unit) * unit:.7g}")


def _root(cost: Callable[[float], float], limit: float, low: float, high: float) -> float:
    """Where a monotone cost crosses its limit, to within 1e-6 of `low`."""
    import scipy  # bounds of settings are read without it

    root = scipy.optimize.brentq(
        lambda argument: cost(argument) - limit, low, high, xtol=_RELATIVE_WIDTH * low, rtol=1e-9
    )
    return float(root)
