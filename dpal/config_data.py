"""Which records a campaign is about and who labels them: two sections of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dpal.canonical import place_digest
from dpal.config_runtime import Section as _Section
from dpal.features.spec import ExtractorKind as ExtractorKind
from dpal.features.spec import ExtractorSpec
from dpal.models.normalisation import Normalisation


class LabelerKind(StrEnum):
    """Who answers queries: the pool's own label column, or a person with a CSV file."""

    ORACLE = "oracle"
    FILE = "file"


class ContentChoice(StrEnum):
    """Which column of the records is read, where a file has several."""

    AUTO = "auto"
    IMAGE = "image"
    FEATURES = "features"
    TEXT = "text"


class NormalisationKind(StrEnum):
    """Where the numbers are from that inputs are centred and scaled by; never from the pool."""

    NONE = "none"
    CONSTANTS = "constants"
    VALIDATION = "validation"


class NormalisationConfig(_Section):
    """Public numbers by which inputs are centred and scaled, one for each channel or feature."""

    kind: NormalisationKind = Field(
        NormalisationKind.NONE,
        title="Normalisation",
        description="none: pixels run from -1 to 1. constants: mean and std below. validation: "
        "measured on the validation set, which is not protected.",
    )
    mean: list[float] = Field([], description="Of constants; of pixels from 0 to 1 for images.")
    std: list[float] = Field([], description="Of constants, on the same scale.")

    @property
    def measured(self) -> bool:
        """Whether a public file has to be read for it."""
        return self.kind is NormalisationKind.VALIDATION

    @model_validator(mode="after")
    def _consistent(self) -> NormalisationConfig:
        constants = self.kind is NormalisationKind.CONSTANTS
        if constants and (not self.mean or len(self.mean) != len(self.std)):
            raise ValueError(
                "data.normalisation constants needs data.normalisation.mean and std, one number "
                f"for each channel or feature, and has {len(self.mean)} and {len(self.std)}"
            )
        if not constants and (self.mean or self.std):
            raise ValueError(
                "data.normalisation.mean and std are for kind constants, and kind is "
                f"{self.kind}; set kind: constants, or leave them out"
            )
        return self


class BackboneConfig(_Section):
    """A public pretrained model that makes features; trained on nothing that is protected."""

    model: Literal[
        "resnet9", "wide_resnet16_4", "resnet50", "densenet121", "nfnet_f0", "tutorial_cnn"
    ] = Field("resnet50", title="Architecture", description="Architecture of the backbone.")
    weights: Path = Field(description="A local .safetensors file (nfnet_f0: or .npz).")


class DataConfig(_Section):
    """Parquet files with `id`, and `image`, `features` or `text_a` (and `text_b`)."""

    pool: Path | list[Path] = Field(
        Path("data/digits-pool.parquet"),
        description="Private records, a file, a folder of files or a list; labels may be absent.",
    )
    validation: Path = Field(
        Path("data/digits-validation.parquet"),
        description="Labeled records for metrics; not protected.",
    )
    label_column: str = Field("label", description="Name of the label column.")
    content: ContentChoice = Field(
        ContentChoice.AUTO,
        title="Content",
        description="What a record is, where its file has several columns; auto is the only one.",
    )
    extractor: ExtractorKind = Field(
        ExtractorKind.NONE,
        title="Extractor",
        description="Fixed features instead of pixels, free: none, scattering (of images), or "
        "backbone (a public pretrained model without its last layer).",
    )
    backbone: BackboneConfig | None = Field(
        None, title="Backbone", description="Of extractor backbone; else null."
    )
    normalisation: NormalisationConfig = Field(default_factory=NormalisationConfig)
    dataset: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="Registered data set (dpal data) whose limit counts all campaigns together.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if (self.extractor is ExtractorKind.BACKBONE) != (self.backbone is not None):
            raise ValueError(
                "data.extractor backbone and data.backbone (model and weights) go together, and "
                f"data.extractor is {self.extractor}; set both or neither"
            )
        return self

    def to_extractor(self) -> ExtractorSpec:
        """What makes features, with a digest of the weights it needs.

        Raises:
          ParameterError: the weights are not where they should be.
        """
        backbone = self.backbone
        if backbone is None:
            return ExtractorSpec(kind=self.extractor)
        return ExtractorSpec(
            kind=self.extractor,
            model=backbone.model,
            weights=str(backbone.weights),
            weights_digest=place_digest(backbone.weights),
        )

    def constants(self, input_shape: Sequence[int]) -> Normalisation | None:
        """The normalisation by constants, as a frozen value; None where it is another or none.

        Raises:
          ParameterError: a number is impossible.
        """
        mean, std = tuple(self.normalisation.mean), tuple(self.normalisation.std)
        if not mean:
            return None
        if len(input_shape) == 3 and self.extractor is ExtractorKind.NONE:
            return Normalisation.of_pixels(mean, std)
        return Normalisation(mean=mean, std=std)


class LabelerConfig(_Section):
    """Where labels come from."""

    kind: LabelerKind = Field(
        LabelerKind.ORACLE,
        description="oracle: the pool's label column. file: query.csv out, labels.csv in.",
    )
