"""The extractors that a campaign may name, as functions from records to features.

Each is fixed before any record is read and computes a record's features from that record
and public numbers alone. A record and its features are therefore protected alike, and what
is computed from features costs what it would cost from records: the extractor is free.
Standardisation is per record, too: no mean or variance over records is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpal.canonical import place_digest
from dpal.data.readers import to_input, to_unit
from dpal.data.sources import Content, Extractor
from dpal.data.texts import TextEncoding, pad_id
from dpal.errors import DataError
from dpal.features.library_backbones import LIBRARY_BACKBONES, reads_texts
from dpal.features.scattering import Scattering
from dpal.features.spec import EMBEDDED_TOKENS, ExtractorKind, ExtractorSpec, PictureForm
from dpal.features.text_sizes import embedded_width, most_tokens
from dpal.models.bert import EmbedsTexts
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec

# Half the memory of float32. Standardised features are of the order of 1, and rounded by
# less than a thousandth.
STORED = torch.float16

_TRANSFORM = Scattering()
_GROUP = 9  # coefficients of one channel that are standardised together
_FLAT = 1e-10  # variance, of pixels in [0, 1], next to which a group's own counts as none
_RECORDS_AT_ONCE = 64
_PICTURES_AT_ONCE = 16  # of a large public model
_COARSE = 32  # pixels of the longer side, at most, of a picture that was made coarser
_LEAST_COARSE = 9  # pixels of the shorter one, at least: fewer have no inside
_OF_PAIRS = 4  # embeddings of a pair: first, second, their difference and their product

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
        return _scattered(to_unit(records))


@dataclass(frozen=True)
class CoarseScatteringExtractor:
    """Scattering of larger images, of which squares of pixels are averaged first.

    A tenth of the features and of the time, and hardly less to tell classes by.
    """

    def __call__(self, records: Tensor) -> Tensor:
        """Turns images into features.

        Args:
          records: (n, channels, height, width) decoded images, of 8 or 16 bits.

        Returns:
          As `ScatteringExtractor` gives for images whose longer side is 32 at most, unless the
          shorter one would be less than 9 then.
        """
        images = to_unit(records)
        square = _square(records.shape[2:])
        if square > 1:
            images = functional.avg_pool2d(
                images.float(), square, ceil_mode=True, count_include_pad=False
            )
        return _scattered(images)


@dataclass(frozen=True)
class TextBackboneExtractor:
    """Mean over a text's tokens of what a public pretrained model makes of them.

    Attributes:
      spec: the model.
      pairs: whether a record is two texts. Each is embedded by itself then; how they differ and
        where they agree stands beside both.

    Source: mean pooling, and what is made of pairs: Reimers & Gurevych (2019), "Sentence-BERT";
    the product: Conneau et al. (2017), "Supervised learning of universal sentence representations".
    """

    spec: ExtractorSpec
    pairs: bool

    def __call__(self, records: Tensor) -> Tensor:
        """Turns texts into features.

        Args:
          records: (n, 2, tokens) ids, 0 after the last one, and segments.

        Returns:
          (n, width) float16, of pairs (n, 4 * width); each embedding of a record has mean 0 and
          variance 1.

        Raises:
          DataError: the weights are not there, changed since the plan, or embed no texts.
        """
        ids, segments = records.long().unbind(dim=1)
        if not self.pairs:
            return self._embedded(ids).to(STORED)
        first, second = (self._embedded(part) for part in _apart(ids, segments))
        both = [(first - second).abs(), first * second]
        parts = [first, second, *(functional.layer_norm(part, part.shape[1:]) for part in both)]
        return torch.cat(parts, dim=1).to(STORED)

    def _embedded(self, ids: Tensor) -> Tensor:
        network = _network(self.spec, (2, ids.shape[1]))
        if not isinstance(network, EmbedsTexts):
            raise DataError(f"data.backbone.model {self.spec.model} embeds no texts")
        means = []
        with torch.no_grad():
            for tokens in ids:
                # One by one, and no longer than it is: not a digit of its features depends on
                # what else is read with it.
                own = tokens[None, : max(1, int((tokens != 0).sum()))]
                means.append(network.embedded(torch.stack([own, own * 0], dim=1)))
        if not means:
            return torch.zeros(0, embedded_width(Path(self.spec.weights or "")))
        embedded = torch.cat(means)
        return functional.layer_norm(embedded, embedded.shape[1:])


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


@dataclass(frozen=True)
class PictureBackboneExtractor:
    """What a public pretrained model of another library pools of a picture.

    Attributes:
      spec: the model, and what pictures are brought to first.
    """

    spec: ExtractorSpec

    def __call__(self, records: Tensor) -> Tensor:
        """Turns images into features.

        Args:
          records: (n, channels, height, width) decoded images, of 8 or 16 bits.

        Returns:
          (n, width) float16; the values of a record have mean 0 and variance 1.

        Raises:
          DataError: the weights are not there, changed since the plan, or do not fit; or images
            have neither 1 nor 3 channels.
        """
        form = self.spec.pictures
        if form is None:
            raise DataError(f"data.backbone.model {self.spec.model} lacks the form of its pictures")
        if not len(records):  # which not every model takes
            return self(records.new_zeros((1, *records.shape[1:])))[:0]
        network = _network(self.spec, (3, form.side, form.side))
        with torch.no_grad():
            parts = [
                network(brought_to(form, part)).flatten(1)
                for part in torch.split(records, _PICTURES_AT_ONCE)
            ]
        features = torch.cat(parts)
        return functional.layer_norm(features, features.shape[1:]).to(STORED)


EXTRACTORS: dict[ExtractorKind, Callable[[ExtractorSpec], Extractor | None]] = {
    ExtractorKind.NONE: lambda spec: None,
    ExtractorKind.SCATTERING: lambda spec: ScatteringExtractor(),
    ExtractorKind.COARSE_SCATTERING: lambda spec: CoarseScatteringExtractor(),
    ExtractorKind.BACKBONE: BackboneExtractor,
}


def build_extractor(spec: ExtractorSpec, content: Content, *, texts: int = 1) -> Extractor | None:
    """The function that a source applies to its decoded records; None leaves them as they are.

    Args:
      spec: which one.
      content: what the records are.
      texts: of texts, how many a record has.

    Raises:
      DataError: the extractor does not take such records.
    """
    if spec.kind is ExtractorKind.NONE:
        return None
    wanted = Content.TEXT if embeds_texts(spec) else Content.IMAGE
    if content is not wanted:
        named = spec.kind if spec.model is None else f"{spec.kind} ({spec.model})"
        raise DataError(
            f"data.extractor {named} takes {_PLURALS[wanted]}, and the records are "
            f"{_PLURALS[content]}; set data.extractor to none"
        )
    if wanted is Content.TEXT:
        return TextBackboneExtractor(spec, pairs=texts > 1)
    if spec.model in LIBRARY_BACKBONES:
        return PictureBackboneExtractor(spec)
    return EXTRACTORS[spec.kind](spec)


_PLURALS = {Content.IMAGE: "images", Content.FEATURES: "features", Content.TEXT: "texts"}


def embeds_texts(spec: ExtractorSpec) -> bool:
    """Whether records have to be texts, which the tokenizer beside the weights reads."""
    return spec.kind is ExtractorKind.BACKBONE and reads_texts(spec.model or "")


def text_encoding(spec: ExtractorSpec) -> TextEncoding:
    """What turns texts into the tokens that a text model embeds.

    Raises:
      DataError: there is no such model.
    """
    folder = Path(spec.weights or "")
    longest = min(EMBEDDED_TOKENS, most_tokens(folder))
    padding = pad_id(folder) if spec.model in LIBRARY_BACKBONES else 0
    return TextEncoding(folder=folder, max_tokens=longest, padding=padding)


def scattered_width(channels: int, sides: Sequence[int], *, coarse: bool) -> int:
    """How many features scattering makes of an image, without making them."""
    square = _square(sides) if coarse else 1
    block = square * 2**_TRANSFORM.scales
    places = math.prod(math.ceil(side / block) for side in sides)
    return int(channels * _TRANSFORM.coefficients * places)


def text_feature_width(weights: Path, texts: int) -> int:
    """How many features a text model in a folder makes of a record of so many texts.

    Raises:
      DataError: there is no such model.
    """
    return embedded_width(weights) * (_OF_PAIRS if texts > 1 else 1)


def feature_width(spec: ExtractorSpec, shape: Sequence[int]) -> int:
    """How many features a backbone makes of pictures of a shape, found out on a black one.

    Raises:
      DataError: the backbone cannot be read, or does not take such pictures.
    """
    extractor = build_extractor(spec, Content.IMAGE)
    if extractor is None:
        return math.prod(shape)
    return extractor(torch.zeros((1, *shape), dtype=torch.uint8)).flatten(1).shape[1]


def brought_to(form: PictureForm, images: Tensor) -> Tensor:
    """Images (n, channels, height, width) of 8 or 16 bits as a public model was trained on them.

    Returns:
      (n, 3, side, side) float32.

    Raises:
      DataError: they have neither 1 nor 3 channels.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(
            f"a public model of pictures takes grey or coloured ones, not records of shape "
            f"{tuple(images.shape[1:])}; set data.extractor to none"
        )
    sides = (form.side, form.side)
    found = to_unit(images)
    if tuple(images.shape[2:]) != sides:
        found = functional.interpolate(
            found, size=sides, mode=form.interpolation, antialias=True, align_corners=False
        ).clamp(0, 1)  # bicubic overshoots
    mean, std = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (form.mean, form.std))
    return (found.expand(-1, 3, -1, -1) - mean) / std


def _scattered(images: Tensor) -> Tensor:
    """Standardised scattering coefficients of images from 0 to 1; of colours, if there are any."""
    if images.ndim == 4 and images.shape[1] == len(_OPPONENTS):
        images = torch.einsum("oc,nchw->nohw", torch.tensor(_OPPONENTS), images)
    features = _TRANSFORM(images).flatten(1, 2)
    return functional.group_norm(features, features.shape[1] // _GROUP, eps=_FLAT).to(STORED)


def _square(sides: Sequence[int]) -> int:
    """Side of the squares of pixels that are averaged."""
    return max(1, min(math.ceil(max(sides) / _COARSE), min(sides) // _LEAST_COARSE))


def _apart(ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """The two texts of each record as records of their own, each behind its first token."""
    second = torch.zeros_like(ids)
    second[:, 0] = ids[:, 0]
    for row, (record, segment) in enumerate(zip(ids, segments, strict=True)):
        own = record[segment == 1][: ids.shape[1] - 1]
        second[row, 1 : 1 + len(own)] = own
    return ids * (segments == 0), second


@lru_cache(maxsize=2)
def _network(spec: ExtractorSpec, input_shape: tuple[int, ...]) -> nn.Module:
    """Builds the pretrained model for records of a shape, its last linear layer taken out."""
    weights = spec.weights or ""
    if Path(weights).exists() and place_digest(Path(weights)) != spec.weights_digest:
        raise DataError(
            f"{weights} is not the file that the campaign was planned with; restore it, or start "
            "a new campaign"
        )
    library = LIBRARY_BACKBONES.get(spec.model or "")
    if library is not None:
        public = library.reader().build_backbone(spec).eval().requires_grad_(False)
        if not library.reads_texts:
            _require_apart(public, input_shape, spec)
        return public
    model = build_model(
        ModelSpec(name=spec.model or "", input_shape=input_shape, classes=2, weights=weights)
    )
    last = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)][-1]
    model.set_submodule(last, nn.Identity())
    return model.eval().requires_grad_(False)


def _require_apart(network: nn.Module, shape: tuple[int, ...], spec: ExtractorSpec) -> None:
    """Requires that a picture's features do not follow from what is beside it, by three made up.

    Raises:
      DataError: they do, or the model does not take such pictures or make finite numbers of them.
    """
    named = " ".join(filter(None, (spec.model, spec.variant)))
    generator = torch.Generator().manual_seed(0)
    first, second, third = torch.randn((3, *shape), generator=generator)
    try:
        with torch.no_grad():
            one, other = (network(torch.stack([first, each])) for each in (second, third))
    except Exception as error:  # another library's code
        raise DataError(
            f"data.backbone {named} does not take pictures of {shape[1]} x {shape[2]} pixels "
            f"({type(error).__name__}); leave data.backbone.side out, or use another model"
        ) from error
    if one.ndim != 2 or not bool(one.isfinite().all()):
        raise DataError(
            f"data.backbone {named} does not make one row of finite numbers of a picture; use "
            "another model"
        )
    if not torch.equal(one[0], other[0]):
        raise DataError(
            f"data.backbone {named} mixes the pictures that it sees together, so that features of "
            "one would tell of others; use another model"
        )
