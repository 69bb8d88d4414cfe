"""Noise has the law that the accountant assumes; each test is also shown to have power.

The bit source repeats, so a test passes or fails always. Thresholds are set for a false
alarm of 1e-6 had the seed been drawn afresh.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpal.accounting.events import LAPLACE_GRID
from dpal.errors import ParameterError
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.mechanisms.gaussian import noisy_sum, standard_normal
from dpal.mechanisms.poisson_sampling import include, uniform_below
from dpal.randomness import secure, seeded
from tests.conftest import RepeatableBits, having

FALSE_ALARM = 1e-6


def laplace_p_value(noise: np.ndarray, scale: float) -> float:
    """Chi-square of discrete Laplace noise in 40 bins of equal expected mass."""
    q = math.exp(-1 / scale)

    def cdf(k: np.ndarray) -> np.ndarray:
        below = q ** (-k) / (1 + q)
        above = 1 - q ** (k + 1) / (1 + q)
        return np.where(k < 0, below, above)

    edges = np.unique(np.round(stats.laplace.ppf(np.arange(1, 40) / 40, scale=scale)))
    counts, _ = np.histogram(noise, [-np.inf, *(edges + 0.5), np.inf])
    masses = np.diff([0.0, *cdf(edges), 1.0])
    return stats.chisquare(counts, masses * noise.size).pvalue


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0, 1 / 3])
def test_laplace_noise_has_its_law(epsilon, bits):
    noise = laplace_noise(200_000, epsilon, rng=bits)
    assert laplace_p_value(noise, LAPLACE_GRID / epsilon) > FALSE_ALARM


@pytest.mark.parametrize("wrong", [0.97, 1.03])
def test_a_laplace_scale_off_by_3_percent_is_rejected(wrong, bits):
    noise = laplace_noise(200_000, 0.5, rng=bits)
    assert laplace_p_value(noise, wrong * LAPLACE_GRID / 0.5) < FALSE_ALARM


def test_noisy_values_do_not_identify_their_input(bits):
    """Float Laplace noise gives outputs that only one input can reach (Mironov, 2012)."""
    noise = laplace_noise(200_000, 8.0, rng=bits)
    reachable = set(noise.tolist())
    # On a grid, every output of input 1 is one of input 0 moved by a whole step.
    assert all(isinstance(value, int) for value in reachable)
    assert len(reachable & {value + 1 for value in reachable}) > 0.5 * len(reachable)


def test_rounding_of_epsilon_spends_less_never_more():
    from dpal.mechanisms.discrete_laplace import _fraction_below

    for epsilon in (0.1, 1 / 3, 0.7, 2.0, 1e-5):
        assert 0 <= epsilon - float(_fraction_below(epsilon)) < 1e-6
    with pytest.raises(ParameterError, match="too small"):
        laplace_noise(1, 1e-9, rng=secure())


def test_gaussian_noise_has_its_law(bits):
    noise = standard_normal(400_001, rng=bits)
    assert noise.size == 400_001
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    # Standard error of the standard deviation: 1 / sqrt(2 n) = 0.11 %; 4.9 of them is 1e-6.
    assert abs(noise.std() - 1) < 4.9 * 0.0011


def test_a_gaussian_scale_off_by_1_percent_is_rejected(bits):
    noise = 1.01 * standard_normal(400_000, rng=bits)
    assert abs(noise.std() - 1) > 4.9 * 0.0011


def test_the_noisy_sum_keeps_no_low_bits(bits):
    total = np.array([1 / 3, 1e-9, -2 / 7])
    released = noisy_sum(total, 2.0, rng=bits)
    steps = released / (2.0 * 2.0**-20)
    assert (steps == np.rint(steps)).all()


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.37, 1.0])
def test_inclusion_has_its_rate(rate, bits):
    n, trials = 1000, 400
    counts = [include(n, rate, rng=bits).size for _ in range(trials)]
    spread = math.sqrt(max(rate * (1 - rate), 1e-12) * n * trials)
    assert abs(sum(counts) - rate * n * trials) <= 4.9 * spread
    if 0 < rate < 1:  # Poisson sampling, not batches of one size
        assert np.var(counts) == pytest.approx(n * rate * (1 - rate), rel=0.4)


def test_a_rate_off_by_2_percent_is_rejected(bits):
    n, trials, rate = 1000, 400, 0.37
    total = sum(include(n, 1.02 * rate, rng=bits).size for _ in range(trials))
    assert abs(total - rate * n * trials) > 4.9 * math.sqrt(rate * (1 - rate) * n * trials)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_an_impossible_rate_is_refused(rate, bits):
    with pytest.raises(ParameterError, check=having(parameter="rate")):
        include(10, rate, rng=bits)


@pytest.mark.parametrize("bound", [1, 3, 10, 2**62 + 1])
def test_whole_numbers_are_uniform(bound, bits):
    drawn = uniform_below(np.full(100_000, bound, dtype=np.uint64), rng=bits)
    assert int(drawn.max()) < bound
    bins = min(bound, 10)
    counts = np.bincount((drawn.astype(np.float64) * bins / bound).astype(int), minlength=bins)
    if bins > 1:
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_words_at_the_edge_of_acceptance_are_drawn_again():
    class Edge(RepeatableBits):
        calls = 0

        def words(self, count: int):
            self.calls += 1
            return np.full(count, 2**64 - 1 if self.calls == 1 else 5, dtype=np.uint64)

    edge = Edge(0)
    # 2**64 - 1 lies above the largest multiple of 3 * 2**61, so it must not be used.
    assert uniform_below(np.array([3 * 2**61], dtype=np.uint64), rng=edge).tolist() == [5]
    assert edge.calls == 2


def test_secure_streams_differ_and_cannot_be_stored():
    import pickle

    first, second = secure(), secure()
    assert not np.array_equal(first.words(8), second.words(8))
    with pytest.raises(TypeError, match="never stored"):
        pickle.dumps(first)


def test_secure_words_are_the_key_stream_however_they_are_asked_for(monkeypatch):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key, counts = bytes(range(32)), (3, 40_001, 0, 16_384, 7)
    monkeypatch.setattr("dpal.randomness.os.urandom", lambda size: key[:size])
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    expected = np.frombuffer(stream.update(bytes(8 * sum(counts))), dtype=np.uint64)
    source = secure()
    drawn = [source.words(count) for count in counts]
    assert np.array_equal(np.concatenate(drawn), expected)
    for words in drawn:
        words[:] = 0  # a caller may write into what it drew


def test_secure_words_are_uniform():
    words = secure().words(100_000)
    # Each bit: 100,000 fair coins, standard deviation 158; 64 bits at 1e-6 in all: 5.5.
    ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert max(abs(count - 50_000) for count in ones) < 5.5 * 158


def test_seeded_streams_repeat_and_differ_by_purpose():
    assert (
        seeded(1, "a").integers(100, size=5).tolist()
        == seeded(1, "a").integers(100, size=5).tolist()
    )
    assert seeded(1, "a").integers(2**62) != seeded(1, "b").integers(2**62)
