"""Noise that is drawn ahead has the law of noise that is drawn in place, and serves once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing

import numpy as np
import pytest
import torch
from scipy import stats

from dpal.errors import DpalError, ParameterError
from dpal.mechanisms.gaussian import STEPS, grid_noise, noisy_sum
from dpal.models.build_model import build_model
from dpal.training.noise_ahead import NoiseAhead, noisy_sum_from
from tests.conftest import RepeatableBits
from tests.training.gradients import flat_gradient
from tests.training.test_dp_sgd import LOGISTIC, batch, private

FALSE_ALARM = 1e-6


@pytest.fixture
def ahead() -> Iterator[NoiseAhead]:
    with closing(NoiseAhead(10_001, threads=3)) as found:
        yield found


def test_all_numbers_are_standard_normal_whoever_drew_them(ahead):
    ahead.begin()
    drawn = (ahead.take() + 0.5) / STEPS
    assert drawn.shape == (10_001,)
    assert stats.kstest(drawn, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(1.05 * drawn, "norm").pvalue > FALSE_ALARM  # what 10,001 cannot show
    assert stats.kstest(1.15 * drawn, "norm").pvalue < FALSE_ALARM  # what they can
    for part in np.array_split(drawn, 3):
        assert stats.kstest(part, "norm").pvalue > FALSE_ALARM


def test_no_number_serves_twice_in_a_step_or_in_the_next(ahead):
    drawn = np.concatenate([ahead.take() for _ in range(4)])
    # Two of 40,004 whole numbers of 41 bits and more agree with chance 4e-4; ten of them never.
    assert len(np.unique(drawn)) > len(drawn) - 10


def test_what_a_step_that_broke_off_drew_serves_the_next_one_alone(ahead):
    ahead.begin()
    ahead.begin()  # the step is tried again: nothing was released of what is drawn already
    first = ahead.take()
    assert not np.isin(first, ahead.take()).any()


@pytest.mark.parametrize("threads", [1, 2, 7, 50])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_any_number_of_numbers_by_any_number_of_threads(count, threads):
    with closing(NoiseAhead(count, threads=threads)) as ahead:
        assert ahead.take().shape == (count,)
    with pytest.raises(ParameterError):
        NoiseAhead(0)


@pytest.mark.parametrize("scale", [1e-6, 0.37, 1.0, 5e4])
def test_sums_are_those_of_noise_drawn_in_place_to_the_last_bit(scale):
    total = np.random.default_rng(1).normal(0, 3 * scale, 5000)
    total[:3] = 0.0, math.pi * scale, -math.pi * scale
    steps = grid_noise(total.size, rng=RepeatableBits(7))
    expected = noisy_sum(total, scale, rng=RepeatableBits(7))
    found = noisy_sum_from(torch.from_numpy(total), scale, steps).numpy()
    assert (found == expected).all()
    assert (found != noisy_sum_from(torch.from_numpy(total), 1.01 * scale, steps).numpy()).any()


def test_a_child_process_cannot_draw_from_the_streams_of_its_parent(ahead):
    ahead.take()
    if (child := os.fork()) == 0:  # pragma: no cover - runs in the child
        try:
            [grid_noise(4, rng=stream) for stream in ahead._streams]
        except DpalError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_a_child_process_gets_nothing_that_its_parent_has_drawn(ahead):
    ahead.begin()
    wait(ahead._drawn)
    if (child := os.fork()) == 0:  # pragma: no cover - runs in the child
        try:
            ahead.take()
        except DpalError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert ahead.take().size == 10_001


def test_a_gradient_that_draws_ahead_has_noise_of_its_width(bits, monkeypatch):
    """On the CPU here, where it is used for this test alone: the way of an accelerator."""
    model = build_model(LOGISTIC)
    inputs, labels = batch(LOGISTIC, 8)
    with closing(private(model, bits, noise_multiplier=2.0, expected_batch_size=4.0)) as gradient:
        exact = gradient.clipped_sum(inputs, labels) / 4
        size = sum(p.numel() for p in model.parameters())
        monkeypatch.setattr(gradient, "_ahead", NoiseAhead(size))
        noise = []
        for _ in range(200):
            gradient.write(inputs, labels)
            noise.append(flat_gradient(model).numpy() - exact)
    found = np.concatenate(noise)
    width = 2.0 * gradient.bound / 4.0
    assert stats.kstest(found / width, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(1.3 * found / width, "norm").pvalue < FALSE_ALARM
