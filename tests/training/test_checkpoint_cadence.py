"""When a training persists its state says nothing of how many labels were bought."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import TrainingPhase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Augmentation, Recipe
from dpal.training.backend_names import Backend
from dpal.training.checkpoint_cadence import planned_step_seconds, steps_within
from tests.timing import COUNTS, STEPS, auc, figures_of_entries, step_seconds

OPTIMIZER = OptimizerSpec(name="sgd", learning_rate=0.5, momentum=0.0, max_grad_norm=1.0)
PART = TrainingPhase(
    steps=10, noise_multiplier=1.0, sample_rate_old=0.0, sample_rate_new=0.1,
    expected_batch_size=100.0,
)  # fmt: skip
FEATURES = ModelSpec(name="logistic", input_shape=(8,), classes=3)
IMAGES = ModelSpec(name="logistic", input_shape=(1, 12, 12), classes=10)
RUNS = 60


def timed(spec=FEATURES, like=None, **changes):
    ticks = iter(changes.pop("ticks", range(1000)))
    settings = {
        "classes": spec.classes, "task": Task.SINGLE_LABEL, "physical_batch": 256,
        "recipe": Recipe(), "backend": Backend.BOOK_KEEPING, "clock": lambda: next(ticks),
    } | changes  # fmt: skip
    parts = settings.pop("parts", (PART,))
    like = torch.zeros(1, *spec.input_shape) if like is None else like
    phase: Any = SimpleNamespace(parts=parts)
    return planned_step_seconds(build_model(spec), phase, OPTIMIZER, like, **settings)


def test_so_many_steps_fit_between_two_checkpoints():
    assert steps_within(10, step_seconds=0.25) == 2400
    assert steps_within(1, step_seconds=1e9) == 1  # a slow step is persisted each time
    assert steps_within(1, step_seconds=0) > 1e6
    for wrong in (0.0, float("nan"), -1.0):
        with pytest.raises(ParameterError, match="checkpoint_minutes"):
            steps_within(wrong, step_seconds=1.0)


def test_a_step_takes_as_long_as_its_planned_records():
    """A clock that ticks whenever it is asked: one tick a pass, one for the noise."""
    assert timed(parts=(replace(PART, expected_batch_size=19.5),)) == 1 + 1
    assert timed(physical_batch=25) == 4 + 1
    assert timed(physical_batch=25, processes=2) == 2 + 1
    larger = replace(PART, expected_batch_size=320.0)
    assert timed(parts=(PART, larger)) == 10 + 1  # 32 of them are tried
    assert timed(physical_batch=25, ticks=[0, 90, 95, 200, 203, 204]) == 12 + 1  # warm by then


@pytest.mark.parametrize("backend", [Backend.BOOK_KEEPING, Backend.FUNCTIONAL])
def test_any_records_can_be_made_up_and_the_model_stays_as_it_was(backend):
    model = build_model(IMAGES)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = Recipe(augmentation=Augmentation(flip=True, shift=2, multiplicity=2))
    phase: Any = SimpleNamespace(parts=(replace(PART, expected_batch_size=6.0),))
    seconds = planned_step_seconds(
        model, phase, OPTIMIZER,
        torch.zeros(1, 1, 12, 12, dtype=torch.uint8), classes=10, task=Task.SINGLE_LABEL,
        physical_batch=4, recipe=recipe, backend=backend,
    )  # fmt: skip
    assert 0 < seconds < 60
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())
    several = replace(FEATURES, task=Task.MULTI_LABEL)
    assert timed(several, task=Task.MULTI_LABEL, physical_batch=25) == 4 + 1


def entries(every):
    """A phase's part of the ledger, with checkpoints after so many steps."""
    rows: list[dict[str, Any]]
    rows = [{"campaign": "hidden", "kind": "reserve", "release": "phase-0/training"}]
    rows += [
        {"campaign": "hidden", "kind": "checkpoint", "release": f"@{done}", "steps_on_disk": done}
        for done in range(every, STEPS, every)
    ]
    rows += [{"campaign": "hidden", "kind": "commit", "release": "phase-0/training"}]
    return [{"steps_on_disk": 0, "recorded_at": "2026-03-01", **one} for one in rows]


def attacked(timed_count):
    """The attacker's success where checkpoints follow a step of so many labels as said."""
    seen = {}
    for count in COUNTS:
        generator = np.random.default_rng(1)  # the machine jitters alike under every count
        steps = [step_seconds(timed_count(count), generator.normal(1, 0.02)) for _ in range(RUNS)]
        seen[count] = [figures_of_entries(entries(steps_within(1, step_seconds=s))) for s in steps]
    return auc(seen)


def test_checkpoints_let_nobody_count_labels():
    """Guessing is .5 exactly, as the machine jitters alike; by the clock everyone could count."""
    assert attacked(lambda count: max(COUNTS)) == 0.5
    assert attacked(lambda count: count) > 0.99
