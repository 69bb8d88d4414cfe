"""The extractors that a campaign may name, as functions from records to features.

Each is fixed before any record is read and computes a record's features from that record
and public numbers alone. A record and its features are therefore protected alike, and what
is computed from features costs what it would cost from records: the extractor is free.
Standardisation is per record, too: no mean or variance over records is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpal.canonical import place_digest
from dpal.data.readers import to_input, to_unit
from dpal.data.sources import Content, Extractor
from dpal.errors import DataError
from dpal.features.scattering import Scattering
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec

# Half the memory of float32. Standardised features are of the order of 1, and rounded by
# less than a thousandth.
STORED = torch.float16

_TRANSFORM = Scattering()
_GROUP = 9  # coefficients of one channel that are standardised together
_FLAT = 1e-10  # variance, of pixels in [0, 1], next to which a group's own counts as none
_RECORDS_AT_ONCE = 64

# Brightness, red against green, yellow against blue: of red, green and blue.
_OPPONENTS = ((1 / 3, 1 / 3, 1 / 3), (0.5, -0.5, 0.0), (0.25, 0.25, -0.5))


@dataclass(frozen=True)
class ScatteringExtractor:
    """Scattering coefficients of images, standardised per record; of colours, if there are any.

    Red, green and blue of a pixel say nearly the same. Brightness and two differences of
    colours take their place, so that what colours add is not drowned after standardising.
    """

    def __call__(self, records: Tensor) -> Tensor:
        """Turns images into features.

        Args:
          records: (n, channels, height, width) decoded images, of 8 or 16 bits.

        Returns:
          (n, channels * coefficients, height / 4, width / 4) float16, sides rounded up; each
          group of 9 coefficients of a record has mean 0 and variance 1.

        Source: group normalisation of scattering features, Tramèr & Boneh (2021);
        scattering of separated colours, Oyallon & Mallat (2015).
        """
        images = to_unit(records)
        if images.ndim == 4 and images.shape[1] == len(_OPPONENTS):
            images = torch.einsum("oc,nchw->nohw", torch.tensor(_OPPONENTS), images)
        features = _TRANSFORM(images).flatten(1, 2)
        return functional.group_norm(features, features.shape[1] // _GROUP, eps=_FLAT).to(STORED)


@dataclass(frozen=True)
class BackboneExtractor:
    """What a public pretrained model computes before its last layer."""

    spec: ExtractorSpec

    def __call__(self, records: Tensor) -> Tensor:
        """Turns records into features.

        Args:
          records: (n, *input_shape) decoded, as the model was made for.

        Returns:
          (n, width) float16; the values of a record have mean 0 and variance 1.

        Raises:
          DataError: the weights are not there, changed since the plan, or do not fit.
        """
        network = _network(self.spec, tuple(records.shape[1:]))
        with torch.no_grad():
            parts = [
                network(to_input(part)).flatten(1)
                for part in torch.split(records, _RECORDS_AT_ONCE)
            ]
        features = torch.cat(parts)
        return functional.layer_norm(features, features.shape[1:]).to(STORED)


EXTRACTORS: dict[ExtractorKind, Callable[[ExtractorSpec], Extractor | None]] = {
    ExtractorKind.NONE: lambda spec: None,
    ExtractorKind.SCATTERING: lambda spec: ScatteringExtractor(),
    ExtractorKind.BACKBONE: BackboneExtractor,
}


def build_extractor(spec: ExtractorSpec, content: Content) -> Extractor | None:
    """The function that a source applies to its decoded records; None leaves them as they are.

    Args:
      spec: which one.
      content: what the records are.

    Raises:
      DataError: the extractor does not take such records.
    """
    if spec.kind is not ExtractorKind.NONE and content is not Content.IMAGE:
        raise DataError(
            f"data.extractor {spec.kind} takes images, and the records are {content}; set "
            "data.extractor to none"
        )
    return EXTRACTORS[spec.kind](spec)


@lru_cache(maxsize=2)
def _network(spec: ExtractorSpec, input_shape: tuple[int, ...]) -> nn.Module:
    """Builds the pretrained model for records of a shape, its last linear layer taken out."""
    weights = spec.weights or ""
    if Path(weights).exists() and place_digest(Path(weights)) != spec.weights_digest:
        raise DataError(
            f"{weights} is not the file that the campaign was planned with; restore it, or start "
            "a new campaign"
        )
    model = build_model(
        ModelSpec(name=spec.model or "", input_shape=input_shape, classes=2, weights=weights)
    )
    last = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)][-1]
    model.set_submodule(last, nn.Identity())
    return model.eval().requires_grad_(False)
