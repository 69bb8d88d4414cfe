"""Ranks that hold a model in parts: groups, equal streams, one that is lost, and memory."""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import Any

import pytest
import torch
from torch import nn

from dpal.errors import ParameterError, ProcessLost
from dpal.planning.training_recipe import Recipe
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.training_state import Written
from tests.conftest import RepeatableBits, having
from tests.processes import gone
from tests.training.sharded import (
    ADAM,
    GROUPS,
    RECORDS,
    SGD,
    WIDTH,
    SeededHelpers,
    alone,
    build,
    bytes_held,
    drawn,
    everyone,
    furthest,
    right_law,
    train,
    weights,
)
from tests.variants import quick_and_slow


@pytest.mark.slow
def test_groups_are_clipped_as_in_one_process(tmp_path):
    whole = build("tutorial_cnn", tmp_path)
    one = alone(whole, SGD, Recipe(), 3)
    train(one, everyone(3), SGD, records=GROUPS)
    with WorkerPool(in_memory(GROUPS), processes=2, scratch=tmp_path / "crew") as both:
        many = both.shard(build("tutorial_cnn", tmp_path), spec=SGD, recipe=Recipe(), steps=3)
        train(many, everyone(3), SGD, crew=both, records=GROUPS)
        assert furthest(weights(one), weights(many)) < 1e-5
    apart = alone(build("tutorial_cnn", tmp_path), SGD, Recipe(), 3)
    train(apart, everyone(3), SGD)
    assert furthest(weights(one), weights(apart)) > 1e-3  # as if nobody had two records


@pytest.mark.slow
def test_equal_streams_on_two_ranks_would_be_seen(tmp_path):
    with WorkerPool(SeededHelpers(), processes=2, scratch=tmp_path / "crew") as both:
        assert not right_law(drawn(both, tmp_path, rng=RepeatableBits(1)))


@pytest.mark.parametrize("processes", quick_and_slow([2], [2, 3]))
def test_a_lost_rank_ends_the_step_and_nothing_is_written(processes, tmp_path):
    with WorkerPool(in_memory(RECORDS), processes=processes, scratch=tmp_path / "crew") as crew:
        state = crew.shard(build("mlp", tmp_path), spec=SGD, recipe=Recipe(), steps=50)
        rows, killed = list[torch.Tensor](), list[float]()
        pids = [helper.process.pid for helper in crew._helpers]

        def kill(done: int) -> None:
            if done == 3:
                rows.extend(kept.clone() for kept in state.optimizer.param_groups[0]["params"])
                os.kill(pids[-1], signal.SIGKILL)
                killed.append(time.monotonic())

        lost = having(rank=processes - 1, processes=processes)
        with pytest.raises(ProcessLost, match="by signal 9", check=lost):
            train(state, everyone(50), SGD, crew=crew, on_step=kill)
        assert time.monotonic() - killed[0] < 10
        kept = state.optimizer.param_groups[0]["params"]
        assert all(torch.equal(one, other) for one, other in zip(rows, kept, strict=True))
        with pytest.raises(ParameterError):
            state.write(Written.STATE)
    assert all(gone(pid, within=1) for pid in pids)
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
@pytest.mark.timing
def test_a_rank_that_hangs_is_given_up(tmp_path):
    with WorkerPool(
        in_memory(RECORDS), processes=2, scratch=tmp_path / "crew", patience=15
    ) as both:
        state = both.shard(build("mlp", tmp_path), spec=SGD, recipe=Recipe(), steps=50)
        (pid,) = (helper.process.pid for helper in both._helpers)

        def hang(done: int) -> None:
            if done == 2:
                os.kill(pid, signal.SIGSTOP)

        with pytest.raises(ProcessLost, check=having(rank=1, processes=2)):
            train(state, everyone(50), SGD, crew=both, on_step=hang)
    assert gone(pid, within=1)


def peak(processes: int, folder) -> float:
    """Most bytes of parameters and of the optimizer's state here, over those of the weights."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8)), nn.Linear(WIDTH, 3))
    whole = 4 * sum(parameter.numel() for parameter in model.parameters())
    with WorkerPool(in_memory(RECORDS), processes=processes, scratch=folder) as some:
        state = (
            alone(model, ADAM, Recipe(), 2) if processes == 1
            else some.shard(model, spec=ADAM, recipe=Recipe(), steps=2)
        )  # fmt: skip
        seen: list[int] = []
        gc.collect()  # a model before this one

        def look(*values: Any) -> None:
            if not state.optimizer.state:  # in the first step
                return
            seen.append(bytes_held(state.optimizer))
            if len(values) == 3 and values[2].requires_grad:  # after a layer's forward pass
                values[2].register_hook(look)  # when its backward pass begins

        for layer in model:
            layer.register_forward_hook(look)
        train(state, everyone(2), ADAM, crew=some if processes > 1 else None)
    return max(seen) / whole


@pytest.mark.slow
def test_parameters_and_state_of_a_rank_shrink_with_the_number_of_ranks(tmp_path):
    """Weights and two moments, and of eight layers one or two as they compute."""
    assert peak(1, tmp_path) == pytest.approx(3, rel=0.01)
    for processes in (2, 4):
        assert 3 / processes < peak(processes, tmp_path) < 3 / processes + 2 / 8 + 0.05
