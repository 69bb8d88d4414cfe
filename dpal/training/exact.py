"""Arithmetic on accelerators that is as exact as on processors."""

from __future__ import annotations

import torch


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
