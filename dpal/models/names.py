"""The names of the architectures, without the weight of importing them."""

from __future__ import annotations

from typing import Literal

ModelName = Literal[
    "logistic",
    "mlp",
    "tutorial_cnn",
    "resnet9",
    "equivariant_resnet9",
    "wide_resnet16_4",
    "resnet50",
    "densenet121",
    "nfnet_f0",
    "text_classifier",
]
