"""Statistics of a book, against other ways to the same numbers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dpal.book.statistics import (
    area_under_learning_curve,
    beside_printed,
    holm_adjusted,
    standard_deviation,
)
from dpal.errors import ParameterError

CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def closed_testing(p_values):
    """Holm's procedure as the closure of Bonferroni's: every set of hypotheses is tested.

    Source: Marcus, Peritz & Gabriel (1976).
    """
    names = range(len(p_values))
    subsets = [set(chosen) for size in names for chosen in combinations(names, size + 1)]
    bonferroni = {
        frozenset(some): min(1.0, len(some) * min(p_values[name] for name in some))
        for some in subsets
    }
    return [max(value for some, value in bonferroni.items() if name in some) for name in names]


@given(CHANCES)
def test_holm_is_the_closure_of_bonferroni(p_values):
    adjusted = holm_adjusted(dict(enumerate(p_values)))
    assert list(adjusted.values()) == pytest.approx(closed_testing(p_values))
    assert list(adjusted) == list(range(len(p_values)))


def test_a_p_value_is_a_chance():
    with pytest.raises(ParameterError):
        holm_adjusted({"a": 1.2})


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1), st.floats(0.01, 0.3),
       st.integers(2, 9))  # fmt: skip
def test_joint_errors_are_those_of_welch(values, printed, sd, runs):
    own = float(np.std(values, ddof=1))
    beside = beside_printed(values, printed, printed_sd=sd, printed_runs=runs)
    welch = scipy.stats.ttest_ind_from_stats(
        np.mean(values), own, len(values), printed, sd, runs, equal_var=False
    )
    assert beside.in_errors == pytest.approx(welch.statistic)
    assert not beside.printed_is_exact


def test_a_value_without_spread_counts_as_exact_and_one_run_has_no_error():
    beside = beside_printed([0.8, 0.9], 0.7)
    assert beside.in_errors == pytest.approx(0.15 / (np.std([0.8, 0.9], ddof=1) / np.sqrt(2)))
    assert beside.printed_is_exact
    assert beside_printed([0.8], 0.7).in_errors is None
    assert standard_deviation([0.8]) is None
    assert beside_printed([0.8, 0.8], 0.7).in_errors is None


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1)), min_size=2, max_size=6))
def test_the_area_is_the_mean_height_of_the_polyline(steps):
    labels = np.cumsum([step for step, _ in steps]).astype(float)
    figures = [figure for _, figure in steps]
    area = area_under_learning_curve(list(zip(labels, figures, strict=True)))
    dense = np.linspace(labels[0], labels[-1], 20_001)
    assert area == pytest.approx(float(np.mean(np.interp(dense, labels, figures))), abs=2e-3)


def test_a_curve_has_ascending_labels():
    assert area_under_learning_curve([(100, 0.7)]) == 0.7
    for curve in ([], [(100, 0.5), (100, 0.6)], [(200, 0.5), (100, 0.6)]):
        with pytest.raises(ParameterError):
            area_under_learning_curve(curve)
