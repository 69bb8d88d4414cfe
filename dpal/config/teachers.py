"""Teachers, their votes and their student: sections of a configuration."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dpal.accounting.votes.rules import FEWEST_TEACHERS, MOST_BLOCKS, Confidence, Mechanism
from dpal.config.form import choice
from dpal.config.guarded import Guarded
from dpal.config.runtime import Section
from dpal.planning.public_selection import FineTuning
from dpal.planning.student import StudentTraining


class Cut(StrEnum):
    """Above which probability a teacher, or the student, says yes."""

    HALF = "half"
    GLOBAL = "global"
    PER_LABEL = "per_label"


AUTO = "auto"  # a column named group, where there is one


class TeachersConfig(Section):
    """Models on disjoint parts of the private records."""

    count: int = Field(
        50,
        ge=FEWEST_TEACHERS,
        le=10_000,
        title="Teachers",
        description="So many parts of the private records, and a model on each.",
    )
    group_column: str | None = Field(
        AUTO,
        title="Group column",
        description="All records of a group (a patient, say) go to one teacher, and the group "
        "is what is protected; auto is that of data.dataset, or the column group, where "
        "there is one; null protects records.",
        json_schema_extra=choice("A column", "Records"),
    )
    partition: Annotated[Path | None, Guarded(free=(None,))] = Field(
        None,
        title="Partition",
        description="Parquet with id and teacher, where somebody else chose the parts; null deals "
        "them out by chance.",
        json_schema_extra=choice("A file", "By chance"),
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "adam", title="Optimizer", description="sgd (momentum 0.9) or adam."
    )
    learning_rate: float = Field(
        1e-2, gt=0, title="Learning rate", description="At the start; falls along a cosine."
    )
    epochs: int = Field(40, ge=1, title="Epochs", description="Passes over a teacher's records.")
    batch_size: int = Field(32, ge=1, title="Batch size", description="Records of a step.")
    weight_decay: float = Field(1e-4, ge=0, title="Weight decay", description="Of the weights.")
    shift: int = Field(
        0, ge=0, title="Moved", description="Most pixels by which a view of an image is moved."
    )
    cut: Cut = Field(
        Cut.HALF,
        title="Cut",
        description="half: yes above 0.5. global, per_label: the cut of the best balanced accuracy "
        "on the public records of teachers.tuning.",
    )
    tuning: Annotated[Path | None, Guarded(free=(None,))] = Field(
        None,
        title="Tuning records",
        description="Public labeled records by which cuts are chosen; not protected, not the "
        "validation set.",
        json_schema_extra=choice("A file", "None"),
    )
    seed: int = Field(0, ge=0, title="Seed", description="Of parts and weights; public.")

    @model_validator(mode="after")
    def _tuned(self) -> Self:
        if (self.cut is not Cut.HALF) and self.tuning is None:
            raise ValueError(
                f"teachers.cut {self.cut} is chosen on public labeled records; set "
                "teachers.tuning, or cut: half"
            )
        return self

    def to_training(self, number: int) -> FineTuning:
        """How a teacher is trained: plainly, as nobody sees it."""
        return FineTuning(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            shift=self.shift,
            seed=self.seed * 100_003 + number,
        )


class VotingConfig(Section):
    """How queries are answered."""

    mechanism: Mechanism | None = Field(
        None,
        title="Mechanism",
        description="binary, top_m, tau_l2, tau_l1, powerset; gnmax of classes. null is binary, or "
        "gnmax for single-label data.",
        json_schema_extra=choice("A mechanism", "The usual one"),
    )
    sigma: float | None = Field(
        None,
        gt=0,
        title="Noise",
        description="Standard deviation on each count, in votes; null is the least that fits.",
        json_schema_extra=choice("A number", "The least that fits"),
    )
    limit: float | None = Field(
        None,
        gt=0,
        title="Limit",
        description="Positives of a ballot (top_m, powerset), or its norm (tau_l2, tau_l1).",
        json_schema_extra=choice("A number", "None"),
    )
    noises: Literal[1, 2] = Field(2, title="Noisy counts", description="Of a label: 1 or 2.")
    threshold: float | None = Field(
        None,
        ge=0,
        title="Threshold",
        description="Answer only where the larger count, with noise, is above it (Confident).",
        json_schema_extra=choice("Votes", "Always answer"),
    )
    threshold_sigma: float | None = Field(
        None,
        gt=0,
        title="Noise of the threshold",
        description="Standard deviation of that noise, in votes.",
        json_schema_extra=choice("A number", "None"),
    )
    agreement: float | None = Field(
        None,
        gt=0.5,
        lt=1,
        title="Agreement",
        description="Public guess of the share of teachers that agree. With it, answers leave only "
        "if what they cost, told with noise, is small; null charges the worst votes.",
        json_schema_extra=choice("A share", "The worst votes"),
    )
    queries: int = Field(
        100, ge=1, title="Queries", description="Public records that are labeled for the student."
    )
    blocks: int = Field(
        0,
        ge=0,
        le=MOST_BLOCKS - 1,
        title="Further blocks",
        description="Of block_size queries each, for campaigns whose labeler these teachers are.",
    )
    block_size: int = Field(100, ge=1, title="Block size", description="Queries of a block.")
    gate: str | int | None = Field(
        None,
        title="Gate",
        description="Label that is asked first; where it is released as absent, its dependents "
        "are 0 at no cost and more records are asked.",
        json_schema_extra=choice("A label", "None"),
    )
    dependents: list[str | int] = Field(
        [], title="Dependents", description="Labels that are 0 where the gate is; from knowledge."
    )
    seed: int = Field(0, ge=0, title="Seed", description="Of which records are asked; public.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.threshold is None) != (self.threshold_sigma is None):
            raise ValueError("voting.threshold and voting.threshold_sigma belong together")
        if (self.gate is None) != (not self.dependents):
            raise ValueError("voting.gate and voting.dependents belong together")
        if self.gate is not None and self.threshold is not None:
            raise ValueError("voting.gate is asked without voting.threshold")
        return self

    @property
    def confidence(self) -> Confidence | None:
        """The check, as a frozen value."""
        if self.threshold is None or self.threshold_sigma is None:
            return None
        return Confidence(threshold=self.threshold, sigma=self.threshold_sigma)


class StudentConfig(Section):
    """Plain training on released labels of public records; free."""

    method: Literal["supervised", "mixmatch"] = Field(
        "supervised",
        title="Method",
        description="supervised: answered records alone. mixmatch: unanswered ones, too.",
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "adam", title="Optimizer", description="sgd (momentum 0.9) or adam."
    )
    learning_rate: float = Field(
        1e-2, gt=0, title="Learning rate", description="At the start; falls along a cosine."
    )
    epochs: int = Field(40, ge=1, title="Epochs", description="Passes over the answered records.")
    batch_size: int = Field(32, ge=1, title="Batch size", description="Records of a step.")
    weight_decay: float = Field(1e-4, ge=0, title="Weight decay", description="Of the weights.")
    shift: int = Field(
        0, ge=0, title="Moved", description="Most pixels by which a view of an image is moved."
    )
    noise: float = Field(
        0.0, ge=0, title="Jitter", description="Standard deviation added to a view of features."
    )
    seed: int = Field(0, ge=0, title="Seed", description="Of order, views and mixtures; public.")
    views: int = Field(2, ge=1, title="Views", description="Of mixmatch, averaged for a guess.")
    temperature: float = Field(
        0.5, gt=0, le=1, title="Temperature", description="Of mixmatch, sharpens guesses."
    )
    mixup: float = Field(0.75, ge=0, title="MixUp", description="Of mixmatch, its Beta parameter.")
    unlabeled_weight: float = Field(
        10.0, ge=0, title="Weight of guesses", description="Of mixmatch, once ramped up."
    )
    ramp: float = Field(0.25, ge=0, le=1, title="Ramp", description="Of mixmatch, share of steps.")
    unlabeled: int = Field(
        10_000,
        ge=1,
        title="Unanswered records",
        description="Of mixmatch: public records that are read without a label, at most.",
    )
    cut: Cut = Field(
        Cut.HALF, title="Cut", description="As of teachers, on the same tuning records."
    )

    def to_spec(self) -> StudentTraining:
        """As a frozen value."""
        values = dict(self)
        return StudentTraining(**{key: values[key] for key in values.keys() - {"unlabeled", "cut"}})
