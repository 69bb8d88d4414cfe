"""Models of transformers with random weights, small enough to build in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from dpal.canonical import place_digest
from dpal.config.data import BackboneConfig, DataConfig, ExtractorKind
from dpal.features.spec import ExtractorSpec

SIDE = 16
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
_NARROW: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "image_size": SIDE,
    "patch_size": 8,
}
_CONVOLUTIONS: dict[str, Any] = {
    "hidden_sizes": [8, 8, 12, 16],
    "depths": [1, 1, 1, 1],
    "patch_size": 2,
    "num_stages": 4,
}
PICTURE_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("ViTConfig", "ViTForImageClassification", _NARROW),
    "dinov2": ("Dinov2Config", "Dinov2Model", {**_NARROW, "patch_size": 4, "mlp_ratio": 2}),
    "dinov2_with_registers": (
        "Dinov2WithRegistersConfig", "Dinov2WithRegistersModel",
        {**_NARROW, "patch_size": 4, "mlp_ratio": 2},
    ),
    "clip_vision_model": ("CLIPVisionConfig", "CLIPVisionModel", _NARROW),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification", _CONVOLUTIONS),
    "convnextv2": ("ConvNextV2Config", "ConvNextV2Model", _CONVOLUTIONS),
}  # fmt: skip


def write_picture_model(folder: Path, kind: str, *, seed: int = 0, side: int = SIDE) -> Path:
    """Writes a folder as save_pretrained does, with a picture processor's settings."""
    torch.manual_seed(seed)
    config, model, sizes = PICTURE_MODELS[kind]
    built = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    with torch.no_grad():
        for value in built.parameters():  # none that begins at zero stays there
            value.add_(0.1 * torch.randn_like(value))
    built.save_pretrained(folder)
    about = {
        "do_resize": True,
        "size": {"height": side, "width": side},
        "resample": 3,
        "image_mean": MEAN,
        "image_std": STD,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def spec_of(model: str, weights: Path, **further: Any) -> ExtractorSpec:
    """What settings make of a folder or file."""
    backbone = BackboneConfig(model=model, weights=weights, **further)
    spec = DataConfig(extractor=ExtractorKind.BACKBONE, backbone=backbone).to_extractor()
    assert spec.weights_digest == place_digest(weights)
    return spec
