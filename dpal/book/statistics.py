"""Statistics of a book: spread, printed numbers in standard errors, many comparisons, curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import scipy

from dpal import check
from dpal.errors import ParameterError

Name = TypeVar("Name")


@dataclass(frozen=True, kw_only=True)
class BesidePrinted:
    """A mean beside a printed value. Shares in [0, 1].

    Attributes:
      difference: ours less the printed one.
      standard_error: of the difference; None where our value is of one run.
      printed_is_exact: whether the printed value stands without a spread and counts as exact, so
        that the error is ours alone, and too small.
    """

    difference: float
    standard_error: float | None
    printed_is_exact: bool

    @property
    def in_errors(self) -> float | None:
        """The difference in units of its standard error; None where that is not known, or 0."""
        return self.difference / self.standard_error if self.standard_error else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """Of a sample; None for one value."""
    return statistics.stdev(values) if len(values) > 1 else None


def beside_printed(
    values: Sequence[float],
    printed: float,
    *,
    printed_sd: float | None = None,
    printed_runs: int | None = None,
) -> BesidePrinted:
    """Sets runs beside a printed value, in units of the joint standard error.

    Args:
      values: of our runs, at least one.
      printed: the value.
      printed_sd: standard deviation over the source's runs.
      printed_runs: how many there were; None takes the deviation as that of one run.
    """
    own = standard_deviation(values)
    error = None if own is None else own / math.sqrt(len(values))
    theirs = 0.0 if printed_sd is None else printed_sd / math.sqrt(printed_runs or 1)
    return BesidePrinted(
        difference=statistics.fmean(values) - printed,
        standard_error=None if error is None else math.hypot(error, theirs),
        printed_is_exact=printed_sd is None,
    )


def holm_adjusted(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """P-values that may be read one by one although several were looked at.

    Where all hypotheses of which the adjusted value is below a level are given up, the chance that
    a true one is among them is at most that level, however the tests depend on each other.

    Args:
      p_values: in [0, 1], by name.

    Returns:
      The adjusted ones, in the same order.

    Raises:
      ParameterError: one is no chance.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    for value in p_values.values():
        check.within(0, 1, p_value=value)
    adjusted: dict[Name, float] = {}
    largest = 0.0
    ascending = sorted(p_values.items(), key=lambda item: item[1])
    for rank, (name, value) in enumerate(ascending):
        largest = max(largest, min(1.0, (len(ascending) - rank) * value))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def area_under_learning_curve(curve: Sequence[tuple[float, float]]) -> float:
    """Mean height of a learning curve over its labels, by trapezoids.

    Args:
      curve: labels and figure, labels ascending; at least one point, whose height it is.

    Raises:
      ParameterError: labels do not ascend, or there is no point.
    """
    labels, figures = [point[0] for point in curve], [point[1] for point in curve]
    if not curve or any(later <= sooner for sooner, later in pairwise(labels)):
        raise ParameterError("a learning curve needs points whose numbers of labels ascend")
    if len(curve) == 1:
        return figures[0]
    area = float(scipy.integrate.trapezoid(figures, labels))
    return area / (labels[-1] - labels[0])
