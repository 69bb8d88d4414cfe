"""Private voting: teachers on private records, a student on public ones; the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from dpal.accounting.votes.mechanisms import CLIPPED, Mechanism, ReleasedVotes
from dpal.config.data import DataConfig
from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import Guarded
from dpal.config.improvement_start import PublicDataConfig
from dpal.config.pate_sections import Cut, StudentConfig, TeachersConfig, VotingConfig
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.config.section import Count, Fraction, Name, Section, Share
from dpal.config.settings_errors import settings_refusal
from dpal.config.training import ModelConfig, TrainingConfig
from dpal.config.validation import MayBeDeclared, refuse_share
from dpal.features.spec import ExtractorKind
from dpal.planning.linear_head_spec import TrainingMethod
from dpal.privacy import Adjacency

PATE = "pate"

Baseline = Literal["non_private", "dp_sgd", "dp_sgd_adaptive", "private_knn"]
CAMPAIGN_BASELINES: tuple[Baseline, ...] = ("dp_sgd", "dp_sgd_adaptive")
PRIVATE_BASELINES: tuple[Baseline, ...] = (*CAMPAIGN_BASELINES, "private_knn")


class VotingPrivacyConfig(Section):
    """What is promised to every private record, whoever asks the teachers."""

    epsilon: PositiveFloat = 8.0
    """For all queries that are ever answered."""
    delta: Annotated[Fraction | None, choice("A number", "1 / (10 x records)")] = None
    """Failure probability; null is 1 / (10 x private records)."""
    adjacency: Adjacency = Adjacency.ZERO_OUT
    """One whole ballot of a teacher is replaced under both. With voting.neighbours a record that is
    replaced costs more than one that is blanked."""


class BaselineConfig(Section):
    """Other ways to learn from the same records, in the same report; for comparing only."""

    model_config = ConfigDict(title="Set here")

    # The figures of a model without protection are published, too.
    run: Annotated[list[Baseline], Guarded(place=False, free=PRIVATE_BASELINES)] = Field(
        [], title="Baselines"
    )
    """non_private (its figures are published, its weights kept nowhere), dp_sgd, dp_sgd_adaptive,
    private_knn. Each private one is a release of its own, with its own epsilon: publishing several
    adds up."""
    epochs: Count = 30
    """Of dp_sgd."""
    batch_size: Count = 512
    """Of dp_sgd, expected."""
    neighbours: int = Field(100, ge=3)
    """Private records that vote, of private_knn."""
    sample_rate: Share = 0.2
    """Of private_knn, for each query."""


class PateConfig(RunConfig):
    """Learn from private records by private votes of teachers on public ones.

    Give it a name; a private pool, public records and a validation set.
    """

    model_config = ConfigDict(title="Private voting (PATE)")

    kind: Literal["pate"] = "pate"
    """Of configuration."""
    name: Name = Field(examples=["clinic-votes"])
    """Names the folder and the ledger entries: lower-case letters, digits, - and _."""
    data: DataConfig = Field(default_factory=DataConfig, title="Private data")
    validation: MayBeDeclared = Field(None, title="Whose validation records these are")
    """Whether the records of data.validation are public, and why."""
    public: PublicDataConfig = Field(default_factory=PublicDataConfig, title="Public records")
    teachers: TeachersConfig = Field(default_factory=TeachersConfig)
    voting: VotingConfig = Field(default_factory=VotingConfig)
    privacy: VotingPrivacyConfig = Field(default_factory=VotingPrivacyConfig)
    student: StudentConfig = Field(default_factory=StudentConfig)
    model: ModelConfig = Field(default_factory=ModelConfig, title="Model of teachers and student")
    baselines: Folded[BaselineConfig] = Field(default_factory=BaselineConfig)
    """Other ways to learn from the same records; usually none."""
    training: Folded[TrainingConfig] = Field(
        default_factory=TrainingConfig, title="Training of DP-SGD"
    )
    """Of the baselines dp_sgd."""
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @property
    def calls_campaigns(self) -> bool:
        """Whether one is a baseline."""
        return any(name in CAMPAIGN_BASELINES for name in self.baselines.run)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_share(self.validation)
        self.runtime.require_one_machine()
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
        if self.teachers.budgets is not None and (voting.blocks or voting.neighbours):
            raise ValueError(
                "teachers.budgets let teachers fall silent within a round; leave voting.blocks "
                "(a campaign's record must be answered whatever else was asked) and "
                "voting.neighbours out"
            )
        if voting.objections is not None and (
            self.teachers.tuning is None or self.teachers.budgets is not None
        ):
            raise ValueError(
                "voting.objections are to a public model, which learns from public labeled "
                "records, and all teachers may object alike; set teachers.tuning, and leave "
                "teachers.budgets out"
            )
        self._require_student()
        self._require_images_that_move()
        if self.data.group_column is not None:
            raise ValueError(
                "data.group_column is of campaigns; whose a record is says teachers.group_column "
                "here, and a person's records go to one teacher"
            )
        self._require_baselines()
        if self.data.dataset is not None and voting.agreement is not None:
            raise ValueError(
                "voting.agreement bounds answers by a divergence at an order of its own, which "
                "cannot be added to what others on data.dataset release; leave it null"
            )
        return self

    def _require_images_that_move(self) -> None:
        """Requires, where views are moved, that records are not features by then."""
        moved = {"teachers.shift": self.teachers.shift, "student.shift": self.student.shift}
        asked = [name for name, shift in moved.items() if shift]
        if asked and self.data.extractor is not ExtractorKind.NONE:
            raise ValueError(
                f"{asked[0]} moves images, and data.extractor {self.data.extractor} turns them "
                "into features first; use one of the two"
            )

    def _require_baselines(self) -> None:
        """Requires baselines that are what they are called, and records that may be in them."""
        if self.teachers.budgets is not None and self.baselines.run:
            raise ValueError(
                f"teachers.budgets promise some records less, and baselines.run "
                f"{self.baselines.run[0]} learns from all records alike; leave one of the two out"
            )
        if self.data.dataset is not None and "non_private" in self.baselines.run:
            raise ValueError(
                "baselines.run non_private publishes figures of a model that protects nobody, and "
                "records of data.dataset share a limit with whoever else uses them; leave one out"
            )
        by_steps = [name for name in self.baselines.run if name in CAMPAIGN_BASELINES]
        if by_steps and self.training.method is not TrainingMethod.DP_SGD:
            raise ValueError(
                f"training.method {self.training.method} fits a head of private records, and "
                f"baselines.run {by_steps[0]} trains by DP-SGD; leave training.method or the "
                "baseline out"
            )

    def _require_student(self) -> None:
        """Requires a student that can learn from what is released."""
        counts, student = self.voting.release is ReleasedVotes.COUNTS, self.student
        if counts and (student.method == "mixmatch" or student.balance):
            raise ValueError(
                "voting.release counts gives shares of votes, and student.method mixmatch and "
                "student.balance are for answers; take least_squares or supervised, and leave "
                "balance out"
            )
        if self.model.architecture.reads_texts:
            self._require_student_of_texts()
        if student.method != "least_squares":
            return
        if self.model.name != "logistic":
            raise ValueError(
                f"student.method least_squares solves a linear model, and model.name is "
                f"{self.model.name}; take model.name logistic, or student.method supervised"
            )
        if student.shift or student.noise or student.balance:
            raise ValueError(
                "student.method least_squares reads every record once and as it is; leave "
                "student.shift, noise and balance out"
            )

    def _require_student_of_texts(self) -> None:
        """Requires a student that reads texts as they are: there are none between two of them."""
        student = self.student
        if student.method == "mixmatch" and student.mixup:
            raise ValueError(
                f"student.mixup {student.mixup:g} blends records, and model.name {self.model.name} "
                "reads texts, which cannot be blended; set student.mixup to 0, or take "
                "student.method supervised"
            )
        if student.noise:
            raise ValueError(
                f"student.noise {student.noise:g} is added to features, and model.name "
                f"{self.model.name} reads texts; leave it 0"
            )


def parse_pate(values: Mapping[str, Any]) -> PateConfig:
    """Checks the settings of private voting.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    try:
        return PateConfig.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, PateConfig) from error
