"""What one record can change in the sums of a head, and the noise that covers it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import Charge, NoisyStatistics, Release
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.mechanisms.head_statistics import CONSTANT, HeadStatistics, HeadSums
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import BitSource, secure
from tests.variants import quick_and_slow

ONE = np.ones(1)
FALSE_ALARM = 1e-6
KINDS = [
    HeadStatistics(features=3, classes=2, task=Task.SINGLE_LABEL, moments=True),
    HeadStatistics(features=3, classes=5, task=Task.SINGLE_LABEL, moments=True),
    HeadStatistics(features=2, classes=1, task=Task.MULTI_LABEL, moments=True),
    HeadStatistics(features=3, classes=3, task=Task.MULTI_LABEL, moments=True),
    HeadStatistics(features=3, classes=2, task=Task.SINGLE_LABEL, moments=False),
    HeadStatistics(features=3, classes=5, task=Task.SINGLE_LABEL, moments=False),
]


def added(sums: HeadStatistics, features, label) -> HeadSums:
    """The sums over one record."""
    return sums.of([(np.asarray(features, dtype=float)[None], np.array([label]), ONE)])


def vector(sums: HeadSums) -> np.ndarray:
    """All numbers that are released, in coordinates with one noise: computed entry by entry."""
    numbers = list(sums.products.ravel())
    if sums.moments is not None:
        width = len(sums.moments)
        numbers += [
            sums.moments[i, j] * (1 if i == j else math.sqrt(2))
            for i in range(width)
            for j in range(i, width)
        ]
    return np.array(numbers)


def every_label(sums: HeadStatistics) -> list:
    if sums.task is Task.MULTI_LABEL:
        return [list(each) for each in product((0, 1, -1), repeat=sums.classes)]
    return list(range(sums.classes))


def apart(sums: HeadStatistics, adjacency: Adjacency, first, second, labels) -> float:
    one = vector(added(sums, first, labels[0]))
    if adjacency is Adjacency.ZERO_OUT:
        return float(np.linalg.norm(one))
    return float(np.linalg.norm(one - vector(added(sums, second, labels[1]))))


def greatest(sums: HeadStatistics, adjacency: Adjacency) -> float:
    """The most that a search finds over records, and over all pairs of their labels."""
    rng, found = np.random.default_rng(0), 0.0
    pairs = list(product(every_label(sums), repeat=2))
    if adjacency is Adjacency.ZERO_OUT:  # there is no second record
        pairs = [(label, label) for label in every_label(sums)]
    for number, labels in enumerate(pairs):
        # What the derivation names, and what it may have missed: a search from chance.
        start = rng.normal(size=2 * sums.features)
        if sums.classes <= 3 and number % max(1, len(pairs) // 40) == 0:
            climbed = scipy.optimize.minimize(
                lambda x, labels=labels: (
                    -apart(sums, adjacency, x[: sums.features], x[sums.features :], labels)
                ),
                start,
                method="Nelder-Mead",
                options={"maxiter": 400},
            )
            found = max(found, -climbed.fun)
        for angle in np.linspace(0, math.pi, 91):
            one, other = np.zeros(sums.features), np.zeros(sums.features)
            one[0], other[:2] = 1.0, (math.cos(angle), math.sin(angle))
            found = max(found, apart(sums, adjacency, one, other, labels))
    return found


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("sums", quick_and_slow([*KINDS[:3], *KINDS[4:]], KINDS), ids=str)
def test_a_search_over_records_reaches_the_sensitivity_and_no_more(sums, adjacency):
    stated, found = sums.sensitivity(adjacency), greatest(sums, adjacency)
    assert found <= stated
    assert found == pytest.approx(stated, rel=8e-4)  # angles are two degrees apart


@given(
    records=arrays(float, (2, 3), elements=st.floats(allow_nan=True, allow_infinity=True)),
    labels=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    moments=st.booleans(),
)
def test_no_record_changes_more_whatever_its_features(records, labels, moments):
    sums = HeadStatistics(features=3, classes=5, task=Task.SINGLE_LABEL, moments=moments)
    for adjacency in Adjacency:
        assert apart(sums, adjacency, records[0], records[1], labels) <= sums.sensitivity(adjacency)


@given(
    members=arrays(float, (4, 3), elements=st.floats(-5, 5)),
    others=arrays(float, (3, 3), elements=st.floats(-5, 5)),
)
def test_a_group_changes_no_more_than_a_record(members, others):
    sums = KINDS[1]

    def of(rows):
        return vector(sums.of([(rows, np.arange(len(rows)), np.full(len(rows), 1 / len(rows)))]))

    assert np.linalg.norm(of(members)) <= sums.sensitivity(Adjacency.ZERO_OUT)
    distance = np.linalg.norm(of(members) - of(others))
    assert distance <= sums.sensitivity(Adjacency.REPLACE_ONE)


def test_sums_are_the_plain_ones_and_masked_labels_add_nothing():
    sums = HeadStatistics(features=2, classes=2, task=Task.MULTI_LABEL, moments=True)
    rows, labels = np.array([[0.3, 0.4], [0.6, 0.0]]), np.array([[1, 0], [-1, 1]])
    found = sums.of([(rows[:1], labels[:1], ONE), (rows[1:], labels[1:], ONE)])
    u = np.hstack([rows * math.sqrt(1 - CONSTANT**2), np.full((2, 1), CONSTANT)])
    codes = np.array([[1, -1], [0, 1]]) / math.sqrt(2)
    assert found.moments == pytest.approx(u.T @ u)
    assert found.products == pytest.approx(u.T @ codes)
    assert sums.coordinates == 6 + 6


def test_a_record_counts_once_at_most():
    rows = np.zeros((1, 3))
    with pytest.raises(ParameterError):
        KINDS[1].of([(rows, np.array([0]), np.array([1.5]))])
    with pytest.raises(ParameterError):
        KINDS[1].of([(np.zeros((1, 4)), np.array([0]), ONE)])
    with pytest.raises(ParameterError):
        HeadStatistics(features=3, classes=2, task=Task.MULTI_LABEL, moments=False)


def p_value(noise: np.ndarray) -> float:
    """Chance of a sample variance as far from 1 as this one, of so many standard normals."""
    squares, n = float(noise @ noise), noise.size
    below = scipy.stats.chi2.cdf(squares, n)
    return 2 * min(below, 1 - below)


def drawn(sums: HeadStatistics, adjacency: Adjacency, *, rng: BitSource) -> np.ndarray:
    """Noise of many releases over what it should be, in coordinates with one noise."""
    event = NoisyStatistics(noise_multiplier=3.0)
    private = added(sums, np.full(sums.features, 0.2), 1)
    parts = []
    for _ in range(400):
        released = sums.release(private, event, adjacency=adjacency, rng=rng)
        parts.append(vector(released) - vector(private))
        assert released.variance == pytest.approx((3.0 * sums.sensitivity(adjacency)) ** 2)
    return np.concatenate(parts) / (3.0 * sums.sensitivity(adjacency))


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("sums", [KINDS[1], KINDS[5]], ids=str)
def test_noise_is_normal_and_as_large_as_the_event_says(sums, adjacency, bits):
    noise = drawn(sums, adjacency, rng=bits)
    assert p_value(noise) > FALSE_ALARM
    assert scipy.stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    # Power: noise that is 4 % too small or too large is found by so many values.
    assert p_value(0.96 * noise) < FALSE_ALARM or noise.size < 9000
    assert p_value(1.1 * noise) < FALSE_ALARM and p_value(noise / 1.1) < FALSE_ALARM


def test_released_moments_are_symmetric_and_no_two_releases_are_alike():
    sums, event = KINDS[1], NoisyStatistics(noise_multiplier=1.0)
    private = added(sums, [0.1, 0.2, 0.3], 0)
    first, second = (
        sums.release(private, event, adjacency=Adjacency.ZERO_OUT, rng=secure()) for _ in range(2)
    )
    assert first.moments is not None and second.moments is not None
    assert (first.moments == first.moments.T).all()
    assert (first.moments != second.moments).all() and (first.products != second.products).all()
    assert repr(private) == "HeadSums(private)"
    both = first.plus(second)
    assert both.variance == first.variance + second.variance
    assert both.products == pytest.approx(first.products + second.products)


@pytest.mark.parametrize("noise_multiplier", [0.7, 2.0, 9.0])
def test_epsilon_is_that_of_the_gaussian_mechanism(noise_multiplier):
    """Balle & Wang (2018), Theorem 8, and dp-accounting's Gaussian."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    charge = Charge(cohorts=("0",), event=NoisyStatistics(noise_multiplier=noise_multiplier))
    released = [Release(name="phase-0/training", kind="training", phase=0, charges=(charge,))]
    for adjacency in Adjacency:
        target = PrivacyTarget(epsilon=50.0, delta=1e-5, adjacency=adjacency)
        ours = campaign_epsilon(released, target)
        half = 1 / (2 * noise_multiplier)
        exact = scipy.stats.norm.cdf(half - ours * noise_multiplier) - math.exp(
            ours
        ) * scipy.stats.norm.cdf(-half - ours * noise_multiplier)
        assert exact <= 1e-5
        theirs = pld.from_gaussian_mechanism(noise_multiplier).get_epsilon_for_delta(1e-5)
        assert ours == pytest.approx(theirs, abs=2e-3)
