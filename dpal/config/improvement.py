"""Improving a private model with public records: the settings, as a person writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from dpal.config.data import DataConfig, ExtractorKind
from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import OnlyIf
from dpal.config.improvement_start import PublicDataConfig, StartConfig
from dpal.config.labeler import LabelerConfig
from dpal.config.public_records import ChoiceConfig, FineTuningConfig, NearPrivateConfig
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.config.section import Fraction, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.config.training import ModelConfig, TrainingConfig
from dpal.config.validation import MayBeDeclared, refuse_share
from dpal.files.stored_objects import Place
from dpal.planning.linear_head_spec import TrainingMethod
from dpal.privacy import Accountant, Adjacency

KIND = "public"
ROTATION_WEIGHTS = "pretrained.safetensors"  # in the folder of an improvement


class ImprovementPrivacyConfig(Section):
    """What is promised to every private record, the start included."""

    epsilon: Annotated[PositiveFloat | None, choice("A number", "The start's")] = None
    """In all; null is the start's promise; of one trained here start.epsilon, or 3."""
    delta: Annotated[Fraction | None, choice("A number", "The start's")] = None
    """Failure probability; null is the start's, or 1 / (10 x pool size)."""
    adjacency: Adjacency = Adjacency.ZERO_OUT
    """Of a start that is trained here; else it is the start's."""
    accountant: Accountant = Accountant.PLD
    """pld or rdp."""


class PublicConfig(RunConfig):
    """Improve a private model with public records.

    Give it a name, a start, public records and how many of them may be labeled.
    """

    model_config = ConfigDict(title="Public improvement")

    kind: Literal["public"] = "public"
    """Of configuration."""
    name: Name = Field(examples=["clinic-improved"])
    """Names the folder and the ledger entries: lower-case letters, digits, - and _."""
    start: StartConfig = Field(default_factory=StartConfig)
    public: PublicDataConfig = Field(default_factory=PublicDataConfig, title="Public records")
    choice: ChoiceConfig = Field(default_factory=ChoiceConfig)
    near_private: NearPrivateConfig = Field(default_factory=NearPrivateConfig, title="near_private")
    privacy: ImprovementPrivacyConfig = Field(default_factory=ImprovementPrivacyConfig)
    fine_tuning: FineTuningConfig = Field(default_factory=FineTuningConfig, title="Fine-tuning")
    labeler: LabelerConfig = Field(default_factory=LabelerConfig, title="Labels")
    data: Annotated[Folded[DataConfig], OnlyIf("start.campaign", None)] = Field(
        default_factory=DataConfig, title="Private data"
    )
    """Pool and validation set; of a start that is a campaign they are its own."""
    validation: MayBeDeclared = Field(None, title="Whose validation records these are")
    """Whether the records of data.validation are public, and why; null is what a start says that is
    a campaign."""
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig, title="Training of the start")
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    def files_for_called_flows(self) -> Mapping[str, Path]:
        """The weights from which the training of its start goes on."""
        if self.start.rotations is None:
            return {}
        return {"model.weights": self.runtime.artifacts / self.name / ROTATION_WEIGHTS}

    @property
    def calls_campaigns(self) -> bool:
        """Whether its start is trained here."""
        return self.start.trains

    @property
    def labeled(self) -> tuple[Place | list[Place], str]:
        """The records that labels are bought for: files or a folder, and the column of labels."""
        return self.public.pool, self.public.label_column

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_share(self.validation)
        self.runtime.require_one_machine()
        if self.name == self.start.campaign or self.name == self.start_name:
            raise ValueError(
                f"name {self.name} is the start's own; choose another, such as {self.name}-improved"
            )
        most = self.labeler.most_records
        if most is not None and self.choice.wanted > most:
            raise ValueError(
                f"labeler.kind {self.labeler.kind} is for at most {most} records, and "
                f"choice.labels asks for {self.choice.wanted}; use labeler.kind file or "
                "label_studio"
            )
        if self.training.method is not TrainingMethod.DP_SGD:
            raise ValueError(
                f"training.method {self.training.method} fits a head of private records, and this "
                "trains a start by DP-SGD; leave it out, or fit the start in a campaign of its own"
            )
        if self.data.group_column is not None:
            raise ValueError(
                "data.group_column is of campaigns, and one that is named by start.campaign brings "
                "its own; leave it out"
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
        raise settings_refusal(error, PublicConfig) from error
