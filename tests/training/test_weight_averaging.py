from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Averaging, AveragingKind
from dpal.training.weight_averaging import WeightAverage
from tests.conftest import having

STEPS = 40
EXPONENTIAL = Averaging(kind=AveragingKind.EXPONENTIAL, decay=0.9)
TAIL = Averaging(kind=AveragingKind.TAIL, tail=0.3)
AVERAGED = pytest.mark.parametrize("averaging", [EXPONENTIAL, TAIL], ids=lambda one: one.kind)


class Walk:
    """A model whose weights at every step are known: they walk at random."""

    def __init__(self, seed: int = 3) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        self.model[0].bias.requires_grad_(False)
        self.model.register_buffer("constant", torch.arange(3))
        self.generator = torch.Generator().manual_seed(seed)

    def step(self) -> np.ndarray:
        with torch.no_grad():
            for one in self.model.parameters():
                if one.requires_grad:
                    one.add_(0.1 * torch.randn(one.shape, generator=self.generator))
        return self.weights()

    def weights(self) -> np.ndarray:
        return flat(self.model.state_dict())


def flat(state: dict[str, torch.Tensor]) -> np.ndarray:
    return torch.cat([value.double().flatten() for value in state.values()]).numpy()


def test_exponential_by_the_formula_in_double_precision():
    walk = Walk()
    average = WeightAverage(walk.model, EXPONENTIAL, STEPS)
    expected = walk.weights()
    for step in range(1, STEPS + 1):
        decay = min(0.9, step / (9 + step))
        expected = decay * expected + (1 - decay) * walk.step()
        average.update(step)
    assert flat(average.averaged_state_dict()) == pytest.approx(expected, abs=1e-6)
    assert np.abs(expected - walk.weights()).max() > 0.01  # the last weights are others


def test_tail_is_the_mean_of_the_last_steps():
    walk = Walk()
    average = WeightAverage(walk.model, TAIL, STEPS)
    seen = []
    for step in range(1, STEPS + 1):
        seen.append(walk.step())
        average.update(step)
        if step == STEPS - 12:  # the tail of 30 % has not begun
            assert flat(average.averaged_state_dict()) == pytest.approx(seen[-1], abs=0)
    mean = np.mean(seen[-12:], axis=0)
    assert flat(average.averaged_state_dict()) == pytest.approx(mean, abs=1e-6)
    assert np.abs(mean - np.mean(seen[-13:], axis=0)).max() > 1e-4


def test_a_tail_has_a_step_however_short_the_phase():
    walk = Walk()
    average = WeightAverage(walk.model, Averaging(kind=AveragingKind.TAIL, tail=0.01), 2)
    for step in (1, 2):
        walk.step()
        average.update(step)
    assert flat(average.averaged_state_dict()) == pytest.approx(walk.weights(), abs=0)


@AVERAGED
@pytest.mark.parametrize("stop", [1, 28, 29, 39])
def test_going_on_from_a_file_changes_no_digit(averaging, stop):
    whole, parts = Walk(), Walk()
    one = WeightAverage(whole.model, averaging, STEPS)
    two = WeightAverage(parts.model, averaging, STEPS)
    for step in range(1, STEPS + 1):
        whole.step()
        one.update(step)
        parts.step()
        two.update(step)
        if step == stop:
            stored = save(two.state())
            two = WeightAverage(parts.model, averaging, STEPS)
            two.restore(load(stored))
    first, second = one.averaged_state_dict(), two.averaged_state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_does_not_train_is_not_averaged():
    walk = Walk()
    average = WeightAverage(walk.model, EXPONENTIAL, STEPS)
    walk.step()
    average.update(1)
    stored, released = average.state(), average.averaged_state_dict()
    assert {name for name in stored if "0.bias" in name or "constant" in name} == set()
    assert released.keys() == walk.model.state_dict().keys()
    assert torch.equal(released["constant"], torch.arange(3))
    assert torch.equal(released["0.bias"], walk.model.get_parameter("0.bias"))


def test_only_the_exponential_average_goes_on_over_phases():
    for averaging, kept in ((EXPONENTIAL, True), (TAIL, False), (Averaging(), False)):
        walk = Walk()
        average = WeightAverage(walk.model, averaging, 1)
        walk.step()
        average.update(1)
        assert bool(average.carried()) is kept


def test_without_averaging_the_last_weights_are_the_model():
    walk = Walk()
    average = WeightAverage(walk.model, Averaging(), STEPS)
    walk.step()
    average.update(1)
    assert average.state() == {}
    assert not average.averages
    assert flat(average.averaged_state_dict()) == pytest.approx(walk.weights(), abs=0)


@AVERAGED
def test_another_models_average_is_not_taken_up(averaging):
    average = WeightAverage(Walk().model, averaging, STEPS)
    other = WeightAverage(nn.Linear(2, 2), averaging, STEPS)
    for stored in (other.state(), {}):
        with pytest.raises(ParameterError, match="not belong"):
            average.restore(stored)
    average.update(1)
    for step in (1, 41):  # twice, and outside of the phase
        with pytest.raises(ParameterError, match="2 and 40", check=having(parameter="step")):
            average.update(step)
