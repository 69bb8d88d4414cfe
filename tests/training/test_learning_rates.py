from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpal.errors import ParameterError
from dpal.planning.training_recipe import RateSchedule, Recipe
from dpal.training.learning_rates import rate_at, set_rate
from tests.conftest import having


def rates(steps: int, **recipe) -> list[float]:
    return [rate_at(Recipe(**recipe), 2.0, step, steps) for step in range(1, steps + 1)]


def test_by_hand():
    assert rates(4) == [2.0] * 4
    assert rates(4, rate_schedule=RateSchedule.LINEAR) == [2.0, 1.5, 1.0, 0.5]
    half = math.sqrt(0.5)
    cosine = [2.0, 1.0 + half, 1.0, 1.0 - half]
    assert rates(4, rate_schedule=RateSchedule.COSINE) == pytest.approx(cosine)
    warm = rates(8, warmup=0.5, rate_schedule=RateSchedule.LINEAR)
    assert warm == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 1.5, 1.0, 0.5])


@given(
    steps=st.integers(1, 400),
    warmup=st.floats(0, 0.9),
    schedule=st.sampled_from(RateSchedule),
)
def test_it_grows_to_the_full_rate_and_never_stands_still(steps, warmup, schedule):
    found = rates(steps, warmup=warmup, rate_schedule=schedule)
    top = math.floor(warmup * steps)
    assert found[top] == 2.0
    assert all(a < b for a, b in pairwise(found[: top + 1]))
    assert found[top:] == sorted(found[top:], reverse=True)
    assert min(found) > 0


def test_it_is_what_torch_makes_of_it():
    """The independent oracle: torch's schedulers, step by step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    theirs = []
    for _ in range(50):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        cosine.step()
    assert rates(50, rate_schedule=RateSchedule.COSINE) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("step", [0, 5])
def test_a_step_outside_of_the_phase_has_no_rate(step):
    with pytest.raises(ParameterError, match="1 and 4", check=having(parameter="step")):
        rate_at(Recipe(), 1.0, step, 4)


def test_the_next_step_is_of_the_rate_that_was_set():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.ones(1)
    set_rate(optimizer, 0.25)
    optimizer.step()
    assert weight.item() == 0.75
