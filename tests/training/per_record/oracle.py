"""Gradients of single records by plain autograd in float64, and comparisons with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpal.training.per_record.layer_rule import (
    KEEP,
    Rule,
)
from dpal.training.per_record.norms_and_sums import (
    squared,
)

NORMS, SUMS = 1e-5, 1e-4  # relative; the numbers

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**16)
copies = st.integers(1, 3)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _asked(parameters: list[Tensor], inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """What to ask gradients for: the input, too, or GroupNorm crashes on channels_last."""
    if not inputs.is_floating_point():
        return parameters, inputs
    leaf = inputs.double().detach().requires_grad_()
    return [*parameters, leaf], leaf


def layer_gradients(
    layer: nn.Module, inputs: Tensor, grads: Tensor, records: int
) -> dict[str, Tensor]:
    """For every parameter that trains (records, *shape): one record after the other."""
    twin = copy.deepcopy(layer).double()
    named = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    views = len(inputs) // records
    found: dict[str, list[Tensor]] = {name: [] for name in named}
    for at in range(records):
        rows = slice(at * views, (at + 1) * views)
        asked, part = _asked(list(named.values()), inputs[rows])
        each = torch.autograd.grad(twin(part), asked, grads[rows].double())
        for name, value in zip(named, each, strict=False):
            found[name].append(value)
    return {name: torch.stack(values) for name, values in found.items()}


def model_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    views: int = 1,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> list[Tensor]:
    """For every parameter that trains (records, *shape), of the mean over a record's views."""
    twin = copy.deepcopy(model).double()
    chosen: list[Tensor] = [p for p in twin.parameters() if p.requires_grad]
    found: list[list[Tensor]] = [[] for _ in chosen]
    for at in range(0, len(inputs), views):
        part = inputs[at : at + views]
        asked, part = _asked(chosen, part)
        value = loss(twin(part), targets[at : at + views])
        each = torch.autograd.grad(value, asked, allow_unused=True)
        for number, value in enumerate(each[: len(chosen)]):
            found[number].append(torch.zeros_like(chosen[number]) if value is None else value)
    return [torch.stack(values) for values in found]


def norms_of(gradients: Iterable[Tensor]) -> Tensor:
    """Norms (records,) over all parameters."""
    squares = [g.double().reshape(len(g), -1).square().sum(1) for g in gradients]
    return torch.stack(squares).sum(0).sqrt()


def assert_same_norms(found: Tensor, expected: Tensor, message: str = "") -> None:
    # Where terms nearly cancel, as between views, what is left has the rounding of the terms.
    scale = expected.clamp(min=max(1e-12, 0.05 * float(expected.max())))
    worst = ((found.double() - expected).abs() / scale).max()
    assert worst <= NORMS, f"{message}: norms are {worst:.1e} off"


def assert_same_sums(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    ours = torch.cat([value.double().reshape(-1) for value in found])
    theirs = torch.cat([value.reshape(-1) for value in expected])
    assert ours.isfinite().all()
    assert (ours - theirs).norm() <= SUMS * theirs.norm()


def weigh_all(gradients: Mapping[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
    return {name: torch.tensordot(weights.double(), g, 1) for name, g in gradients.items()}


def assert_rule_is_right(
    rule: Rule, inputs: Tensor, *, records: int, seed: int, forced: Iterable[str]
) -> None:
    """Every way of measuring and of summing, also those that are not offered for such calls."""
    with torch.no_grad():
        grads = normal(*rule.layer(inputs).shape, seed=seed + 1)
    expected = layer_gradients(rule.layer, inputs, grads, records)
    assert set(expected) == set(rule.parameters)
    norms = norms_of(expected.values())
    with torch.no_grad():
        kept = rule.per_record(inputs, grads, records)
        assert_same_norms(squared(kept).sqrt(), norms, "kept")
        assert_same_sums((kept[name] for name in expected), expected.values())
        for way in forced:
            found = rule.squared_norms(inputs, grads, records, way=way)
            # Where positions cancel, squares of norms are right to the stated rounding.
            room = 2 * NORMS * norms.square() + found.rounding
            assert ((found.value - norms.square()).abs() <= room).all(), way
        weights = torch.linspace(0, 1, records)
        sums, wanted = rule.weighted(inputs, grads, weights), weigh_all(expected, weights)
        assert_same_sums((sums[name] for name in wanted), wanted.values())
        assert set(rule.ways(inputs, grads, records)) <= {KEEP, *forced}


def freeze(layer: nn.Module, frozen: str | None) -> nn.Module:
    if frozen is not None and getattr(layer, frozen, None) is not None:
        getattr(layer, frozen).requires_grad_(False)
    return layer
