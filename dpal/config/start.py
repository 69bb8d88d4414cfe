"""What an improvement begins with: sections of its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from dpal.config.form import choice
from dpal.config.guarded import Guarded
from dpal.config.runtime import Section
from dpal.privacy import Adjacency, Unit

NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"


class DeclaredConfig(Section):
    """What a model without a certificate is said to have cost; nobody can check it."""

    model_config = ConfigDict(title="Set here")

    epsilon: float = Field(gt=0, title="Epsilon", description="That its makers declare.")
    delta: float = Field(ge=0, le=0.5, title="Delta", description="Of the same claim.")
    adjacency: Adjacency = Field(
        Adjacency.ZERO_OUT, title="Adjacency", description="Of the same claim."
    )
    unit: Unit = Field(Unit.RECORD, title="Unit", description="Of the same claim.")


class RotationConfig(Section):
    """Pretraining on public images alone: which way is this picture turned?"""

    model_config = ConfigDict(title="Set here")

    epochs: int = Field(4, ge=1, title="Epochs", description="Passes over the public images.")
    batch_size: int = Field(128, ge=1, title="Batch size", description="Images of a step.")
    learning_rate: float = Field(1e-3, gt=0, title="Learning rate", description="Of Adam.")
    records: int = Field(
        20_000, ge=1, title="Images", description="Public images used at most, the first ones."
    )


class StartConfig(Section):
    """The private model to begin with: a campaign's, a file, or one trained here."""

    campaign: str | None = Field(
        None,
        pattern=NAME,
        title="Campaign",
        description="Finished campaign whose model is improved; data, model and promise follow it.",
        json_schema_extra=choice("A finished campaign", "None"),
    )
    model: Annotated[Path | None, Guarded(free=(None,))] = Field(
        None,
        title="Model file",
        description="Weights (.safetensors) of a model that was made elsewhere.",
        json_schema_extra=choice("A file", "None"),
    )
    certificate: Annotated[Path | None, Guarded(free=(None,))] = Field(
        None,
        title="Certificate",
        description="Its certificate.json.",
        json_schema_extra=choice("A file", "None"),
    )
    declared: DeclaredConfig | None = Field(
        None,
        title="Declared cost",
        description="Of a model without a certificate: its certificate repeats it as declared.",
        json_schema_extra=choice("Set here", "None"),
    )
    name: str | None = Field(
        None,
        pattern=NAME,
        title="Name of the training",
        description="Of the campaign that trains the start here; null is NAME-start.",
        json_schema_extra=choice("A name", "NAME-start"),
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        title="Epsilon of the training",
        description="Of a start that is trained here; null leaves just what near_private needs.",
        json_schema_extra=choice("A number", "As much as fits"),
    )
    batch_size: int = Field(
        2048, ge=1, title="Batch size", description="Of a start that is trained here."
    )
    epochs: int = Field(45, ge=1, title="Epochs", description="Of a start that is trained here.")
    rotations: RotationConfig | None = Field(
        None,
        title="Rotation pretraining",
        description="Pretrain a start that is trained here on turned public images; usually not.",
        json_schema_extra=choice("Set here", "None"),
    )

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

    pool: Annotated[Path | list[Path], Guarded()] = Field(
        Path("data/digits-public.parquet"),
        title="Public pool",
        description="Parquet file, folder or list; labels may be absent.",
        json_schema_extra=choice("One file or folder", "Several"),
    )
    label_column: str = Field("label", title="Label column", description="Name of the labels.")
    provenance_column: str | None = Field(
        None,
        title="Provenance column",
        description="Says where a record is from; for the report on pollution only.",
        json_schema_extra=choice("A column", "None"),
    )
    irrelevant: list[str] = Field(
        [], title="Irrelevant", description="Values of that column that are pollution."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.provenance_column is None) != (not self.irrelevant):
            raise ValueError(
                "public.provenance_column and public.irrelevant go together: which column, and "
                "which of its values are irrelevant"
            )
        return self
