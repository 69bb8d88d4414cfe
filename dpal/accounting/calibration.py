"""One-dimensional searches that end on the private side of their bracket."""

from __future__ import annotations

from collections.abc import Callable

from scipy.optimize import brentq

from dpal.errors import ParameterError

_RELATIVE_WIDTH = 1e-7


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
    if cost(low) <= limit:
        return low
    unsafe, safe = low, 2 * low
    while not cost(safe) <= limit:
        unsafe, safe = safe, 2 * safe
        if safe > 1e6 * low:
            raise ParameterError(f"no amount of noise meets a limit of {limit:g}")
    result = _root(cost, limit, unsafe, safe)
    # The root lies on either side; walk to the private one.
    while not cost(result) <= limit:
        result = min(safe, result * (1 + _RELATIVE_WIDTH))
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
    if cost(high) <= limit:
        return high
    if not cost(low) <= limit:
        return 0.0
    result = _root(cost, limit, low, high)
    while not cost(result) <= limit:
        result = max(low, result * (1 - _RELATIVE_WIDTH))
    return result


def first_true(holds: Callable[[int], bool], *, low: int) -> int:
    """Finds the least integer >= low for which a monotone predicate holds."""
    if holds(low):
        return low
    width = 1
    while not holds(low + width):
        width *= 2
    below, above = low + width // 2, low + width
    while above - below > 1:
        middle = (above + below) // 2
        if holds(middle):
            above = middle
        else:
            below = middle
    return above


def _root(cost: Callable[[float], float], limit: float, low: float, high: float) -> float:
    """Where a monotone cost crosses its limit, to a relative width of 1e-7."""
    root = brentq(
        lambda argument: cost(argument) - limit, low, high, xtol=_RELATIVE_WIDTH * low, rtol=1e-9
    )
    return float(root)
