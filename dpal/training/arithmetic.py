"""Arithmetic of training: exact unless a recipe allows less, and then only where it may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from dpal.planning.training_recipe import Precision


def exact_arithmetic() -> None:
    """Keeps accelerators from rounding products to ten bits and from choosing kernels by chance.

    TF32 is the default of convolutions: norms would be 1e-3 wrong, more than clipping allows
    for. A kernel chosen by its speed of the moment would round one record's result
    differently from run to run.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def passes(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """What a model's forward pass, and the backward pass after it, computes in."""
    if precision is Precision.BF16:
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Lets accelerators round the factors of products as `precision` allows, for a while.

    Factors that came from bfloat16 passes have eight bits and lose nothing in TF32, whose sums
    are float32; others, such as weighted gradients, keep eleven bits, each for itself.
    """
    conv, matmul = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    allowed = precision is not Precision.FP32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = conv, matmul
