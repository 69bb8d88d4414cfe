"""Improving a private model with public records: the settings, as a person writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from dpal.accounting.cohorts import Accountant
from dpal.config.data import DataConfig, ExtractorKind
from dpal.config.form import FOLDED, choice, fold
from dpal.config.guarded import OnlyIf
from dpal.config.help import explain
from dpal.config.labeler import FORM_RECORDS, LabelerConfig, LabelerKind
from dpal.config.public_records import ChoiceConfig, FineTuningConfig, NearPrivateConfig
from dpal.config.runtime import RuntimeConfig, Section
from dpal.config.start import NAME, PublicDataConfig, StartConfig
from dpal.config.training import ModelConfig, TrainingConfig
from dpal.errors import ConfigError
from dpal.privacy import Adjacency

KIND = "public"


class ImprovementPrivacyConfig(Section):
    """What is promised to every private record, the start included."""

    epsilon: float | None = Field(
        None,
        gt=0,
        title="Epsilon",
        description="In all; null is the start's promise; of one trained here start.epsilon, or 3.",
        json_schema_extra=choice("A number", "The start's"),
    )
    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        title="Delta",
        description="Failure probability; null is the start's, or 1 / (10 x pool size).",
        json_schema_extra=choice("A number", "The start's"),
    )
    adjacency: Adjacency = Field(
        Adjacency.ZERO_OUT,
        title="Adjacency",
        description="Of a start that is trained here; else it is the start's.",
    )
    accountant: Accountant = Field(Accountant.PLD, title="Accountant", description="pld or rdp.")


class PublicConfig(Section):
    """Improve a private model with public records.

    Give it a name, a start, public records and how many of them may be labeled.
    """

    model_config = ConfigDict(title="Public improvement")

    kind: Literal["public"] = Field("public", title="Kind", description="Of configuration.")
    name: str = Field(
        pattern=NAME,
        title="Name",
        description="Names the folder and the ledger entries: lower-case letters, digits, - and _.",
        examples=["clinic-improved"],
    )
    start: StartConfig = Field(default_factory=StartConfig, title="Start")
    public: PublicDataConfig = Field(default_factory=PublicDataConfig, title="Public records")
    choice: ChoiceConfig = Field(default_factory=ChoiceConfig, title="Choice")
    near_private: NearPrivateConfig = Field(default_factory=NearPrivateConfig, title="near_private")
    privacy: ImprovementPrivacyConfig = Field(
        default_factory=ImprovementPrivacyConfig, title="Privacy"
    )
    fine_tuning: FineTuningConfig = Field(default_factory=FineTuningConfig, title="Fine-tuning")
    labeler: LabelerConfig = Field(default_factory=LabelerConfig, title="Labels")
    data: Annotated[DataConfig, FOLDED, OnlyIf("start.campaign", None)] = Field(
        default_factory=DataConfig,
        title="Private data",
        description="Pool and validation set; of a start that is a campaign they are its own.",
        json_schema_extra=fold,
    )
    model: ModelConfig = Field(default_factory=ModelConfig, title="Model")
    training: TrainingConfig = Field(default_factory=TrainingConfig, title="Training of the start")
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name == self.start.campaign or self.name == self.start_name:
            raise ValueError(
                f"name {self.name} is the start's own; choose another, such as {self.name}-improved"
            )
        if self.labeler.kind is LabelerKind.FORM and self.choice.wanted > FORM_RECORDS:
            raise ValueError(
                f"labeler.kind form is for at most {FORM_RECORDS} records, and choice.labels asks "
                f"for {self.choice.wanted}; use labeler.kind file or label_studio"
            )
        if self.fine_tuning.shift and self.data.extractor is not ExtractorKind.NONE:
            raise ValueError(
                f"fine_tuning.shift moves images, and data.extractor {self.data.extractor} turns "
                "them into features first; use one of the two"
            )
        rotated = self.start.rotations is not None
        if rotated and (self.data.extractor is not ExtractorKind.NONE or self.model.weights):
            raise ValueError(
                "start.rotations makes pretrained weights for a model of images; leave out "
                "model.weights and data.extractor"
            )
        return self

    @property
    def start_name(self) -> str | None:
        """The campaign that trains the start, where this flow does."""
        return (self.start.name or f"{self.name}-start") if self.start.trains else None


def parse_public(values: Mapping[str, Any]) -> PublicConfig:
    """Checks the settings of an improvement.

    Raises:
      ConfigError: as `parse_config`.
    """
    try:
        return PublicConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(explain(error, PublicConfig)) from error
