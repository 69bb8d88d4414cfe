"""Private sampling beside numpy's, measured in the same run on the same core.

Times depend on the machine, ratios hardly do: those are asserted. numpy's generators are
not private (a small invertible state, noise in floating point); they are the fast peers
that a careless implementation would use.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.mechanisms.randomized_response import randomized_responses
from dpal.randomness import secure

pytestmark = pytest.mark.slow

ROUNDS = 7


def speeds(count: int, *tasks: Callable[[], object]) -> list[float]:
    """Values/s of each task: best of interleaved rounds, so that all share the machine's mood."""
    best = [float("inf")] * len(tasks)
    for _ in range(ROUNDS):
        for i, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            best[i] = min(best[i], time.perf_counter() - start)
    return [count / seconds for seconds in best]


def show(name: str, ours: float, peer: float) -> None:
    line = f"{name}: {ours / 1e6:.1f} M/s, numpy {peer / 1e6:.1f} M/s, ratio {ours / peer:.3f}"
    print(line)  # noqa: T201


def test_exact_answers_against_numpy_comparisons():
    # Measured: 1.6. numpy made 400 M/s there, so a quarter asks for 100 M/s, and still for
    # 50 M/s (the goal) on a core half as fast.
    n, rng, generator = 4_000_000, secure(), np.random.default_rng(1)
    wanted = generator.random(n) < 0.3
    rates = np.where(wanted, 0.37, 0.21)
    ours, one_rate, two_rates = speeds(
        n,
        lambda: randomized_responses(wanted, above=0.37, below=0.21, rng=rng),
        lambda: generator.random(n) < 0.37,
        lambda: generator.random(n) < rates,
    )
    show("answers, numpy with one rate", ours, one_rate)
    show("answers, numpy with a rate per record", ours, two_rates)
    assert ours > 0.25 * one_rate


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_exact_laplace_against_numpy_laplace(epsilon):
    # Measured: 0.097. numpy made 62 M/s there, so 3.5 % asks for 2.2 M/s, and still for
    # 1 M/s (the goal) on a core half as fast. numpy reads one word per value; the exact
    # sampler reads 9.6 on average, because it may only compare whole numbers.
    n, rng, generator = 500_000, secure(), np.random.default_rng(1)
    ours, peer = speeds(
        n,
        lambda: laplace_noise(n, epsilon, rng=rng),
        lambda: generator.laplace(0.0, 1 / epsilon, n),
    )
    show(f"discrete Laplace, epsilon {epsilon}", ours, peer)
    assert ours > 0.035 * peer
