"""What a plan is expected to reach, by rehearsals on public records."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from dpal.errors import ParameterError
from dpal.planning.certify_campaign import certified_plan
from dpal.simulation.choose_acquisition import split_in_halves
from dpal.simulation.paired_comparison import estimate_mean
from dpal.simulation.rehearse_plan import expected_figures, rehearse_repeatably
from dpal.simulation.scaled_plan import scaled_plan
from tests.conftest import CLASSES, WIDTH, small_spec


def blobs(rows: int, *, apart: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(3)
    labels = generator.choice(CLASSES, rows, p=[0.5, 0.3, 0.2])
    values = apart * np.eye(CLASSES, WIDTH)[labels] + generator.normal(0, 0.5, (rows, WIDTH))
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def plan():
    return certified_plan(small_spec(strategy="naive", acquisition="least_confidence")).plan


@pytest.fixture(scope="module")
def halves():
    return split_in_halves(*blobs(400), runs=3)


@pytest.fixture(scope="module")
def expected(plan, halves):
    return expected_figures(plan, halves, physical_batch=64)


def test_figures_are_those_of_the_rehearsals_that_were_run(plan, halves, expected):
    smaller = scaled_plan(plan, 200)
    runs = [
        rehearse_repeatably(smaller, public, plan.spec.acquisition, run=run, physical_batch=64)
        for run, public in enumerate(halves)
    ]
    assert (expected.figure, expected.rehearsals) == ("accuracy", 3)
    for place, phase in enumerate(expected.phases):
        reached = [phases[place].figures["accuracy"] for phases in runs]
        assert phase.mean == pytest.approx(statistics.fmean(reached))
        assert phase.rehearsed_labels == max(phases[place].labels for phases in runs)
        # Wider than by rehearsals alone: 200 records judge each of them.
        alone = estimate_mean(reached).half_width or 0.0
        drawn = [math.sqrt(value * (1 - value) / 199) for value in reached]
        assert phase.half_width == pytest.approx(math.hypot(alone, 1.96 * statistics.fmean(drawn)))


def test_few_public_records_are_said_to_be_few(plan, expected):
    assert [phase.labels for phase in expected.phases] == [100, 140, 180]
    assert expected.is_smaller
    assert expected.phases[-1].rehearsed_labels < 180
    assert (expected.pool_records, expected.judged_records) == (200, 200)
    whole = expected_figures(plan, split_in_halves(*blobs(1200), runs=2), physical_batch=64)
    assert not whole.is_smaller
    assert [phase.rehearsed_labels for phase in whole.phases] == [100, 140, 180]


def test_the_most_frequent_answer_is_beside_it(halves, expected):
    shares = [
        float(np.bincount(public.validation_labels.numpy()).max() / len(public.validation_labels))
        for public in halves
    ]
    assert expected.majority == pytest.approx(statistics.fmean(shares))
    assert expected.phases[-1].mean > expected.majority


def test_who_asks_again_is_told_the_same(plan, halves, expected):
    assert expected_figures(plan, halves, physical_batch=64) == expected


@pytest.mark.parametrize("runs, rows", [(1, 400), (2, 30)])
def test_too_few_to_expect_anything_is_refused(plan, runs, rows):
    with pytest.raises(ParameterError):
        expected_figures(plan, split_in_halves(*blobs(rows), runs=runs), physical_batch=64)
