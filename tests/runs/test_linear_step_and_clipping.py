"""Rates of a linear model follow from its plan: noise moves logits as far as was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpal.config.campaign import parse_config
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_plan
from dpal.runs.linear_step_and_clipping import linear_rates

WIDTH, MOMENTUM = 50, 0.5


def plan_of(labels: int, *, epsilon: float = 8.0, task: Task = Task.SINGLE_LABEL) -> Plan:
    config = parse_config(
        {
            "name": "rates",
            "privacy": {"epsilon": epsilon},
            "schedule": {"initial": labels, "queries": [], "batch_size": labels // 2,
                         "epochs_per_phase": 10},
            "acquisition": "random",
            "model": {"name": "logistic"},
        }
    )  # fmt: skip
    spec = config.to_spec(pool_size=4000, input_shape=(WIDTH,), classes=4, task=task)
    return certified_plan(spec).plan


@pytest.mark.parametrize("task", Task)
def test_noise_moves_logits_as_far_as_was_asked_for(task):
    """SGD on noise alone, 2,000 times, in the plan's own scale; two digits are kept of rates."""
    plan = plan_of(200, task=task)
    rates = linear_rates(plan, width=WIDTH, momentum=MOMENTUM, logit_noise=1.5)
    part = plan.phases[0].training
    rng = np.random.default_rng(0)
    record = rng.choice([-1.0, 1.0], WIDTH)
    weights = speed = np.zeros((2000, WIDTH))
    for _ in range(part.steps):
        noise = rng.normal(0, part.noise_multiplier * rates.max_grad_norm, speed.shape)
        speed = MOMENTUM * speed + noise / part.expected_batch_size
        weights = weights - rates.learning_rate * speed
    # The first steps have not gathered their momentum: a tenth less over 20 of them.
    assert np.std(weights @ record) == pytest.approx(1.5, rel=0.15)


@pytest.mark.slow
def test_more_labels_and_less_noise_allow_for_larger_steps():
    rates = [
        linear_rates(plan, width=WIDTH, momentum=0.9, logit_noise=1.0)
        for plan in (plan_of(100), plan_of(400), plan_of(400, epsilon=2))
    ]
    few, many, noisy = (each.learning_rate for each in rates)
    assert few < many
    assert noisy < many
    assert len({each.max_grad_norm for each in rates}) == 1


def test_steps_are_bounded_where_there_is_hardly_noise():
    rates = linear_rates(plan_of(4000), width=WIDTH, momentum=0.9, logit_noise=1e6)
    farthest = rates.learning_rate * rates.max_grad_norm * math.sqrt(WIDTH) / (1 - 0.9)
    assert farthest == pytest.approx(250, rel=0.05)


def test_what_is_no_model_is_refused():
    with pytest.raises(ParameterError, match="width"):
        linear_rates(plan_of(100), width=0, momentum=0.9, logit_noise=1.0)
