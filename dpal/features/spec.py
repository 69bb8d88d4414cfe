"""Which features are made of a record, without the weight of importing torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dpal.canonical import PLACE
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
class ExtractorSpec:
    """A fixed, public function of one record: free, as it reads no other record.

    Attributes:
      kind: what is computed.
      model: of a backbone, a name registered in `dpal.models.architectures`.
      weights: of a backbone, a local file of public pretrained weights, or the folder of a text
        model; where it lies is no part of a plan.
      weights_digest: of what lies there, by `dpal.canonical.place_digest`; part of a plan.
    """

    kind: ExtractorKind = ExtractorKind.NONE
    model: str | None = None
    weights: str | None = field(default=None, metadata=PLACE)
    weights_digest: str | None = None

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
