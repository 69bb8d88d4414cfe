"""Means over seeds as they are printed: with the half width of a 95 % confidence interval."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.simulation.paired_comparison import estimate_mean

TITLE = "mean ± half width of a 95 % confidence interval over runs"
TOGETHER = "all intervals hold together with 95 % confidence"


def mean_in_percent(values: Sequence[float], *, digits: int = 1) -> str:
    """A mean of shares in [0, 1] in percent, such as "72.0 ± 1.4"; one value has no interval."""
    estimate = estimate_mean(values)
    half = estimate.half_width
    more = "" if half is None else f" ± {100 * half:.{digits}f}"
    return f"{100 * estimate.mean:.{digits}f}{more}"


def half_width(values: Sequence[float]) -> float:
    """Half width of a 95 % confidence interval of the mean, for error bars; 0 of one value."""
    return estimate_mean(values).half_width or 0.0
