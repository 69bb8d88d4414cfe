"""Private voting: teachers on private records, a student on public ones; the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from dpal.accounting.votes.rules import CLIPPED, Mechanism
from dpal.config.data import DataConfig
from dpal.config.form import FOLDED, choice, fold
from dpal.config.guarded import Guarded
from dpal.config.help import explain
from dpal.config.runtime import RuntimeConfig, Section
from dpal.config.start import NAME, PublicDataConfig
from dpal.config.teachers import Cut, StudentConfig, TeachersConfig, VotingConfig
from dpal.config.training import ModelConfig, TrainingConfig
from dpal.errors import ConfigError
from dpal.privacy import Adjacency

PATE = "pate"

Baseline = Literal["non_private", "dp_sgd", "dp_sgd_adaptive", "private_knn"]
PRIVATE_BASELINES: tuple[Baseline, ...] = ("dp_sgd", "dp_sgd_adaptive", "private_knn")


class VotingPrivacyConfig(Section):
    """What is promised to every private record, whoever asks the teachers."""

    epsilon: float = Field(
        8.0, gt=0, title="Epsilon", description="For all queries that are ever answered."
    )
    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        title="Delta",
        description="Failure probability; null is 1 / (10 x private records).",
        json_schema_extra=choice("A number", "1 / (10 x records)"),
    )
    adjacency: Adjacency = Field(
        Adjacency.ZERO_OUT,
        title="Adjacency",
        description="One whole ballot is replaced under both.",
    )


class BaselineConfig(Section):
    """Other ways to learn from the same records, in the same report; for comparing only."""

    model_config = ConfigDict(title="Set here")

    # The figures of a model without protection are published, too.
    run: Annotated[list[Baseline], Guarded(place=False, free=PRIVATE_BASELINES)] = Field(
        [],
        title="Baselines",
        description="non_private (released to nobody), dp_sgd, dp_sgd_adaptive, private_knn. Each "
        "private one is a release of its own, with its own epsilon: publishing several adds up.",
    )
    epochs: int = Field(30, ge=1, title="Epochs", description="Of dp_sgd.")
    batch_size: int = Field(512, ge=1, title="Batch size", description="Of dp_sgd, expected.")
    neighbours: int = Field(
        100, ge=3, title="Neighbours", description="Private records that vote, of private_knn."
    )
    sample_rate: float = Field(
        0.2, gt=0, le=1, title="Sample rate", description="Of private_knn, for each query."
    )


class PateConfig(Section):
    """Learn from private records by private votes of teachers on public ones.

    Give it a name; a private pool, public records and a validation set.
    """

    model_config = ConfigDict(title="Private voting (PATE)")

    kind: Literal["pate"] = Field("pate", title="Kind", description="Of configuration.")
    name: str = Field(
        pattern=NAME,
        title="Name",
        description="Names the folder and the ledger entries: lower-case letters, digits, - and _.",
        examples=["clinic-votes"],
    )
    data: DataConfig = Field(default_factory=DataConfig, title="Private data")
    public: PublicDataConfig = Field(default_factory=PublicDataConfig, title="Public records")
    teachers: TeachersConfig = Field(default_factory=TeachersConfig, title="Teachers")
    voting: VotingConfig = Field(default_factory=VotingConfig, title="Voting")
    privacy: VotingPrivacyConfig = Field(default_factory=VotingPrivacyConfig, title="Privacy")
    student: StudentConfig = Field(default_factory=StudentConfig, title="Student")
    model: ModelConfig = Field(default_factory=ModelConfig, title="Model of teachers and student")
    baselines: Annotated[BaselineConfig, FOLDED] = Field(
        default_factory=BaselineConfig,
        title="Baselines",
        description="Other ways to learn from the same records; usually none.",
        json_schema_extra=fold,
    )
    training: Annotated[TrainingConfig, FOLDED] = Field(
        default_factory=TrainingConfig,
        title="Training of DP-SGD",
        description="Of the baselines dp_sgd.",
        json_schema_extra=fold,
    )
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        voting = self.voting
        if voting.mechanism in CLIPPED and voting.limit is None:
            raise ValueError(f"voting.mechanism {voting.mechanism} needs voting.limit, such as 2")
        if voting.gate is not None and voting.mechanism not in (None, Mechanism.BINARY):
            raise ValueError("voting.gate is for voting.mechanism binary")
        if self.student.cut is not Cut.HALF and self.teachers.tuning is None:
            raise ValueError(
                f"student.cut {self.student.cut} is chosen on public labeled records; set "
                "teachers.tuning, or cut: half"
            )
        if self.data.dataset is not None and voting.agreement is not None:
            raise ValueError(
                "voting.agreement bounds answers by a divergence at an order of its own, which "
                "cannot be added to what others on data.dataset release; leave it null"
            )
        if self.runtime.store is not None:
            raise ValueError(
                "runtime.store carries campaigns between machines, and teachers stay in "
                "runtime.artifacts; leave it null"
            )
        return self


def parse_pate(values: Mapping[str, Any]) -> PateConfig:
    """Checks the settings of private voting.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    try:
        return PateConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(explain(error, PateConfig)) from error
