"""Finds out, on made-up records, whether a model treats records apart."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.training.per_record.backend import Loss, PerRecordGradients

# One output value depends on all records of the batch: no per-record gradient exists.
_MIXING = (nn.modules.batchnorm._BatchNorm,)

_SCREENED = 6  # made-up records that are watched while one after the other changes
_SAME = 1e-4  # relative: rounding is far below, a layer that mixes far above
_SAME_NORM = 1e-2  # relative, of squares: the room for rounding in them is far below


def refuse_known_mixing(model: nn.Module) -> None:
    """Refuses layers that are known to mix records.

    Raises:
      ParameterError: there is one.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, _MIXING):
            raise ParameterError(_mixes(name, layer))


def probe_copy(model: nn.Module) -> nn.Module:
    """A copy to try things on, in which no weight is zero throughout.

    What stands behind a gate that begins at zero would be tried without effect.
    """
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)  # public: no record and no noise comes of it
    with torch.no_grad():
        for parameter in copied.parameters():
            if parameter.numel() and not parameter.any():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return copied


def refuse_mixing(model: nn.Module, like: Tensor) -> None:
    """Runs a copy of a model on made-up records and refuses it when they touch each other.

    Args:
      model: in training mode, as it will be used.
      like: (n, *input_shape) prepared records; only shape, type and device are read.

    Raises:
      ParameterError: one record's output depends on another record, or a layer remembers
        what it saw. The first such layer is named.
    """
    refuse_known_mixing(model)
    require_unmixed(probe_copy(model), like)


def require_unmixed(tried: nn.Module, like: Tensor) -> None:
    """Does what `refuse_mixing` does, with a model of which no weight is zero throughout."""
    records = made_up(like, _SCREENED + 1)
    before = {name: buffer.clone() for name, buffer in tried.named_buffers()}
    usual = _outputs(tried, records[:-1])
    for name, buffer in tried.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ParameterError(
                f"layer {name.rpartition('.')[0]!r} remembers statistics of the records it "
                "sees, and they would be released with the model; build it without"
            )
    for changed in (0, _SCREENED // 2, _SCREENED - 1):
        others = torch.arange(_SCREENED) != changed
        batch = records[:-1].clone()
        batch[changed] = records[-1]
        for (name, layer, output), (_, _, other) in zip(usual, _outputs(tried, batch), strict=True):
            largest = float(output[others].abs().max())
            if not torch.allclose(output[others], other[others], rtol=_SAME, atol=_SAME * largest):
                raise ParameterError(_mixes(name, layer))


def agrees(engine: PerRecordGradients, model: nn.Module, loss: Loss, like: Tensor,
           targets: Tensor) -> bool:  # fmt: skip
    """Whether norm and gradient of one of two made-up records are those of plain autograd.

    They are not where a parameter is used outside of the layer that holds it, or where a
    layer is given records along another axis than the first. `model` is the engine's own.
    """
    records, wanted = two_records(like, targets)
    first = FirstAlone()
    with same_chance():
        sums = engine.weighted_sum(records, wanted, real=2, copies=1, weigh=first)
    # The input's gradient is asked for as well: torch's GroupNorm crashes where its input
    # is channels_last and needs none.
    asked = [records.requires_grad_()] if records.is_floating_point() else []
    with same_chance(), torch.enable_grad():
        total = loss(model(records), wanted)[0]
        plain = torch.autograd.grad(total, [*engine.parameters, *asked], allow_unused=True)
    distance = size = 0.0
    for ours, theirs in zip(sums, plain, strict=False):
        expected = torch.zeros_like(ours) if theirs is None else theirs.double()
        distance += float((ours.double() - expected).square().sum())
        size += float(expected.square().sum())
    return first.agrees(distance, size)


class FirstAlone:
    """Weighs the first of two records with 1 and the other one with 0; see `Weigh`."""

    def __init__(self) -> None:
        self._norm = float("nan")

    def __call__(self, squared: Tensor) -> Tensor:
        """Takes squared norms (groups, 2), gives weights."""
        self._norm = float(squared[:, 0].sum())
        return torch.tensor([1.0, 0.0]).to(squared).expand_as(squared)

    def agrees(self, distance: float, size: float) -> bool:
        """Whether norm and sum are those of a gradient.

        Args:
          distance: square of how far the sum is from it.
          size: square of its norm.
        """
        same_norm = abs(self._norm - size) <= _SAME_NORM * size + 1e-20
        return same_norm and distance <= 1e-6 * size + 1e-20


def two_records(like: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Two made-up records, and a label for each."""
    wanted = torch.zeros_like(targets[:1]).repeat(2, *[1] * (targets.dim() - 1))
    return made_up(like, 2), wanted


def made_up(like: Tensor, count: int) -> Tensor:
    """Made-up records (count, *input_shape), always the same."""
    generator = torch.Generator().manual_seed(0)  # public: no record and no noise comes of it
    shape = (count, *like.shape[1:])
    if like.is_floating_point():
        return torch.randn(shape, generator=generator).to(like)
    return torch.randint(0, 2, shape, generator=generator).to(like)


def _outputs(model: nn.Module, records: Tensor) -> list[tuple[str, nn.Module, Tensor]]:
    """What every layer gives for each of the records, in the order of calls."""
    outputs: list[tuple[str, nn.Module, Tensor]] = []

    def note(name: str) -> Any:
        def hook(layer: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor) and len(output) == len(records):
                outputs.append((name, layer, output.detach().float().clone()))

        return hook

    handles = [layer.register_forward_hook(note(name)) for name, layer in model.named_modules()]
    try:
        with same_chance(), torch.no_grad():
            model(records)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@contextmanager
def same_chance() -> Iterator[None]:
    """Dropout drops the same units each time, and nothing outside notices."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def _mixes(name: str, layer: nn.Module) -> str:
    return (
        f"layer {name!r} ({type(layer).__name__}) mixes the records of a batch, so no record has "
        "a gradient of its own; use group normalisation, or treat every record alone"
    )
