from __future__ import annotations

import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.layers import ScalarGain
from dpal.training.losses import per_record_loss
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.per_record.screening import agrees, refuse_known_mixing, refuse_mixing
from tests.training.per_record.oracle import normal

LOSS = per_record_loss(Task.SINGLE_LABEL)


class Centre(nn.Module):
    """Takes the batch's mean off; with `training_only`, only in training mode."""

    def __init__(self, *, training_only: bool = False) -> None:
        super().__init__()
        self.training_only = training_only

    def forward(self, inputs):
        mixes = self.training or not self.training_only
        return inputs - inputs.mean(0) if mixes else inputs


class Counts(nn.Module):
    """Remembers a sum of what it saw."""

    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(()))
        self.register_buffer("second", torch.zeros(()))

    def forward(self, inputs):
        self.first += inputs.sum().detach()
        self.second += 1
        return inputs


def net(*inside: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(*inside), nn.Linear(4, 3))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.LazyBatchNorm1d(), nn.SyncBatchNorm(4)])
def test_batch_normalisation_is_known_and_named(layer):
    with pytest.raises(ParameterError, match=r"layer '1.0' \(\w*BatchNorm\w*\) mixes"):
        refuse_known_mixing(net(layer))


@pytest.mark.parametrize("layer", [Centre(), Centre(training_only=True)])
def test_a_layer_that_mixes_is_found_and_named(layer):
    model = net(nn.Tanh(), layer, nn.Tanh())
    with pytest.raises(ParameterError, match=r"layer '1.1' \(Centre\) mixes"):
        refuse_mixing(model, normal(5, 4, seed=1))


def test_what_mixes_in_training_alone_is_fine_elsewhere():
    refuse_mixing(net(Centre(training_only=True)).eval(), normal(5, 4, seed=1))


def test_mixing_is_found_where_no_module_does_it():
    class Rolls(nn.Module):
        def forward(self, inputs):
            return inputs.roll(1, dims=0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, inputs):
            return self.last(inputs + 0.01 * inputs.flip(0))

    with pytest.raises(ParameterError, match=r"layer 'last' \(Linear\) mixes"):
        refuse_mixing(Model(), normal(5, 4, seed=1))
    with pytest.raises(ParameterError, match=r"layer '1.0' \(Rolls\) mixes"):
        refuse_mixing(net(Rolls()), normal(5, 4, seed=1))


def test_attention_over_the_wrong_axis_is_found():
    """Records first is not torch's default: the default attends from record to record."""

    class Attends(nn.Module):
        def __init__(self, *, batch_first: bool) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(4, 2, batch_first=batch_first)

        def forward(self, inputs):
            return self.attend(inputs, inputs, inputs)[0]

    torch.manual_seed(0)
    refuse_mixing(Attends(batch_first=True), normal(5, 3, 4, seed=1))
    with pytest.raises(ParameterError, match=r"\(Attends\) mixes"):
        refuse_mixing(Attends(batch_first=False), normal(5, 3, 4, seed=1))


def test_statistics_that_stay_are_refused_and_taken_back():
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.InstanceNorm2d(3, track_running_stats=True))
    with pytest.raises(ParameterError, match="layer '1' remembers statistics"):
        refuse_mixing(model, normal(4, 2, 3, 3, seed=1))
    assert float(model.get_buffer("1.num_batches_tracked")) == 0
    assert (model.get_buffer("1.running_mean") == 0).all()
    counting = net(Counts())
    with pytest.raises(ParameterError, match=r"layer '1.0' remembers statistics"):
        refuse_mixing(counting, normal(4, 4, seed=1))
    assert all(float(buffer) == 0 for buffer in counting.buffers())


def test_what_treats_records_apart_passes_and_nothing_changes():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True),
        nn.Dropout2d(0.5), nn.Flatten(), nn.LayerNorm(16), nn.Dropout(0.5), nn.Linear(16, 3),
    )  # fmt: skip
    before = {name: value.clone() for name, value in model.state_dict().items()}
    chance = torch.get_rng_state()
    refuse_mixing(model, normal(5, 2, 4, 4, seed=1))
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def agreement(model: nn.Module, like: torch.Tensor) -> bool:
    count = sum(p.requires_grad for p in model.parameters())
    engine = BookKeeping(model, loss=LOSS, groups=[0] * count)
    return agrees(engine, model, LOSS, like, torch.zeros(5, dtype=torch.long))


def test_the_engine_agrees_with_plain_autograd():
    assert agreement(net(nn.Tanh(), nn.Dropout(0.5)), normal(5, 4, seed=1))


def test_a_tied_weight_that_no_layer_uses_is_seen():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(3, 4), nn.Linear(4, 4)

        def forward(self, tokens):
            return self.out(self.words(tokens).mean(1)) @ self.words.weight.T

    torch.manual_seed(0)
    assert not agreement(Tied(), torch.zeros(5, 6, dtype=torch.long))


def test_positions_before_records_are_seen():
    """Sums over all records are right then; norms and weights meet the wrong ones."""

    class PositionsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.last(torch.tanh(self.each(inputs.transpose(0, 1))).mean(0))

    torch.manual_seed(0)
    model = PositionsFirst()
    refuse_mixing(model, normal(5, 11, 4, seed=1))
    assert not agreement(model, normal(5, 11, 4, seed=1))


def test_frozen_layers_in_channels_last_do_not_crash():
    """torch's GroupNorm does, where its input needs no gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)
    )
    model[0].requires_grad_(False)
    nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)
    assert agreement(model, normal(5, 4, 5, 5, seed=1))


def test_what_compares_neighbours_only_is_found():
    class Sums(nn.Module):
        def forward(self, inputs):
            return inputs.cumsum(dim=0)

    class Best(nn.Module):
        def forward(self, inputs):
            kept = inputs.abs().sum(dim=1).argsort()[-2:]
            return torch.zeros_like(inputs).index_copy(0, kept, inputs[kept])

    for layer in (Sums(), Best()):
        with pytest.raises(ParameterError, match="mixes the"):
            refuse_mixing(net(layer), normal(5, 4, seed=1))


def test_what_stands_behind_a_closed_gate_is_found():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.gate = nn.Linear(4, 4), ScalarGain(0.0)

        def forward(self, inputs):
            found = self.first(inputs)
            return found + self.gate(found - found.flip(0))

    with pytest.raises(ParameterError, match=r"\(ScalarGain\) mixes"):
        refuse_mixing(Gated(), normal(5, 4, seed=1))
