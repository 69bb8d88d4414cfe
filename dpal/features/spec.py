"""Which features are made of a record, without the weight of importing torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dpal import check
from dpal.canonical import LATER, PLACE
from dpal.errors import ParameterError

EMBEDDED_TOKENS = 128  # of a text, for a backbone that reads so many; what is longer is cut


class ExtractorKind(StrEnum):
    """What is applied to every record before anything else sees it.

    NONE: nothing; models see pixels, tokens or the file's own features.
    SCATTERING: wavelet scattering of images, which nothing had to be learned for.
    COARSE_SCATTERING: the same of larger images, brought to about 32 pixels a side first.
    BACKBONE: what a public pretrained model computes before its last layer; of texts the mean over
      their tokens.
    """

    NONE = "none"
    SCATTERING = "scattering"
    COARSE_SCATTERING = "coarse_scattering"
    BACKBONE = "backbone"


@dataclass(frozen=True, kw_only=True)
class PictureForm:
    """How a picture is brought to what a public model of another library was trained on.

    All of a picture is resized, both sides to the same length; nothing is cropped. Grey becomes
    three equal channels.

    Attributes:
      side: pixels of both sides.
      mean, std: of red, green and blue from 0 to 1, by which they are centred and scaled.
      interpolation: bilinear or bicubic.
    """

    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        check.at_least(1, **{"data.backbone.side": self.side})
        check.one_of(("bilinear", "bicubic"), interpolation=self.interpolation)
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ParameterError(
                f"a backbone's pictures have 3 channels, and it names {len(self.mean)} means and "
                f"{len(self.std)} standard deviations; use a model of colour pictures"
            )
        for std in self.std:
            check.positive(std=std)


@dataclass(frozen=True, kw_only=True)
class ExtractorSpec:
    """A fixed, public function of one record: free, as it reads no other record.

    Attributes:
      kind: what is computed.
      model: of a backbone, a name registered in `dpal.models.architectures`, or one of
        `dpal.features.library_backbones`.
      weights: of a backbone, a local file of public pretrained weights, or the folder of a text
        model; where it lies is no part of a plan.
      weights_digest: of what lies there, by `dpal.canonical.place_digest`; part of a plan.
      variant: of a library that has models by name, which one.
      pictures: of a library's model of pictures, what they are brought to first.
    """

    kind: ExtractorKind = ExtractorKind.NONE
    model: str | None = None
    weights: str | None = field(default=None, metadata=PLACE)
    weights_digest: str | None = None
    variant: str | None = field(default=None, metadata=LATER)
    pictures: PictureForm | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        given = [value is not None for value in (self.model, self.weights, self.weights_digest)]
        if self.kind is ExtractorKind.BACKBONE and not all(given):
            raise ParameterError(
                "data.extractor backbone needs data.backbone with the name of a model and the "
                "file of its public weights"
            )
        if self.kind is not ExtractorKind.BACKBONE and any(given):
            raise ParameterError(
                f"data.backbone is for data.extractor backbone, and it is {self.kind}"
            )
