"""A model in parts trains by the law of one that is whole.

Noise is drawn anew in every run: false alarms are possible, at the stated rates.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Recipe
from dpal.training.backend_names import Backend
from dpal.training.distributed.sharded_model import require_shardable
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.training_state import Written
from tests.training.sharded import (
    ADAM,
    ADAPTIVE,
    RECIPES,
    RECORDS,
    SGD,
    Stopped,
    alone,
    build,
    drawn,
    everyone,
    furthest,
    right_law,
    stop_after,
    train,
    weights,
)
from tests.variants import quick_and_slow

MODELS = ("mlp", "tutorial_cnn", "text", "text_adapters")


@pytest.fixture(scope="module", params=quick_and_slow([2], [2, 3]), ids=["two", "three"])
def crew(request, tmp_path_factory):
    """This process and one or two others, on records; of three ranks one owns more than others."""
    with WorkerPool(
        in_memory(RECORDS), processes=request.param, scratch=tmp_path_factory.mktemp("crew")
    ) as some:
        yield some


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("mlp", "flat"),
        ("mlp", "adaptive"),
        ("tutorial_cnn", "per_layer"),
        *(
            pytest.param(name, "flat", marks=pytest.mark.slow)
            for name in ("tutorial_cnn", "text", "text_adapters", "resnet9")
        ),
    ],
)
def test_weights_are_those_of_one_process(crew, tmp_path, name, recipe):
    """Every record is clipped, so that norms that were wrong would show."""
    wanted, steps = RECIPES[recipe], 4
    whole, start = build(name, tmp_path), build(name, tmp_path)
    one = alone(whole, SGD, wanted, steps)
    before = {key: value.clone() for key, value in start.state_dict().items()}
    train(one, everyone(steps), SGD, recipe=wanted)
    many = crew.shard(start, spec=SGD, recipe=wanted, steps=steps, committee=True)
    train(many, everyone(steps), SGD, crew=crew, recipe=wanted)
    assert furthest(weights(one), weights(many)) < 1e-5
    assert furthest(weights(one), before) > 1e-3
    assert many.clipper.bound == pytest.approx(one.clipper.bound, rel=1e-5)


def test_how_weights_lie_in_memory_changes_nothing(crew, tmp_path):
    """Seen red where only the process that leads lays them out by rows."""
    whole, start = build("mlp", tmp_path), build("mlp", tmp_path)
    for layer in start.modules():
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
    one = alone(whole, SGD, Recipe(), 2)
    train(one, everyone(2), SGD)
    many = crew.shard(start, spec=SGD, recipe=Recipe(), steps=2, committee=True)
    train(many, everyone(2), SGD, crew=crew)
    assert furthest(weights(one), weights(many)) < 1e-5


@pytest.mark.parametrize(
    ("spec", "first"),
    quick_and_slow([(ADAM, "whole"), (SGD, "sharded")], product([ADAM, SGD], ["whole", "sharded"])),
    ids=lambda value: getattr(value, "name", value),
)
def test_a_checkpoint_is_gone_on_from_in_the_other_layout(crew, tmp_path, first, spec):
    """With all that it holds; what is written is the file of one process."""
    steps, half = everyone(6), 3

    def state(sharded: bool):
        model = build("mlp", tmp_path)
        if not sharded:
            return alone(model, spec, ADAPTIVE, 6), None
        given = {"spec": spec, "recipe": ADAPTIVE, "steps": 6, "committee": True}
        return crew.shard(model, **given), crew

    straight, _ = state(False)
    train(straight, steps, spec, recipe=ADAPTIVE)
    begun, helped = state(first == "sharded")
    with pytest.raises(Stopped):
        train(begun, steps, spec, recipe=ADAPTIVE, crew=helped, on_step=stop_after(half))
    file = tmp_path / "state.safetensors"
    file.write_bytes(begun.write(Written.STATE))
    later, helped = state(first == "whole")
    later.restore(Written.STATE, file)
    train(later, steps, spec, recipe=ADAPTIVE, crew=helped, done=half)
    for kind in Written:
        assert furthest(load(straight.write(kind)), load(later.write(kind))) < 1e-5
    carried = tmp_path / "carried.safetensors"
    carried.write_bytes(later.write(Written.CARRIED))
    following, _ = state(first == "sharded")
    following.restore(Written.CARRIED, carried)
    before, after = load(carried.read_bytes()), load(following.write(Written.CARRIED))
    assert after and furthest({name: before[name] for name in after}, after) == 0.0
    assert all(name.startswith("committee/") for name in before.keys() - after.keys())


def test_noise_is_of_the_planned_width_and_drawn_once(crew, tmp_path):
    assert right_law(drawn(crew, tmp_path))


def test_another_law_would_be_seen():
    chance = np.random.default_rng(0)
    parts = [chance.normal(size=size) for size in (3136, 3136, 1568, 104)]
    assert right_law(parts)
    assert not right_law([parts[0], np.zeros(3136), *parts[2:]])  # a rank that draws none
    assert not right_law([parts[0], 1.2 * parts[1], *parts[2:]])  # drawn twice, or too wide
    assert not right_law([parts[0], parts[0], *parts[2:]])  # one stream for two ranks


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight


class Number(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.number = nn.Linear(4, 2), nn.Parameter(torch.tensor(1.0))


class Attending(nn.Module):
    """Frozen attention, which reads weights of a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.last = nn.MultiheadAttention(4, 2).requires_grad_(False), nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("model", "backend", "optimizer"),
    [
        (lambda: nn.Linear(4, 2), Backend.FUNCTIONAL, "sgd"),
        (lambda: nn.Linear(4, 2), Backend.BOOK_KEEPING, "sgd_agc"),
        (Shared, Backend.BOOK_KEEPING, "sgd"),
        (Number, Backend.BOOK_KEEPING, "sgd"),
        (lambda: nn.Bilinear(4, 4, 2), Backend.BOOK_KEEPING, "sgd"),
        (Attending, Backend.BOOK_KEEPING, "sgd"),
    ],
    ids=["backend", "agc", "shared", "number", "no rule", "attention"],
)
def test_what_cannot_be_sharded_is_refused_before_anything_is(model, backend, optimizer):
    with pytest.raises(ParameterError):
        require_shardable(model(), backend=backend, optimizer=optimizer)


def test_what_can_be_is_not_refused(tmp_path):
    for name in MODELS:
        require_shardable(build(name, tmp_path), backend=Backend.BOOK_KEEPING, optimizer="adam")
