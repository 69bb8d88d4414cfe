"""Which records a campaign is about: a section of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from dpal.canonical import place_digest
from dpal.config.data_place import DataPlace
from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import Guarded
from dpal.config.registered_names import Registered
from dpal.config.section import Name, Section
from dpal.features.library_backbones import LIBRARY_BACKBONES, all_backbones
from dpal.features.spec import ExtractorKind as ExtractorKind
from dpal.features.spec import ExtractorSpec
from dpal.models.normalisation import Normalisation


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

    @property
    def given(self) -> bool:
        """Whether inputs are centred and scaled at all."""
        return self is not NormalisationKind.NONE


class NormalisationConfig(Section):
    """Public numbers by which inputs are centred and scaled, one for each channel or feature."""

    model_config = ConfigDict(title="Set here")

    kind: NormalisationKind = Field(NormalisationKind.NONE, title="Where the numbers are from")
    """none: pixels run from -1 to 1. constants: mean and std below. validation: measured on the
    validation set, which must be public."""
    mean: list[float] = Field([], title="Means")
    """Of constants; of pixels from 0 to 1 for images."""
    std: list[float] = Field([], title="Standard deviations")
    """Of constants, on the same scale."""

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


class BackboneConfig(Section):
    """A public pretrained model that makes features; trained on nothing that is protected."""

    model_config = ConfigDict(title="Set here")

    model: Annotated[str, Registered(names=all_backbones)] = Field("resnet50", title="Architecture")
    """Architecture of the backbone; or timm, transformers_image and transformers_text, whose models
    are frozen."""
    weights: Annotated[Path, Guarded()]
    """A local .safetensors file (nfnet_f0: or .npz); of text_classifier and transformers, a folder
    that has tokenizer or preprocessor and configuration, too."""
    variant: Annotated[str | None, choice("A name", "None")] = Field(None, title="Model of timm")
    """Of timm, which of its models, such as vit_small_patch14_dinov2.lvd142m."""
    side: Annotated[int | None, choice("Pixels", "The model's own")] = Field(
        None, ge=8, le=2048, title="Size of pictures"
    )
    """Of timm and transformers_image, pixels of both sides that pictures are resized to; null is
    what the model was trained on."""

    @model_validator(mode="after")
    def _consistent(self) -> BackboneConfig:
        library = LIBRARY_BACKBONES.get(self.model)
        named = library is not None and library.has_variants
        if named != (self.variant is not None):
            raise ValueError(
                "data.backbone.variant says which model of timm is meant, and "
                f"data.backbone.model is {self.model}; " + ("name one" if named else "leave it out")
            )
        if self.side is not None and (library is None or library.reads_texts):
            raise ValueError(
                "data.backbone.side is for timm and transformers_image, and data.backbone.model "
                f"is {self.model}; leave it out"
            )
        return self


class DataConfig(Section):
    """Parquet files with `id`, and `image`, `features` or `text_a` (and `text_b`)."""

    pool: Annotated[
        DataPlace | list[DataPlace], Guarded(), choice("One file or folder", "Several")
    ] = Path("data/digits-pool.parquet")
    """Private records: a file, a folder of files or a list, each a path or a URL (s3://...); labels
    may be absent."""
    validation: Annotated[
        DataPlace | None, Guarded(free=(None,)), choice("A file", "A share of the pool")
    ] = Field(Path("data/digits-validation.parquet"), title="Validation set")
    """Labeled records for metrics; whose they are stands in validation. null where validation.share
    holds out records of the pool."""
    label_column: str = "label"
    """Name of the label column."""
    group_column: Annotated[str | None, choice("A column", "None")] = None
    """Of privacy.unit group: the pool's column that says whose a record is (a patient, say). A
    registered data set has named it."""
    # Without the data set that it is registered as, a pool's limit would not count.
    dataset: Annotated[
        Name | None, Guarded(place=False, usual=(None,)), choice("A registered data set", "None")
    ] = Field(None, title="Data set")
    """Registered data set (dpal data) whose limit counts all campaigns together."""
    content: ContentChoice = ContentChoice.AUTO
    """What a record is, where its file has several columns; auto is the only one."""
    extractor: ExtractorKind = ExtractorKind.NONE
    """Fixed features instead of pixels or texts, free: none, scattering (of images),
    coarse_scattering (of larger ones), or backbone (a public pretrained model without its last
    layer)."""
    backbone: Annotated[BackboneConfig | None, choice("Set here", "None")] = None
    """Of extractor backbone; else null."""
    normalisation: Folded[NormalisationConfig] = Field(default_factory=NormalisationConfig)
    """Public numbers by which inputs are centred and scaled; usually none."""

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
          ParameterError: the weights are not where they should be, or their library does not know
            such a model.
          DataError: a library is not installed, or its model's folder is not whole.
        """
        backbone = self.backbone
        if backbone is None:
            return ExtractorSpec(kind=self.extractor)
        library, pictures = LIBRARY_BACKBONES.get(backbone.model), None
        if library is not None and not library.reads_texts:
            form = library.reader().picture_form
            pictures = form(backbone.variant, backbone.weights, backbone.side)
        return ExtractorSpec(
            kind=self.extractor,
            model=backbone.model,
            weights=str(backbone.weights),
            weights_digest=place_digest(backbone.weights),
            variant=backbone.variant,
            pictures=pictures,
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
