"""Telling a private cost: what it costs, how often it fails, and that its noise is right.

The bit source repeats, so each test passes or fails always. Had it been drawn afresh, a
test would reject the right noise with the chance FALSE_ALARM.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pytest import approx
from scipy import stats
from scipy.special import logsumexp

from dpal.accounting.votes.smooth_sensitivity import published_sanitizing_cost, sanitizing_cost
from dpal.errors import ParameterError
from dpal.mechanisms.sanitized_cost import GRID, SanitizingTerms, sanitize
from tests.conftest import RepeatableBits
from tests.variants import quick_and_slow

FALSE_ALARM = 1e-6
TEXT = (Path(__file__).parent.parent / "golden" / "voting.json").read_text(encoding="utf-8")
GOLDEN = json.loads(TEXT)["smooth_sensitivity"]

# -- what telling costs ------------------------------------------------------------------


def gaussian_rdp(order: float, shift: float, ratio: float) -> float:
    """Divergence of N(0, 1) from N(shift, ratio^2), by the trapezoidal rule."""
    # The integrand is a Gaussian itself; the grid covers it for every case tested here.
    x = np.linspace(-120, 120, 40_001)
    p = -(x**2) / 2
    q = -(((x - shift) / ratio) ** 2) / 2 - math.log(ratio)
    moment = logsumexp(order * p + (1 - order) * q) + math.log((x[1] - x[0]) / math.sqrt(2 * np.pi))
    return float(moment / (order - 1))


TERMS = [(3.5, 0.1343, 1.4288), (8, 0.05, 1), (8, 0.05, 10), (3, 0.1, 3), (1.5, 0.02, 30)]


@pytest.mark.parametrize(("order", "beta", "noise"), TERMS)
def test_telling_costs_the_worst_that_the_promises_allow(
    order: float, beta: float, noise: float
) -> None:
    said = sanitizing_cost(order, beta=beta, noise=noise)
    divergences = [
        gaussian_rdp(order, share * min(1, ratio) / noise, ratio)
        for ratio in np.exp(np.linspace(-beta, beta, 9))
        for share in (-1, 0.5, 1)
    ]
    assert max(divergences) == approx(said, rel=1e-8)


@pytest.mark.parametrize(("order", "beta", "noise"), [TERMS[0], TERMS[1]])
def test_the_published_cost_of_telling_is_no_bound(order: float, beta: float, noise: float) -> None:
    # The first of them are the terms of the published run above.
    worst = gaussian_rdp(order, math.exp(-beta) / noise, math.exp(-beta))
    assert worst > 1.25 * published_sanitizing_cost(order, beta=beta, noise=noise)


@given(st.floats(1.1, 60), st.floats(0.2, 50))
def test_with_constant_sensitivity_telling_costs_what_gaussian_noise_costs(
    order: float, noise: float
) -> None:
    found = sanitizing_cost(order, beta=0, noise=noise)
    assert found == approx(order / (2 * noise**2), rel=1e-12)


@given(st.floats(1.1, 8), st.floats(0, 0.06), st.floats(0.5, 20))
def test_more_noise_or_a_steadier_scale_never_costs_more(
    order: float, beta: float, noise: float
) -> None:
    said = sanitizing_cost(order, beta=beta, noise=noise)
    assert sanitizing_cost(order, beta=beta, noise=2 * noise) <= said
    assert sanitizing_cost(order, beta=beta / 2, noise=noise) <= said * (1 + 1e-12) + 1e-14


def test_published_cost_of_telling() -> None:
    for case in GOLDEN["gnss"]:
        order, terms = case["order"], {"beta": case["beta"], "noise": case["sigma"]}
        if "error" in case:
            with pytest.raises(ParameterError):
                published_sanitizing_cost(order, **terms)
        else:
            assert published_sanitizing_cost(order, **terms) == approx(case["rdp"], rel=1e-9)


# -- the release -------------------------------------------------------------------------

RELEASE = SanitizingTerms(order=4, beta=0.05, noise=2, margin=2)
COST, SMOOTH, DRAWS = 30.0, 1.5, 5_000


def draws(terms: SanitizingTerms, seed: int, smooth: float = SMOOTH) -> NDArray[np.float64]:
    rng = RepeatableBits(seed)
    return np.array([sanitize(COST, smooth, terms=terms, rng=rng).value for _ in range(DRAWS)])


def fits(values: NDArray[np.float64], terms: SanitizingTerms) -> bool:
    """Kolmogorov-Smirnov test of the law that the docstring promises, with FALSE_ALARM."""
    scale = terms.noise * SMOOTH / (1 - terms.margin * terms.noise * math.expm1(terms.beta))
    law = stats.norm(COST + terms.margin * scale, scale)
    return bool(stats.kstest(values, law.cdf).pvalue > FALSE_ALARM)


def test_the_released_number_has_the_promised_law() -> None:
    assert fits(draws(RELEASE, seed=1), RELEASE)


@pytest.mark.parametrize("wrong", quick_and_slow(["scale"], ["scale", "margin", "widening"]))
def test_another_law_is_caught(wrong: str) -> None:
    # Each moves the mean by 0.2 standard deviations or more, so the distribution function by
    # 0.07 or more; with 5000 draws, 0.038 is rejected at FALSE_ALARM.
    if wrong == "scale":  # a tenth too little noise
        values = draws(RELEASE, seed=2, smooth=0.9 * SMOOTH)
    elif wrong == "margin":
        values = draws(replace(RELEASE, margin=1.8), seed=3)
    else:  # the noise of R alone, as if the margin told nothing
        values = COST + (draws(RELEASE, seed=4) - COST) / RELEASE.widening
    assert not fits(values, RELEASE)


@pytest.mark.parametrize("margin", quick_and_slow([2], [0, 0.5, 1, 2]))
def test_it_fails_as_often_as_said(margin: float) -> None:
    terms = replace(RELEASE, margin=margin)
    assert terms.failure == approx(stats.norm.sf(margin), rel=1e-12)
    failed = int((draws(terms, seed=5) < COST).sum())
    assert stats.binomtest(failed, DRAWS, terms.failure).pvalue > FALSE_ALARM
    # Power: a chance twice as large is told from this one.
    assert stats.binomtest(failed, DRAWS, min(1.0, 2 * terms.failure)).pvalue < FALSE_ALARM


@given(
    st.floats(0, 0.1),
    st.floats(0.3, 4),
    st.floats(0, 3),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.floats(0.01, 9),
)
def test_the_margin_is_paid_for(
    beta: float, noise: float, margin: float, share: float, tilt: float, smooth: float
) -> None:
    if margin * noise * math.expm1(beta) > 0.95:
        return
    terms = SanitizingTerms(order=2, beta=beta, noise=noise, margin=margin)
    # Any two neighbours: smooth sensitivities and costs as far apart as they may be.
    other = smooth * math.exp(tilt * beta)
    scales = [terms.noise * terms.widening * s for s in (smooth, other)]
    means = [terms.margin * scales[0], share * min(smooth, other) + terms.margin * scales[1]]
    for here, there in ((0, 1), (1, 0)):
        shift = (means[there] - means[here]) / scales[here]
        ratio = scales[there] / scales[here]
        width = 1 + terms.order * (ratio**2 - 1)
        divergence = terms.order * shift**2 / (2 * width) + (
            terms.order * math.log(ratio) - math.log(width) / 2
        ) / (terms.order - 1)
        assert divergence <= terms.cost * (1 + 1e-9) + 1e-12


def test_a_margin_put_on_afterwards_would_tell_more_than_is_paid_for() -> None:
    # Without `widening`, neighbours on the rim of what is allowed: the reason it is there.
    beta, noise, margin, order = 0.1, 2.0, 3.0, 3.0
    here, there = (noise * s for s in (1.0, math.exp(-beta)))
    means = (margin * here, margin * there - math.exp(-beta))
    divergence = gaussian_rdp(order, (means[1] - means[0]) / here, there / here)
    assert divergence > 1.5 * sanitizing_cost(order, beta=beta, noise=noise)


def test_the_number_lies_on_a_public_grid_and_is_no_negative_cost() -> None:
    rng = RepeatableBits(6)
    for scale in (0.0, 1e-12, 1e-3, 50.0):
        for _ in range(50):
            value = sanitize(0.7, scale, terms=replace(RELEASE, margin=0), rng=rng).value
            assert value >= 0
            assert value / GRID == round(value / GRID)


def test_a_cost_that_cannot_change_is_told_as_it_is() -> None:
    value = sanitize(0.7, 0.0, terms=RELEASE, rng=RepeatableBits(7)).value
    assert 0.7 <= value <= 0.7 + GRID


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sanitizing_cost(1, beta=0.1, noise=1),
        lambda: sanitizing_cost(5.6, beta=0.1, noise=1),  # 1 / (1 - e^-0.2) = 5.517
        lambda: sanitizing_cost(2, beta=0.1, noise=0),
        lambda: sanitizing_cost(2, beta=math.nan, noise=1),
        lambda: published_sanitizing_cost(5, beta=0.1, noise=1),
        lambda: replace(RELEASE, order=11),
        lambda: replace(RELEASE, margin=-1),
        lambda: replace(RELEASE, margin=8.1),
        lambda: replace(RELEASE, margin=math.nan),
        lambda: replace(RELEASE, noise=0),
        lambda: sanitize(-1, 1, terms=RELEASE, rng=RepeatableBits(8)),
        lambda: sanitize(1, math.inf, terms=RELEASE, rng=RepeatableBits(8)),
        lambda: sanitize(math.nan, 1, terms=RELEASE, rng=RepeatableBits(8)),
    ],
)
def test_what_cannot_be_told_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        wrong()


def test_a_margin_that_cannot_be_paid_for_says_what_to_change() -> None:
    with pytest.raises(ParameterError, match="lower one"):
        SanitizingTerms(order=2, beta=0.2, noise=2, margin=4)
