from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from dpal.accounting import rdp
from dpal.accounting.events import PhaseExposure
from dpal.accounting.votes.cost_analysis import epsilon_of
from dpal.errors import ParameterError
from dpal.privacy import Adjacency
from tests.conftest import having

exposures = st.builds(
    PhaseExposure,
    steps=st.integers(1, 3000),
    sample_rate=st.floats(0.001, 1.0),
    noise_multiplier=st.floats(0.5, 10.0),
)
histories = st.lists(exposures, min_size=1, max_size=4)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5])
def test_without_subsampling_the_curve_is_the_gaussian_one(sigma):
    # Mironov (2017), Prop. 7: order / (2 sigma^2); the distance doubles for replace_one.
    step = PhaseExposure(steps=1, sample_rate=1.0, noise_multiplier=sigma)
    blanked, replaced = step.renyi(Adjacency.ZERO_OUT), step.renyi(Adjacency.REPLACE_ONE)
    known = np.isfinite(blanked)  # orders of no use are left at infinity
    assert known[rdp.ORDERS <= 16].all()
    expected = rdp.ORDERS[known] / (2 * sigma**2)
    assert blanked[known] == approx(expected, rel=1e-9)
    assert replaced[known] == approx(4 * expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(exposures)
def test_whole_orders_equal_the_binomial_sum(exposure):
    # Mironov, Talwar & Zhang (2019), eq. 30, evaluated with exact binomials.
    q, sigma = exposure.sample_rate, exposure.noise_multiplier
    ours = replace(exposure, steps=1).renyi(Adjacency.ZERO_OUT)
    for order in (2, 5, 16):
        terms = [
            math.log(math.comb(order, k))
            + (k * math.log(q) if k else 0.0)
            + ((order - k) * math.log1p(-q) if k < order and q < 1 else 0.0)
            + (k * k - k) / (2 * sigma**2)
            for k in range(order + 1)
            if q < 1 or k == order
        ]
        peak = max(terms)
        expected = (peak + math.log(sum(math.exp(t - peak) for t in terms))) / (order - 1)
        index = int(np.flatnonzero(order == rdp.ORDERS)[0])
        assert ours[index] == approx(expected, rel=1e-7, abs=1e-12)


@settings(max_examples=8, deadline=None)
@given(histories)
def test_never_above_dp_accounting_and_equal_on_whole_orders(history):
    orders = [o for o in rdp.ORDERS if o == int(o)]
    accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_SPECIAL)
    for one in history:
        step = dp_accounting.PoissonSampledDpEvent(
            one.sample_rate, dp_accounting.GaussianDpEvent(one.noise_multiplier)
        )
        accountant.compose(step, one.steps)
    theirs = accountant.get_epsilon(1e-5)
    # Ours also uses fractional orders, so it may be lower, never higher.
    assert rdp.epsilon_spent(history, delta=1e-5) <= theirs * (1 + 1e-7)


@settings(max_examples=25, deadline=None)
@given(histories)
def test_more_noise_never_costs_more(history):
    noisier = [replace(e, noise_multiplier=2 * e.noise_multiplier) for e in history]
    assert rdp.epsilon_spent(noisier, delta=1e-5) <= rdp.epsilon_spent(history, delta=1e-5)


@settings(max_examples=25, deadline=None)
@given(histories, st.floats(1e-9, 1e-2))
def test_a_smaller_delta_never_costs_less(history, delta):
    assert rdp.epsilon_spent(history, delta=delta / 10) >= rdp.epsilon_spent(history, delta=delta)


@settings(max_examples=15, deadline=None)
@given(histories)
def test_replacing_costs_at_least_as_much_as_blanking(history):
    blanked = rdp.epsilon_spent(history, delta=1e-5)
    assert rdp.epsilon_spent(history, delta=1e-5, adjacency=Adjacency.REPLACE_ONE) >= blanked


@pytest.mark.parametrize("adjacency", Adjacency)
def test_with_hardly_any_noise_a_chance_to_join_is_not_counted(adjacency):
    """Its integral would take more memory than there is: 40 GB at a thousandth of the norm."""
    once = PhaseExposure(steps=1, sample_rate=0.05, noise_multiplier=0.05)
    integrated, bound = (
        replace(once, noise_multiplier=sigma).renyi(adjacency) for sigma in (0.05, 0.0499999)
    )
    near = rdp.ORDERS <= 16
    assert (integrated[near] <= bound[near]).all()
    assert bound[near] == approx(integrated[near], rel=0.2)
    least = replace(once, noise_multiplier=1e-3).renyi(adjacency)
    assert least == approx(rdp.ORDERS / 2e-6, rel=1e-4)
    shift = 1 if adjacency is Adjacency.ZERO_OUT else 2
    always = replace(once, sample_rate=1.0, noise_multiplier=1e-3).renyi(adjacency)
    assert always == approx(shift**2 * rdp.ORDERS / 2e-6)


def test_repeating_a_phase_equals_lengthening_it():
    once = PhaseExposure(steps=300, sample_rate=0.02, noise_multiplier=1.1)
    assert rdp.epsilon_spent([once] * 3, delta=1e-5) == approx(
        rdp.epsilon_spent([replace(once, steps=900)], delta=1e-5)
    )


def test_nothing_done_costs_nothing():
    idle = PhaseExposure(steps=100, sample_rate=0.0, noise_multiplier=1.0)
    assert rdp.epsilon_spent([idle], delta=1e-5) == 0.0


def test_an_order_that_is_no_number_proves_nothing():
    curve = np.full(rdp.ORDERS.size, math.nan)
    assert rdp.to_epsilon(curve, delta=1e-5) == math.inf
    assert epsilon_of(curve, rdp.ORDERS, delta=1e-5) == math.inf
    curve[-1] = 0.5
    assert 0.5 < rdp.to_epsilon(curve, delta=1e-5) < math.inf


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_outside_of_its_range_is_refused(delta):
    with pytest.raises(ParameterError, check=having(parameter="delta")):
        rdp.epsilon_spent([], delta=delta)


@pytest.mark.parametrize(
    "values",
    [{"sample_rate": 1.1}, {"sample_rate": math.nan}, {"noise_multiplier": 0.0}, {"steps": -1}],
)
def test_an_impossible_exposure_cannot_be_built(values):
    fine = {"steps": 1, "sample_rate": 0.5, "noise_multiplier": 1.0}
    with pytest.raises(ParameterError):
        PhaseExposure(**{**fine, **values})
