from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.accounting.safe_search import first_true, largest_safe, smallest_safe
from dpal.errors import ParameterError


@given(st.floats(1, 1e4), st.floats(0.5, 3))
def test_the_least_noise_is_on_the_private_side(limit, power):
    def cost(noise: float) -> float:
        return 100 / noise**power

    found = smallest_safe(cost, limit, low=0.1)
    assert cost(found) <= limit
    assert found == 0.1 or cost(found * (1 - 1e-5)) > limit


@given(st.floats(1e-6, 2), st.floats(0.3, 3))
def test_the_greatest_rate_is_on_the_private_side(limit, power):
    def cost(rate: float) -> float:
        return rate**power

    found = largest_safe(cost, limit, low=1e-9, high=1.0)
    assert cost(found) <= limit
    assert found in (0.0, 1.0) or cost(found * (1 + 1e-5)) > limit


def test_a_step_function_ends_on_the_private_side():
    assert largest_safe(lambda x: 2.0 if x > 0.25 else 1.0, 1.5, low=0.0001, high=1.0) <= 0.25
    assert smallest_safe(lambda x: 1.0 if x > 3 else 2.0, 1.5, low=0.1) > 3


def test_what_cannot_be_met_is_said():
    assert largest_safe(lambda rate: 5.0, 1.0, low=1e-9, high=1.0) == 0.0
    with pytest.raises(ParameterError, match="no amount"):
        smallest_safe(lambda noise: 5.0, 1.0, low=0.1)
    with pytest.raises(ParameterError):  # NaN is not "within the limit"
        smallest_safe(lambda noise: float("nan"), 1.0, low=0.1)


@given(st.integers(1, 500), st.integers(1, 10_000))
def test_the_first_integer(low, threshold):
    assert first_true(lambda n: n >= threshold, low=low) == max(low, threshold)


@pytest.mark.parametrize(
    "search",
    [
        lambda cost: smallest_safe(cost, 0.3, low=0.01),
        lambda cost: largest_safe(lambda x: -cost(x), -0.3, low=0.01, high=100.0),
    ],
    ids=["smallest", "largest"],
)
def test_nothing_is_computed_twice(search):
    asked = []

    def cost(noise: float) -> float:
        asked.append(noise)
        return 1 / noise

    search(cost)
    assert len(asked) == len(set(asked))
