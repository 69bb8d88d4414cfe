from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from dpal.data.labeled_records import LabeledSet
from dpal.errors import ParameterError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.selection_steps import RandomDraw
from dpal.randomness import secure
from dpal.training.dp_sgd import PrivateGradient
from dpal.training.evaluation import accuracy, probabilities
from dpal.training.optimizers import OPTIMIZERS, build_optimizer, restore_state, state_tensors
from dpal.training.poisson_batches import PoissonBatches
from dpal.training.train_phase import train_dp_sgd
from tests.conftest import having

SPEC = ModelSpec(name="logistic", input_shape=(4,), classes=2)


def phase(steps=200, old=0.1, new=0.4, noise=0.5) -> Phase:
    training = TrainingPhase(
        steps=steps,
        noise_multiplier=noise,
        sample_rate_old=old,
        sample_rate_new=new,
        expected_batch_size=30.0,
    )
    return Phase(index=1, cohort_size=50, selection=RandomDraw(), training=training)


def batches_of(one: Phase, cohorts: np.ndarray) -> PoissonBatches:
    return PoissonBatches.of_part(one.training, one.index, cohorts)


def optimizer_spec(name="sgd") -> OptimizerSpec:
    return OptimizerSpec(name=name, learning_rate=0.1, momentum=0.9, max_grad_norm=1.0)


def test_each_cohort_is_sampled_at_its_own_rate(bits):
    cohorts = np.repeat(np.array([0, 1], dtype=np.int16), [100, 50])
    batches = list(batches_of(phase(steps=400), cohorts).draw(rng=bits))
    assert len(batches) == 400
    old = sum(int((rows < 100).sum()) for rows in batches)
    new = sum(int((rows >= 100).sum()) for rows in batches)
    # Binomial: 4.9 standard deviations are a false alarm of 1e-6.
    assert abs(old - 4000) < 4.9 * np.sqrt(40_000 * 0.09)
    assert abs(new - 8000) < 4.9 * np.sqrt(20_000 * 0.24)


def test_records_join_independently(bits):
    cohorts = np.zeros(2, dtype=np.int16)
    drawn = batches_of(phase(4000, old=0.5), cohorts).draw(rng=bits)
    both = [rows.size for rows in drawn]
    # Two fair coins: 0, 1, 2 in proportions 1/4, 1/2, 1/4; empty batches are yielded too.
    assert np.bincount(both, minlength=3) / 4000 == pytest.approx([0.25, 0.5, 0.25], abs=0.04)


def labeled(count=120) -> LabeledSet:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=generator)
    inputs = torch.randn(count, 4, generator=generator) + 2.0 * labels[:, None]
    return LabeledSet(inputs=inputs, labels=labels, cohorts=(np.arange(count) % 2).astype(np.int16))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_phase_runs_its_steps_and_learns(name):
    data, model = labeled(), build_model(SPEC)
    seen: list[int] = []
    before = accuracy(model, data.inputs[:], data.labels, physical_batch=50)
    train_dp_sgd(
        model,
        build_optimizer(optimizer_spec(name), model.parameters()),
        data,
        phase(steps=60),
        optimizer_spec(name),
        physical_batch=16,
        rng=secure(),
        on_step=seen.append,
    )
    assert seen == list(range(1, 61))
    assert accuracy(model, data.inputs[:], data.labels, physical_batch=50) > max(0.8, before)


def test_new_records_catch_up_alone_before_the_rest(monkeypatch):
    """A phase's parts run in order, each with its own rates, noise and divisor."""
    data, model = labeled(), build_model(SPEC)
    seen: list[int] = []
    training = phase(old=1.0, new=1.0).training
    both = replace(training, steps=3)
    alone = replace(training, steps=2, sample_rate_old=0.0, noise_multiplier=2.0)
    records = []

    class Watched(PrivateGradient):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            self.noise = named["noise_multiplier"]

        def write(self, inputs, labels, sizes=None):
            records.append((len(inputs), self.noise))
            super().write(inputs, labels, sizes)

    monkeypatch.setattr("dpal.training.train_phase.PrivateGradient", Watched)
    train_dp_sgd(
        model,
        build_optimizer(optimizer_spec(), model.parameters()),
        data,
        replace(phase(), training=both, catch_up=alone),
        optimizer_spec(),
        physical_batch=200,
        rng=secure(),
        on_step=seen.append,
    )
    assert records == [(60, 2.0)] * 2 + [(120, 0.5)] * 3
    assert seen == [1, 2, 3, 4, 5]


def test_a_cohort_that_nobody_entered_still_gets_its_steps(bits):
    """A hidden gate may let nobody pass; noise alone is released then."""
    cohorts = np.zeros(5, dtype=np.int16)
    alone = replace(phase().training, steps=4, sample_rate_old=0.0)
    drawn = list(PoissonBatches.of_part(alone, 1, cohorts).draw(rng=bits))
    assert [rows.size for rows in drawn] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state_survives_a_file(name):
    """Two steps at once equal one step, a round trip through safetensors, and one step."""
    results = []
    for stop in (False, True):
        model = build_model(SPEC)
        optimizer = build_optimizer(optimizer_spec(name), model.parameters())
        for step in range(2):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, 0.3 + step)
            optimizer.step()
            if stop and step == 0:
                stored = save(state_tensors(optimizer))
                optimizer = build_optimizer(optimizer_spec(name), model.parameters())
                restore_state(optimizer, load(stored))
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ParameterError, check=having(parameter="training.optimizer")):
        build_optimizer(optimizer_spec("adagrad"), build_model(SPEC).parameters())


def test_probabilities_sum_to_one_and_leave_the_model_alone():
    model, data = build_model(SPEC), labeled()
    before = [p.clone() for p in model.parameters()]
    guesses = probabilities(model, data.inputs[:], physical_batch=7)
    assert guesses.sum(axis=1) == pytest.approx(np.ones(120))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
