"""What an improvement begins with: sections of its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, PositiveFloat, model_validator

from dpal.config.data_place import DataPlace
from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.section import Count, Name, Section
from dpal.privacy import Adjacency, Unit


class DeclaredConfig(Section):
    """What a model without a certificate is said to have cost; nobody can check it."""

    model_config = ConfigDict(title="Set here")

    epsilon: PositiveFloat
    """That its makers declare."""
    delta: float = Field(ge=0, le=0.5)
    """Of the same claim."""
    adjacency: Adjacency = Adjacency.ZERO_OUT
    """Of the same claim."""
    unit: Unit = Unit.RECORD
    """Of the same claim."""


class RotationConfig(Section):
    """Pretraining on public images alone: which way is this picture turned?"""

    model_config = ConfigDict(title="Set here")

    epochs: Count = 4
    """Passes over the public images."""
    batch_size: Count = 128
    """Images of a step."""
    learning_rate: PositiveFloat = 1e-3
    """Of Adam."""
    records: Count = Field(20_000, title="Images")
    """Public images used at most, the first ones."""


class StartConfig(Section):
    """The private model to begin with: a campaign's, a file, or one trained here."""

    campaign: Annotated[Name | None, choice("A finished campaign", "None")] = None
    """Finished campaign whose model is improved; data, model and promise follow it."""
    model: Annotated[Path | None, Guarded(free=(None,)), choice("A file", "None")] = Field(
        None, title="Model file"
    )
    """Weights (.safetensors) of a model that was made elsewhere."""
    certificate: Annotated[Path | None, Guarded(free=(None,)), choice("A file", "None")] = None
    """Its certificate.json."""
    declared: Annotated[DeclaredConfig | None, choice("Set here", "None")] = Field(
        None, title="Declared cost"
    )
    """Of a model without a certificate: its certificate repeats it as declared."""
    name: Annotated[Name | None, choice("A name", "NAME-start")] = Field(
        None, title="Name of the training"
    )
    """Of the campaign that trains the start here; null is NAME-start."""
    epsilon: Annotated[PositiveFloat | None, choice("A number", "As much as fits")] = Field(
        None, title="Epsilon of the training"
    )
    """Of a start that is trained here; null leaves just what near_private needs."""
    batch_size: Count = 2048
    """Of a start that is trained here."""
    epochs: Count = 45
    """Of a start that is trained here."""
    rotations: Annotated[RotationConfig | None, choice("Set here", "None")] = Field(
        None, title="Rotation pretraining"
    )
    """Pretrain a start that is trained here on turned public images; usually not."""

    @property
    def trains(self) -> bool:
        """Whether the start is trained by this flow."""
        return self.campaign is None and self.model is None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.campaign is not None and self.model is not None:
            raise ValueError("start.campaign and start.model name two models; give one of them")
        if self.model is None and (self.certificate is not None or self.declared is not None):
            raise ValueError(
                "start.certificate and start.declared belong to start.model, which is not set"
            )
        if self.model is not None and (self.certificate is None) == (self.declared is None):
            raise ValueError(
                f"start.model {self.model} needs either start.certificate, or start.declared with "
                "the epsilon and delta that its makers state; what it cost cannot be guessed"
            )
        if self.rotations is not None and not self.trains:
            raise ValueError(
                "start.rotations pretrains a start that is trained here, and start.campaign or "
                "start.model names one that is there; leave one out"
            )
        return self


class PublicDataConfig(Section):
    """Public records that may be labeled: nothing here is protected."""

    pool: Annotated[
        DataPlace | list[DataPlace], Guarded(), choice("One file or folder", "Several")
    ] = Field(Path("data/digits-public.parquet"), title="Public pool")
    """Parquet file, folder or list; labels may be absent."""
    label_column: str = "label"
    """Name of the labels."""
    provenance_column: Annotated[str | None, choice("A column", "None")] = None
    """Says where a record is from; for the report on pollution only."""
    irrelevant: list[str] = Field([])
    """Values of that column that are pollution."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.provenance_column is None) != (not self.irrelevant):
            raise ValueError(
                "public.provenance_column and public.irrelevant go together: which column, and "
                "which of its values are irrelevant"
            )
        return self
