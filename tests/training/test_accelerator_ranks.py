"""Processes that share a training on accelerators: the same weights as one process alone.

A model in parts by NCCL, which connects no two processes of one GPU: where there is one, a single
rank takes every way that several take; the cases of more are skipped. To run them see
test_accelerator.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Recipe
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.training_state import Written
from tests.training.sharded import (
    ADAM,
    GROUPS,
    RECIPES,
    RECORDS,
    SGD,
    Stopped,
    alone,
    build,
    everyone,
    furthest,
    stop_after,
    train,
    weights,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
DEVICE = "cuda"
STEPS = 4
ranks = pytest.mark.parametrize(
    "processes",
    [
        pytest.param(
            count,
            marks=pytest.mark.skipif(
                torch.cuda.device_count() < count, reason=f"fewer than {count} GPUs here"
            ),
        )
        for count in (1, 2, 3)
    ],
)


def crew_of(processes: int, folder: Path, records=RECORDS) -> WorkerPool:
    return WorkerPool(
        in_memory(records), processes=processes, scratch=folder / "crew", device=DEVICE
    )


def backend_name() -> str:
    """Of what connects the ranks that hold parts of a model."""
    group = torch.distributed.group.WORLD
    assert group is not None
    return str(group._get_backend(torch.device(DEVICE)).name())


def there(name: str, folder: Path) -> nn.Module:
    return build(name, folder).to(DEVICE)


@ranks
@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("mlp", "adaptive"),
        ("tutorial_cnn", "per_layer"),
        ("resnet9", "flat"),
        ("text", "flat"),
        ("text_adapters", "flat"),
    ],
)
def test_a_model_in_parts_by_nccl(processes, tmp_path, name, recipe):
    wanted = RECIPES[recipe]
    one = alone(there(name, tmp_path), SGD, wanted, STEPS)
    before = {key: value.clone() for key, value in weights(one).items()}
    train(one, everyone(STEPS), SGD, recipe=wanted)
    with crew_of(processes, tmp_path) as crew:
        many = crew.shard(there(name, tmp_path), spec=SGD, recipe=wanted, steps=STEPS)
        assert backend_name() == "nccl"
        assert all(parameter.is_cuda for parameter in many.model.parameters())
        train(many, everyone(STEPS), SGD, crew=crew, recipe=wanted)
        assert furthest(weights(one), weights(many)) < 1e-5
        assert furthest(weights(one), before) > 1e-3
        assert many.clipper.bound == pytest.approx(one.clipper.bound, rel=1e-5)


@ranks
def test_groups_of_a_model_in_parts(processes, tmp_path):
    one = alone(there("tutorial_cnn", tmp_path), SGD, Recipe(), STEPS)
    train(one, everyone(STEPS), SGD, records=GROUPS)
    with crew_of(processes, tmp_path, GROUPS) as crew:
        many = crew.shard(there("tutorial_cnn", tmp_path), spec=SGD, recipe=Recipe(), steps=STEPS)
        train(many, everyone(STEPS), SGD, crew=crew, records=GROUPS)
        assert furthest(weights(one), weights(many)) < 1e-5


@ranks
@pytest.mark.parametrize("first", ["whole", "sharded"])
def test_a_checkpoint_is_gone_on_from_in_the_other_layout(processes, tmp_path, first):
    recipe, half = RECIPES["adaptive"], STEPS // 2

    def begin(crew: WorkerPool, layout: str):
        model = there("mlp", tmp_path)
        if layout == "whole":
            return alone(model, ADAM, recipe, STEPS), None
        return crew.shard(model, spec=ADAM, recipe=recipe, steps=STEPS, committee=True), crew

    straight = alone(there("mlp", tmp_path), ADAM, recipe, STEPS)
    train(straight, everyone(STEPS), ADAM, recipe=recipe)
    with crew_of(processes, tmp_path) as crew:
        begun, helped = begin(crew, first)
        with pytest.raises(Stopped):
            train(begun, everyone(STEPS), ADAM, recipe=recipe, crew=helped,
                  on_step=stop_after(half))  # fmt: skip
        file = tmp_path / "state.safetensors"
        file.write_bytes(begun.write(Written.STATE))
        later, helped = begin(crew, "sharded" if first == "whole" else "whole")
        later.restore(Written.STATE, file)
        train(later, everyone(STEPS), ADAM, recipe=recipe, crew=helped, done=half)
        assert furthest(weights(straight), weights(later)) < 1e-5


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_whole_models_whose_sums_are_added_up(processes, tmp_path):
    """Each on a GPU of its own where there are enough, otherwise all on the first."""
    one = alone(there("tutorial_cnn", tmp_path), SGD, Recipe(), STEPS)
    train(one, everyone(STEPS), SGD)
    with crew_of(processes, tmp_path) as crew:
        many = alone(there("tutorial_cnn", tmp_path), SGD, Recipe(), STEPS)
        train(many, everyone(STEPS), SGD, crew=crew)
        assert furthest(weights(one), weights(many)) < 1e-5


def test_more_parts_than_accelerators_are_refused(tmp_path):
    many = torch.cuda.device_count() + 1
    with crew_of(many, tmp_path) as crew, pytest.raises(ParameterError, match="GPUs"):
        crew.shard(there("mlp", tmp_path), spec=SGD, recipe=Recipe(), steps=1)
