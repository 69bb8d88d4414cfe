"""Tests of samplers that neither cry wolf nor sleep: on many draws from the true law."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest

from dpal.audit import hypothesis_tests
from dpal.audit.logs import capturing_output
from tests.variants import quick_and_slow

RUNS, LEVEL = 2000, 0.01
# A right test has 20 p-values below 1 % of 2,000; more than 45 have a chance below 1e-6.
MOST = 45


def coins(generator, shape, rate):
    return generator.random(shape) < rate


LAWS = {
    "count": lambda g: hypothesis_tests.of_count(int(g.binomial(500, 0.3)), 500, 0.3),
    "scale": lambda g: hypothesis_tests.of_scale(g.normal(0, 2.0, 400), 2.0),
    "normality": lambda g: hypothesis_tests.of_normality(g.normal(size=200)),
    "correlation": lambda g: hypothesis_tests.of_correlation(
        g.normal(size=300), g.normal(size=300)
    ),
    "frequencies": lambda g: hypothesis_tests.of_frequencies(
        g.multinomial(400, [0.4, 0.3, 0.2, 0.09, 0.01]), np.array([0.4, 0.3, 0.2, 0.09, 0.01])
    ),
    "batch sizes": lambda g: hypothesis_tests.of_batch_sizes(
        g.binomial(100, 0.1, 300).astype(float), 100, 0.1
    ),
    "joins": lambda g: hypothesis_tests.of_joins(g.binomial(128, 0.6, 300).astype(float), 128, 0.6),
    "succession": lambda g: hypothesis_tests.of_succession(coins(g, (60, 40), 0.3), 0.3),
}


@pytest.mark.parametrize("law", quick_and_slow([law for law in LAWS if law != "normality"], LAWS))
def test_sound_samplers_are_let_through(law):
    generator = np.random.default_rng(99)
    low = sum(LAWS[law](generator) < LEVEL for _ in range(RUNS))
    assert low <= MOST


@pytest.mark.parametrize(
    ("defect", "p_value"),
    [
        ("rate", lambda g: hypothesis_tests.of_count(int(g.binomial(40_000, 0.33)), 40_000, 0.3)),
        ("scale", lambda g: hypothesis_tests.of_scale(g.normal(0, 1.9, 40_000), 2.0)),
        ("shape", lambda g: hypothesis_tests.of_normality(g.laplace(0, 0.7071, 40_000))),
        ("outcomes", lambda g: hypothesis_tests.of_frequencies(
            g.multinomial(40_000, [0.45, 0.55]), np.array([0.5, 0.5]))),
        ("no noise", lambda g: hypothesis_tests.of_correlation(np.zeros(9), np.zeros(9))),
        ("fixed sizes", lambda g: hypothesis_tests.of_batch_sizes(np.full(300, 10.0), 100, 0.1)),
        ("all together", lambda g: hypothesis_tests.of_batch_sizes(
            100.0 * g.binomial(1, 0.1, 300), 100, 0.1)),
        ("dealt out", lambda g: hypothesis_tests.of_joins(np.full(300, 64.0), 128, 0.5)),
        ("alternating", lambda g: hypothesis_tests.of_succession(
            np.tile([[True], [False]], (64, 40)), 0.5)),
    ],
)  # fmt: skip
def test_defects_are_not(defect, p_value):
    assert p_value(np.random.default_rng(7)) < 1e-6


def test_several_p_values_are_no_smaller_together():
    assert hypothesis_tests.bonferroni(0.5, 0.2) == 0.4
    assert hypothesis_tests.bonferroni(1e-9, 0.9) == pytest.approx(2e-9)
    assert hypothesis_tests.bonferroni(0.9, 0.9) == 1.0


def test_numbers_are_heard_as_far_as_they_are_written():
    secrets = [0.123456, 3_141_595, 2.302585]
    warn = logging.getLogger("anyone").warning
    with capturing_output() as heard:
        warn("score 0.1235, nothing else")
        warn("rows 3141592 to 3141594, 0.12 and 1235")
        warn("loss 2.302585e+00")
        sys.stderr.write("row 3141595\n")
    assert [line.split()[0] for line in heard.naming(secrets)] == ["score", "loss", "row"]
    assert len(heard.lines) == 4
