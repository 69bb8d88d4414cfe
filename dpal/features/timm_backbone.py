"""Frozen models of timm, by name, with weights from a local file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from dpal.errors import DataError, ParameterError
from dpal.features.library_backbones import TIMM
from dpal.features.spec import ExtractorSpec, PictureForm
from dpal.models.weights import put_all_weights, read_safetensors


class TimmModels:
    """Models that timm knows by name."""

    def picture_form(self, variant: str | None, weights: Path, side: int | None) -> PictureForm:
        """What a model's pictures are brought to, as its own description in timm says.

        Raises:
          DataError: timm is not installed.
          ParameterError: it knows no such model, or one of other pictures.
        """
        del weights  # a file of numbers, which says nothing of pictures
        described = _description(variant)
        _, height, width = described.input_size
        if height != width and side is None:
            raise ParameterError(
                f"data.backbone.variant {variant} takes pictures of {height} x {width} pixels; say "
                "with data.backbone.side how long both sides are to be"
            )
        return PictureForm(
            side=side or height,
            mean=tuple(map(float, described.mean)),
            std=tuple(map(float, described.std)),
            interpolation="bilinear" if described.interpolation == "bilinear" else "bicubic",
        )

    def build_backbone(self, spec: ExtractorSpec) -> nn.Module:
        """A model up to its pooled features, from the file of its weights alone.

        Raises:
          DataError: timm is not installed, or the file is missing, or of another model.
          ParameterError: timm knows no such model.
        """
        variant, path = spec.variant, Path(spec.weights or "")
        _, own, _ = _description(variant).input_size
        # Transformers of pictures resample their positions for another size.
        other = spec.pictures is not None and spec.pictures.side != own
        sized = {"dynamic_img_size": True} if other else {}
        model = _created(variant, **sized)
        put_all_weights(model, read_safetensors(path), path)
        return model


def _description(variant: str | None) -> Any:
    """What timm says of a model's pictures.

    Raises:
      ParameterError: it knows no such model.
    """
    timm = TIMM.library("timm")
    # What timm knows by heart, and nothing else: other forms of names would be looked up on a hub.
    if variant is None or not timm.is_model(variant):
        raise ParameterError(
            f"timm has no model {variant!r}; name one in data.backbone.variant, such as "
            "vit_small_patch14_dinov2.lvd142m (all of them: timm.list_models())"
        )
    described = timm.get_pretrained_cfg(variant)
    if described is None:
        raise ParameterError(
            f"timm does not say what pictures {variant} was trained on; name it with its tag, such "
            "as vit_small_patch14_dinov2.lvd142m (all: timm.list_pretrained())"
        )
    return described


def _created(variant: str | None, **sized: bool) -> nn.Module:
    timm = TIMM.library("timm")
    try:
        model: nn.Module = timm.create_model(variant, pretrained=False, num_classes=0, **sized)
    except TypeError as error:
        if not sized:
            raise DataError(f"timm cannot build {variant}; use another data.backbone") from error
        return _created(variant)
    return model
