"""Analyze Gauss: what a record can change, how much noise there is, and that it is useful."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from dpal.accounting.events import NoisyMoments
from dpal.errors import ParameterError
from dpal.mechanisms.private_pca import (
    Moments,
    clip_rows,
    components_of,
    moments_of,
    noisy_moments,
    sensitivity,
)
from dpal.privacy import Adjacency
from tests.conftest import nothing_released

FALSE_ALARM = 1e-6
EVENT = NoisyMoments(noise_multiplier=4.0)
ROWS = arrays(np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True, width=64))


def total(rows: np.ndarray, max_norm: float) -> np.ndarray:
    return moments_of([rows], centre=np.zeros(rows.shape[1]), max_norm=max_norm).total


@given(rows=ROWS, other=arrays(np.float64, 4, elements=st.floats(-1e300, 1e300)),
       max_norm=st.floats(1e-3, 1e3))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_one_record_changes_no_more_than_the_sensitivity(rows, other, max_norm):
    whole = total(rows, max_norm)
    blank, replaced = rows.copy(), rows.copy()
    blank[1], replaced[1] = 0.0, other
    without = np.linalg.norm(whole - total(blank, max_norm))
    instead = np.linalg.norm(whole - total(replaced, max_norm))
    assert without <= sensitivity(max_norm, Adjacency.ZERO_OUT)
    assert instead <= sensitivity(max_norm, Adjacency.REPLACE_ONE)


def test_the_sensitivities_are_reached():
    # Nothing smaller would do: a clip that is left out, or sqrt(2) forgotten, is caught here.
    one, other = np.array([[3.0, 0.0]]), np.array([[0.0, 5.0]])
    moved = np.linalg.norm(total(one, 2.0) - total(other, 2.0))
    assert np.linalg.norm(total(one, 2.0)) == pytest.approx(4.0, rel=1e-5)
    assert moved == pytest.approx(4 * math.sqrt(2), rel=1e-5)


def test_clipping_survives_anything():
    rows = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e308, 1e308], [0.0, 0.0], [3.0, 4.0]])
    clipped = clip_rows(rows, 1.0)
    assert np.isfinite(clipped).all()
    assert np.linalg.norm(clipped, axis=1) == pytest.approx([0, 0, 1, 0, 1], rel=1e-5)
    assert clip_rows(np.array([[0.3, 0.4]]), 1.0) == pytest.approx(np.array([[0.3, 0.4]]))


def coordinates(draws: list[np.ndarray]) -> np.ndarray:
    """Isometric coordinates of symmetric matrices, one after the other."""
    above = np.triu_indices(len(draws[0]))
    weight = np.where(above[0] == above[1], 1.0, math.sqrt(2))
    return np.concatenate([one[above] * weight for one in draws])


def test_noise_has_one_size_in_every_direction_of_the_matrix(bits):
    # 300 matrices of 55 coordinates: the variance is known to 1.1 %, so 5 % less noise are 9
    # standard errors (off-diagonals without sqrt(2) would be 40). Chi-square, false alarm 1e-6.
    moments = Moments(np.zeros((10, 10)), 3.0)
    draws = [
        noisy_moments(moments, EVENT, adjacency=Adjacency.ZERO_OUT, rng=bits) for _ in range(300)
    ]
    assert all((one == one.T).all() for one in draws)
    noise = coordinates(draws) / (EVENT.noise_multiplier * 9.0)

    def chance(scale: float) -> float:
        return float(2 * min(stats.chi2.cdf((noise**2).sum() / scale**2, noise.size),
                             stats.chi2.sf((noise**2).sum() / scale**2, noise.size)))  # fmt: skip

    assert chance(1.0) > FALSE_ALARM
    assert chance(1.05) < FALSE_ALARM
    assert chance(0.95) < FALSE_ALARM
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM


def test_replacing_needs_more_noise(bits):
    moments = Moments(np.zeros((40, 40)), 1.0)
    spread = [
        np.std(coordinates([noisy_moments(moments, EVENT, adjacency=one, rng=bits)]))
        for one in Adjacency
    ]
    ratio = spread[list(Adjacency).index(Adjacency.REPLACE_ONE)]
    ratio /= spread[list(Adjacency).index(Adjacency.ZERO_OUT)]
    assert ratio == pytest.approx(math.sqrt(2), rel=0.2)


def test_components_are_those_of_the_data(bits):
    # Privacy notes 5.6: epsilon 0.3 alone (noise 11.2) keeps 99 % of the best variance.
    generator = np.random.default_rng(7)
    scales = np.geomspace(1.0, 0.02, 32)
    turn = np.linalg.qr(generator.normal(size=(32, 32)))[0]
    rows = (generator.normal(size=(10_000, 32)) * scales) @ turn
    length = float(np.median(np.linalg.norm(rows, axis=1)))
    moments = moments_of(np.array_split(rows, 7), centre=np.zeros(32), max_norm=length)
    event = NoisyMoments(noise_multiplier=11.2)
    released = noisy_moments(moments, event, adjacency=Adjacency.ZERO_OUT, rng=bits)
    found = components_of(released, 8)
    assert found @ found.T == pytest.approx(np.eye(8), abs=1e-9)
    best = components_of(moments.total, 8)
    kept, most = ((rows @ one.T).var(axis=0).sum() for one in (found, best))
    assert kept > 0.97 * most


def test_widths_that_do_not_fit_are_one_sentence():
    with pytest.raises(ParameterError, match="embeddings have shape", check=nothing_released):
        moments_of([np.zeros((3, 5))], centre=np.zeros(4), max_norm=1.0)
    with pytest.raises(ParameterError, match=r"choice\.components .*most 4"):
        components_of(np.eye(4), 5)
    assert "private" in repr(Moments(np.eye(2), 1.0))
