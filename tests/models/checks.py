"""What every architecture must do, asked in the tests of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpal.models.architectures import ARCHITECTURES
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.mc_dropout import draw_masks, mc_probabilities
from tests.conftest import RepeatableBits


def spec_of(name: str, shape: tuple[int, ...] = (3, 16, 16), **changes: Any) -> ModelSpec:
    return ModelSpec(**{"name": name, "input_shape": shape, "classes": 10, **changes})


def images(count: int, shape: tuple[int, ...] = (3, 16, 16)) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def shapes_of(spec: ModelSpec) -> nn.Module:
    """The model without any numbers in it, for counts and shapes."""
    with torch.device("meta"):
        return ARCHITECTURES[spec.name].build(spec)


def count_of(spec: ModelSpec) -> int:
    return sum(parameter.numel() for parameter in shapes_of(spec).parameters())


def assert_follows(
    by_hand: Callable[[Mapping[str, Tensor], Tensor], Tensor], spec: ModelSpec
) -> None:
    """Logits equal those of plain functions of the state, in float64, anywhere but at the start."""
    model, inputs = build_model(spec).double(), images(2, spec.input_shape).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        expected = by_hand(model.state_dict(), inputs)
        assert expected.std() > 0.01
        assert torch.allclose(model(inputs), expected, rtol=1e-9, atol=1e-9)


def assert_records_apart(model: nn.Module, inputs: Tensor) -> None:
    """Nothing of another record arrives, be it NaN: in both modes, with and without dropout."""
    changed = inputs.clone()
    changed[1:] = torch.nan
    for training in (False, True):
        model.train(training)
        logits = []
        for records in (inputs, changed):
            torch.manual_seed(0)
            with torch.no_grad():
                logits.append(model(records))
        assert logits[0].isfinite().all()
        assert torch.allclose(logits[0][0], logits[1][0], atol=1e-5)
        assert not logits[1][1:].isfinite().any()


def assert_all_train(model: nn.Module, inputs: Tensor) -> None:
    """Every parameter gets a gradient, finite and not zero."""
    model.zero_grad()
    functional.cross_entropy(model(inputs), torch.arange(len(inputs))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def assert_mc_dropout(model: nn.Module, inputs: Tensor) -> None:
    """Passes differ for every record, and a record's do not depend on the others."""
    masks = draw_masks(model, passes=2, rng=RepeatableBits(1))

    def drop(records: Tensor) -> np.ndarray:
        return mc_probabilities(model, records, masks, physical_batch=len(records))

    before = drop(inputs)
    assert (before[0] != before[1]).any(axis=1).all()
    changed = inputs.clone()
    changed[1:] = 100.0
    after = drop(changed)
    assert np.allclose(before[:, 0], after[:, 0], atol=1e-6)
    assert not np.allclose(before[:, 1], after[:, 1], atol=1e-6)


def assert_own_dropout(name: str, shape: tuple[int, ...] = (3, 16, 16)) -> None:
    """Units drop in training, record by record; evaluation repeats; no chance, no dropout."""
    model, twice = build_model(spec_of(name, shape, dropout=0.5)), images(1, shape)
    twice = torch.cat([twice, twice])
    with torch.no_grad():
        dropped = model(twice)
        assert not torch.allclose(dropped[0], dropped[1], atol=1e-6)
        model.eval()
        assert torch.equal(model(twice), model(twice))
        whole = build_model(spec_of(name, shape))
        state = torch.get_rng_state()
        assert torch.allclose(whole(twice), model(twice), atol=1e-5)
        assert torch.equal(torch.get_rng_state(), state)
