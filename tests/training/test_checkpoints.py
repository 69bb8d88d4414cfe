from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file

from dpal.data.labeled_records import LabeledSet
from dpal.errors import ParameterError
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Averaging, AveragingKind, Clipping, ClippingKind
from dpal.randomness import secure
from dpal.training.checkpoints import (
    latest_weights,
    pack_carried,
    pack_state,
    restore_carried,
    restore_training,
)
from dpal.training.clipping import Clipper
from dpal.training.optimizers import OPTIMIZERS, build_optimizer, state_tensors
from dpal.training.train_phase import position, remaining, train_dp_sgd
from dpal.training.weight_averaging import WeightAverage
from tests.conftest import WIDTH, having
from tests.ledger.releasing import PLAN

PHASE = replace(PLAN.phases[0], training=replace(PLAN.phases[0].training, steps=8))
MODEL = PLAN.spec.model
ADAM = OptimizerSpec(name="adam", learning_rate=0.01, momentum=0.0, max_grad_norm=1.0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_survives_a_file(name, tmp_path):
    spec = replace(ADAM, name=name, momentum=0.9)
    model = build_model(MODEL)
    optimizer = build_optimizer(spec, model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.3)
    optimizer.step()
    (tmp_path / "state").write_bytes(pack_state(model, optimizer))
    again = build_model(replace(MODEL, seed=1))
    fresh = build_optimizer(spec, again.parameters())
    restore_training(tmp_path / "state", again, fresh)
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    stored, known = state_tensors(fresh), state_tensors(optimizer)
    assert stored.keys() == known.keys() != set()
    assert all(torch.equal(stored[key], known[key]) for key in known)


def test_a_state_with_more_in_it_is_not_taken_up_in_part(tmp_path):
    save_file({"model/x": torch.zeros(1), "ema/x": torch.zeros(1)}, tmp_path / "state")
    model = build_model(MODEL)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ParameterError, match="'ema', which"):
        restore_training(tmp_path / "state", model, build_optimizer(ADAM, model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


AVERAGES = [
    Averaging(kind=AveragingKind.EXPONENTIAL, decay=0.9),
    Averaging(kind=AveragingKind.TAIL, tail=0.5),
    Averaging(),
]
by_kind = pytest.mark.parametrize("averaging", AVERAGES, ids=lambda one: one.kind)


class Trained:
    """A model, its optimizer and its average after some steps on a fixed gradient."""

    def __init__(self, averaging: Averaging, *, seed: int = 0) -> None:
        self.model = build_model(replace(MODEL, seed=seed))
        self.optimizer = build_optimizer(ADAM, self.model.parameters())
        self.average = WeightAverage(self.model, averaging, 8)
        self.clipper = Clipper(Clipping(kind=ClippingKind.ADAPTIVE), max_grad_norm=1.0)

    def steps(self, first: int, last: int) -> Trained:
        for step in range(first, last + 1):
            for parameter in self.model.parameters():
                parameter.grad = torch.full_like(parameter, 0.3 - 0.1 * step)
            self.optimizer.step()
            self.average.update(step)
            self.clipper.move(0.1 * step, expected_batch_size=1.0)
        return self

    def everything(self) -> dict[str, torch.Tensor]:
        averaged = self.average.averaged_state_dict()
        named = {f"average.{name}": value for name, value in averaged.items()}
        rest = {**state_tensors(self.optimizer), **self.clipper.state()}
        return {**self.model.state_dict(), **rest, **named}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@by_kind
def test_an_average_goes_on_from_a_checkpoint(averaging, tmp_path):
    whole, stopped = Trained(averaging).steps(1, 8), Trained(averaging).steps(1, 6)
    (tmp_path / "state").write_bytes(
        pack_state(stopped.model, stopped.optimizer, stopped.average, stopped.clipper)
    )
    again = Trained(averaging, seed=1)
    restore_training(tmp_path / "state", again.model, again.optimizer, again.average, again.clipper)
    assert same(again.steps(7, 8).everything(), whole.everything())


@by_kind
def test_the_next_phase_trains_on_from_the_raw_weights(averaging, tmp_path):
    done = Trained(averaging).steps(1, 8)
    released = {name: one.clone() for name, one in done.average.averaged_state_dict().items()}
    raw = {name: one.clone() for name, one in done.model.state_dict().items()}
    place = tmp_path / "optimizer.safetensors"
    place.write_bytes(pack_carried(done.model, done.optimizer, done.average, done.clipper))
    following = Trained(averaging, seed=1)
    following.model.load_state_dict(released)  # what a phase begins with
    restore_carried(
        place, following.model, following.optimizer, following.average, following.clipper
    )
    assert same(following.model.state_dict(), raw)
    assert same(state_tensors(following.optimizer), state_tensors(done.optimizer))
    assert following.clipper.bound == done.clipper.bound != 1.0
    averages = averaging.kind is not AveragingKind.NONE
    assert same(released, raw) is not averages
    save_file(released, tmp_path / "model.safetensors")
    later = load(latest_weights(tmp_path / "model.safetensors", place))
    assert same(later, raw)
    goes_on = averaging.kind is AveragingKind.EXPONENTIAL
    begins_with = following.average.averaged_state_dict()
    assert same(begins_with, released if goes_on else raw)


def test_an_average_that_nobody_asked_for_is_not_dropped(tmp_path):
    done = Trained(AVERAGES[0]).steps(1, 3)
    place = tmp_path / "state"
    place.write_bytes(pack_state(done.model, done.optimizer, done.average, done.clipper))
    without = Trained(Averaging(), seed=1)
    before = {name: one.clone() for name, one in without.everything().items()}
    with pytest.raises(ParameterError, match="'average', which"):
        restore_training(place, without.model, without.optimizer, None, without.clipper)
    with pytest.raises(ParameterError, match="'clipper', which"):
        restore_training(place, without.model, without.optimizer, without.average)
    with pytest.raises(ParameterError, match="not belong"):
        restore_training(place, without.model, without.optimizer, without.average, without.clipper)
    assert same(without.everything(), before)


def test_the_parts_of_a_phase_go_on_where_they_stood():
    training = replace(PHASE.training, steps=3)
    alone = replace(training, steps=2, sample_rate_old=0.0)
    phase = replace(PHASE, training=training, catch_up=alone)
    left = [[(part.steps, here) for part, here in remaining(phase, done=n)] for n in range(6)]
    assert left == [
        [(2, 0), (3, 0)],
        [(2, 1), (3, 0)],
        [(3, 0)],
        [(3, 1)],
        [(3, 2)],
        [],
    ]
    places = [position(phase, done=n) for n in range(6)]
    assert [tuple(place.values()) for place in places] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)
    ]  # fmt: skip
    with pytest.raises(ParameterError, match="0 and 5", check=having(parameter="done")):
        list(remaining(phase, done=6))


def test_every_part_makes_its_own_steps_whenever_it_goes_on():
    """Catching up uses the new cohort alone, also after an interruption."""
    training = replace(PHASE.training, steps=3, sample_rate_old=1.0, sample_rate_new=1.0)
    alone = replace(training, steps=2, sample_rate_old=0.0)
    data = LabeledSet(
        inputs=torch.zeros(60, WIDTH),
        labels=torch.zeros(60, dtype=torch.int64),
        cohorts=(np.arange(60) % 2).astype(np.int16),
    )
    phase = Phase(
        index=1, cohort_size=30, selection=PHASE.selection, training=training, catch_up=alone
    )
    for done in range(6):
        model = build_model(MODEL)
        seen: list[int] = []
        train_dp_sgd(
            model,
            build_optimizer(ADAM, model.parameters()),
            data,
            phase,
            ADAM,
            physical_batch=64,
            rng=secure(),
            done=done,
            before_step=seen.append,
        )
        assert seen == list(range(done + 1, 6))
