"""Means with confidence intervals over seeds, and whether one way beats another by more than noise.

Ways that are compared run with the same seeds, so that their differences are taken seed by seed:
what a seed decides for both (initial weights, first cohort, split) drops out.

Source: paired t interval: Student (1908), "The probable error of a mean". Sign flips: Fisher
(1935), "The design of experiments", Sec. 21. Several comparisons: Bonferroni's inequality.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import scipy  # which loads its parts as they are used

from dpal import check
from dpal.errors import ParameterError

CONFIDENCE = 0.95
_MOST_FLIPPED = 16  # pairs whose signs are flipped in all 2**n ways
_ROUNDING = 1e-12  # of figures in [0, 1], far below what one record of any test set changes
_MOST_DIGITS = 4  # of points in words

Seed = TypeVar("Seed")  # whatever names a repetition


class ComparisonVerdict(StrEnum):
    """What a comparison says."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference beyond noise"
    ONE_RUN = "one run, which has no interval"


@dataclass(frozen=True, kw_only=True)
class MeanEstimate:
    """A mean over seeds.

    Attributes:
      mean: of the values.
      half_width: of Student's t interval around it; None where there is one value.
      runs: number of values.
    """

    mean: float
    half_width: float | None
    runs: int


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A way beside the reference, on the same seeds. Shares in [0, 1], higher is better.

    Attributes:
      difference: mean of the way less that of the reference, over the seeds that both have.
      half_width: of Student's t interval around it; None where there is one pair.
      pairs: seeds that both have.
      confidence: of the interval; above 95 % where several ways are compared, so that all their
        intervals hold together with 95 %.
      p_value: two-sided, paired t; None where there is one pair.
      exact_p_value: two-sided, over all ways to flip the differences' signs: exact where they are
        symmetric around 0 if nothing differs. None for one pair or more than 16.
    """

    difference: float
    half_width: float | None
    pairs: int
    confidence: float
    p_value: float | None
    exact_p_value: float | None

    @property
    def verdict(self) -> ComparisonVerdict:
        """What the interval says; where all differences are equal, what their signs say."""
        if self.half_width is None:
            return ComparisonVerdict.ONE_RUN
        if self.half_width == 0:
            # Coarse figures may tie by chance, and a spread of 0 is no certainty: n equal signs
            # have a chance of 2 / 2^n.
            differs = (
                abs(self.difference) > _ROUNDING and 2.0 ** (1 - self.pairs) <= 1 - self.confidence
            )
        else:
            differs = abs(self.difference) > self.half_width
        if not differs:
            return ComparisonVerdict.NO_DIFFERENCE
        return ComparisonVerdict.BETTER if self.difference > 0 else ComparisonVerdict.WORSE

    def in_words(self) -> str:
        """Such as "better by 1.2 ± 0.8 points"; points are hundredths."""
        points = 100 * self.difference
        if self.half_width is None:
            return f"{points:+.1f} points in {self.verdict}"
        half = 100 * self.half_width
        digits = 1 if half >= 0.095 else 2
        while digits < _MOST_DIGITS and round(abs(points), digits) == round(half, digits) != 0:
            digits += 1  # which of them is larger is what the verdict says
        if self.verdict is ComparisonVerdict.NO_DIFFERENCE:
            return f"{self.verdict} ({points:+.{digits}f} ± {half:.{digits}f} points)"
        return f"{self.verdict} by {abs(points):.{digits}f} ± {half:.{digits}f} points"

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "difference": self.difference,
            "half_width": self.half_width,
            "pairs": self.pairs,
            "confidence": self.confidence,
            "p_value": self.p_value,
            "exact_p_value": self.exact_p_value,
            "verdict": self.verdict.name.lower(),
            "in_words": self.in_words(),
        }


def estimate_mean(values: Sequence[float], *, confidence: float = CONFIDENCE) -> MeanEstimate:
    """The mean of independent values with its t interval.

    Args:
      values: at least one, finite.
      confidence: of the interval, strictly between 0 and 1.

    Raises:
      ParameterError: there is none, or one is not finite.
    """
    _check_values(values, confidence)
    return MeanEstimate(
        mean=statistics.fmean(values), half_width=_half_width(values, confidence), runs=len(values)
    )


def compare_pairs(
    way: Mapping[Seed, float], reference: Mapping[Seed, float], *, confidence: float = CONFIDENCE
) -> PairedComparison:
    """Compares two ways on the seeds that both have.

    Args:
      way: figure by seed.
      reference: the same of what it is compared with.
      confidence: of the interval, strictly between 0 and 1.

    Raises:
      ParameterError: they share no seed, or a figure is not finite.
    """
    differences = [way[seed] - reference[seed] for seed in way if seed in reference]
    _check_values(differences, confidence)
    half_width, several = _half_width(differences, confidence), len(differences) > 1
    return PairedComparison(
        difference=statistics.fmean(differences),
        half_width=half_width,
        pairs=len(differences),
        confidence=confidence,
        p_value=_p_value(differences) if several else None,
        exact_p_value=_p_value_of_signs(differences)
        if several and len(differences) <= _MOST_FLIPPED
        else None,
    )


def compare_with_reference(
    figures: Mapping[str, Mapping[Seed, float]], reference: str
) -> dict[str, PairedComparison]:
    """Compares all ways with one of them, so that all intervals hold together with 95 %.

    Each has a confidence of 1 - 0.05 / (number of comparisons), which makes no assumption about
    how the comparisons hang together, though all of them share the reference's runs.

    Args:
      figures: by way, by seed.
      reference: which of the ways.

    Returns:
      One comparison for each of the other ways that shares a seed with the reference.
    """
    base = figures[reference]
    others = [name for name in figures if name != reference and figures[name].keys() & base.keys()]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(others))
    return {name: compare_pairs(figures[name], base, confidence=confidence) for name in others}


def _check_values(values: Sequence[float], confidence: float) -> None:
    check.inside(0, 1, confidence=confidence)
    if not values:
        raise ParameterError("there is no run to take a mean of, or no seed that both ways have")
    if not all(math.isfinite(value) for value in values):
        raise ParameterError("a run's figure is not finite, so that runs cannot be compared")


def _half_width(values: Sequence[float], confidence: float) -> float | None:
    if len(values) < 2:
        return None
    quantile = scipy.stats.t.ppf((1 + confidence) / 2, len(values) - 1)
    return float(quantile) * _standard_error(values)


def _standard_error(values: Sequence[float]) -> float:
    error = statistics.stdev(values) / math.sqrt(len(values))
    # Differences of equal figures may differ in their last digits.
    return error if error > _ROUNDING else 0.0


def _p_value(differences: Sequence[float]) -> float:
    error, mean = _standard_error(differences), statistics.fmean(differences)
    if error == 0:
        return 1.0 if abs(mean) <= _ROUNDING else 2.0 ** (1 - len(differences))
    return float(2 * scipy.stats.t.sf(abs(mean) / error, len(differences) - 1))


def _p_value_of_signs(differences: Sequence[float]) -> float:
    """Share of all sign flips whose mean lies as far from 0, or farther."""
    count, values = len(differences), np.asarray(differences)
    flips = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    means = np.abs(flips @ values)
    return float(np.mean(means >= abs(values.sum()) - count * _ROUNDING))
