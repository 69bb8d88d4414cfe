"""One optimizer step on one batch, in every way that the benchmarks compare."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.training_recipe import Precision, Recipe
from dpal.randomness import secure
from dpal.training.arithmetic import passes, products
from dpal.training.backend_names import Backend
from dpal.training.dp_sgd import PrivateGradient
from tests.models import tiny_bert

Step = Callable[[], None]
CLASSES = 10
_AT_ONCE = 32  # records whose gradients torch.func holds together
_TOKENS = 64
_BERT = {  # two layers of 128: what is published as BERT-tiny, with a small vocabulary
    "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4,
    "max_position_embeddings": _TOKENS, "vocab_size": 1000,
}  # fmt: skip
_PRIVATE: dict[str, Any] = {"max_grad_norm": 1.0, "noise_multiplier": 1.0}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained on: one batch of made-up records."""

    model: str
    batch: int
    physical_batch: int
    precision: Precision = Precision.FP32
    device: str = "cpu"

    def build(self) -> tuple[nn.Module, Tensor, Tensor]:
        """Model in training mode, inputs and targets on the device."""
        generator = torch.Generator().manual_seed(0)
        targets = torch.randint(CLASSES, (self.batch,), generator=generator)
        if self.model == "transformer":
            model = _bert()
            inputs = tiny_bert.records(self.batch, length=_TOKENS, vocabulary=1000)
        else:
            shape = {"tutorial_cnn": (1, 28, 28), "resnet9": (3, 32, 32)}[self.model]
            spec = ModelSpec(name=self.model, input_shape=shape, classes=CLASSES)
            model = build_model(spec)
            inputs = torch.randn(self.batch, *shape, generator=generator)
        return model.to(self.device), inputs.to(self.device), targets.to(self.device)


def _bert() -> nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        place = tiny_bert.write_folder(Path(folder), **_BERT)
        return tiny_bert.model_of(
            place, input_shape=(2, _TOKENS), classes=CLASSES,
            trainable=("encoder", "pooler", "classifier"),
        )  # fmt: skip


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)


def plain(case: Case, *, channels_last: bool = False) -> Step:
    """Non-private."""
    model, inputs, targets = case.build()
    if channels_last and inputs.dim() == 4:
        # torch declares only the form without a device or a type.
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = inputs.to(memory_format=torch.channels_last)
    optimizer = _sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        with products(case.precision):
            with passes(case.precision, inputs.device):
                logits = model(inputs)
            F.cross_entropy(logits.float(), targets).backward()
        optimizer.step()

    return step


def plain_channels_last(case: Case) -> Step:
    """Non-private, in the memory layout that is fastest for convolutions."""
    return plain(case, channels_last=True)


def book_keeping(case: Case) -> Step:
    """Ours, the noise from the cryptographic stream included."""
    model, inputs, targets = case.build()
    optimizer = _sgd(model)
    gradient = PrivateGradient(
        model, expected_batch_size=case.batch, physical_batch=case.physical_batch, rng=secure(),
        recipe=Recipe(precision=case.precision), backend=Backend.BOOK_KEEPING, **_PRIVATE,
    )  # fmt: skip

    def step() -> None:
        gradient.write(inputs, targets)
        optimizer.step()

    return step


def opacus_hooks(case: Case) -> Step:
    """Opacus as it comes, with its noise from torch's generator."""
    model, inputs, targets = case.build()
    wrapped = GradSampleModule(model, loss_reduction="mean")
    optimizer = DPOptimizer(_sgd(model), expected_batch_size=case.batch, **_PRIVATE)

    def step() -> None:
        optimizer.zero_grad()
        with products(case.precision), _quiet():
            F.cross_entropy(wrapped(inputs), targets).backward()
        optimizer.step()

    return step


def opacus_ghost(case: Case) -> Step:
    """Opacus' fast gradient clipping: norms first, then a second backward pass."""
    model, inputs, targets = case.build()
    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimizer = DPOptimizerFastGradientClipping(
        _sgd(model), expected_batch_size=case.batch, **_PRIVATE
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss(reduction="mean"))

    def step() -> None:
        optimizer.zero_grad()
        with products(case.precision), _quiet():
            loss(wrapped(inputs), targets).backward()
        optimizer.step()

    return step


def torch_func(case: Case) -> Step:
    """What one would write by hand with torch.func, summed chunk by chunk."""
    model, inputs, targets = case.build()
    optimizer = _sgd(model)
    chosen = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, parameters, (record[None],))
        return F.cross_entropy(logits, target[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), randomness="different")

    def step() -> None:
        detached = {name: p.detach() for name, p in chosen.items()}
        sums = {name: torch.zeros_like(p) for name, p in detached.items()}
        with products(case.precision), _quiet():
            for x, y in zip(inputs.split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
                found = each(detached, x, y)
                squared = sum(g.reshape(len(x), -1).square().sum(1) for g in found.values())
                weights = (1 / torch.as_tensor(squared).sqrt()).clamp(max=1.0)
                for name, gradient in found.items():
                    sums[name] += torch.tensordot(weights, gradient, 1)
        for name, parameter in chosen.items():
            parameter.grad = (sums[name] + torch.randn_like(parameter)) / case.batch
        optimizer.step()

    return step


class _quiet(warnings.catch_warnings):  # noqa: N801
    """Without the warnings of hooks on first layers and of slow batching rules."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")


METHODS: dict[str, Callable[[Case], Step]] = {
    "non-private": plain,
    "non-private, channels_last": plain_channels_last,
    "dpal": book_keeping,
    "opacus hooks": opacus_hooks,
    "opacus ghost": opacus_ghost,
    "torch.func": torch_func,
}
OURS, BASE = "dpal", "non-private, channels_last"
LOW_PRECISION = ("non-private", BASE, OURS)  # the others have no bf16
