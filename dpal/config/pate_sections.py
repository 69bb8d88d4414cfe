"""Teachers, their votes and their student: sections of a configuration."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from dpal.accounting.votes.mechanisms import (
    FEWEST_TEACHERS,
    MOST_BLOCKS,
    MOST_OBJECTIONS,
    Confidence,
    Mechanism,
    ReleasedVotes,
)
from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.section import AgreementShare, Count, MeanAgreement, Section, Share
from dpal.planning.campaign_spec import Acquisition
from dpal.planning.public_selection import FineTuning
from dpal.planning.student_recipe import StudentTraining


class Cut(StrEnum):
    """Above which probability a teacher, or the student, says yes."""

    HALF = "half"
    GLOBAL = "global"
    PER_LABEL = "per_label"


class QueryAcquisition(StrEnum):
    """Which public records teachers are asked about next."""

    RANDOM = Acquisition.RANDOM.value
    LEAST_CONFIDENCE = Acquisition.LEAST_CONFIDENCE.value
    MARGIN = Acquisition.MARGIN.value
    ENTROPY = Acquisition.ENTROPY.value


AUTO = "auto"  # a column named group, where there is one


class TeachersConfig(Section):
    """Models on disjoint parts of the private records."""

    count: int = Field(50, ge=FEWEST_TEACHERS, le=10_000, title="Teachers")
    """So many parts of the private records, and a model on each."""
    group_column: Annotated[str | None, choice("A column", "Records")] = AUTO
    """All records of a group (a patient, say) go to one teacher, and the group is what is
    protected; auto is that of data.dataset, or the column group, where there is one; null protects
    records."""
    partition: Annotated[Path | None, Guarded(usual=(None,)), choice("A file", "By chance")] = None
    """Parquet with id and teacher, where somebody else chose the parts; null deals them out by
    chance."""
    budgets: Annotated[Path | None, Guarded(usual=(None,)), choice("A file", "All alike")] = None
    """Parquet with teacher, as in teachers.partition, and epsilon: teachers that promise their
    records less. They vote until that is spent, on the first queries of each round. Public."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """sgd (momentum 0.9) or adam."""
    learning_rate: PositiveFloat = 1e-2
    """At the start; falls along a cosine."""
    epochs: Count = 40
    """Passes over a teacher's records."""
    batch_size: Count = 32
    """Records of a step."""
    weight_decay: NonNegativeFloat = 1e-4
    """Of the weights."""
    shift: NonNegativeInt = Field(0, title="Moved")
    """Most pixels by which a view of an image is moved."""
    cut: Cut = Cut.HALF
    """half: yes above 0.5. global, per_label: the cut of the best balanced accuracy on the public
    records of teachers.tuning."""
    tuning: Annotated[Path | None, Guarded(free=(None,)), choice("A file", "None")] = Field(
        None, title="Tuning records"
    )
    """Public labeled records by which cuts are chosen, and of which the public model of
    voting.objections learns; not protected, not the validation set."""
    seed: NonNegativeInt = 0
    """Of parts and weights; public."""

    @model_validator(mode="after")
    def _tuned(self) -> Self:
        if (self.cut is not Cut.HALF) and self.tuning is None:
            raise ValueError(
                f"teachers.cut {self.cut} is chosen on public labeled records; set "
                "teachers.tuning, or cut: half"
            )
        if self.budgets is not None and self.partition is None:
            raise ValueError(
                "teachers.budgets are of teachers that teachers.partition names; parts by chance "
                "have no owner; set both, or neither"
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

    mechanism: Annotated[Mechanism | None, choice("A mechanism", "The usual one")] = None
    """binary, top_m, tau_l2, tau_l1, powerset; gnmax of classes. null is binary, or gnmax for
    single-label data."""
    sigma: Annotated[PositiveFloat | None, choice("A number", "The least that fits")] = Field(
        None, title="Noise"
    )
    """Standard deviation on each count, in votes; null is the least that fits."""
    limit: Annotated[PositiveFloat | None, choice("A number", "None")] = None
    """Positives of a ballot (top_m, powerset: the surest ones), or its norm (tau_l2, tau_l1)."""
    noises: Literal[1, 2] = Field(2, title="Noisy counts")
    """Of a label: 1 or 2."""
    release: ReleasedVotes = Field(ReleasedVotes.ANSWERS, title="What is released")
    """answers: what most teachers say. counts: noisy numbers of votes, from which answers follow;
    they are charged as such, and the student learns from shares of votes."""
    threshold: Annotated[NonNegativeFloat | None, choice("Votes", "Always answer")] = None
    """Answer only where the larger count, with noise, is above it (Confident)."""
    threshold_sigma: Annotated[PositiveFloat | None, choice("A number", "None")] = Field(
        None, title="Noise of the threshold"
    )
    """Standard deviation of that noise, in votes."""
    answer_from: Annotated[float | None, choice("A share", "As set above")] = Field(
        None, gt=0, le=1, title="Answer from"
    )
    """Share of the teachers whose agreement is answered with chance 0.9; threshold, its noise and
    a small sigma that fits are chosen for it. Public."""
    agreement: Annotated[
        MeanAgreement | list[AgreementShare] | None,
        choice("The mean share", "Shares of queries", "The worst votes"),
    ] = None
    """Public guess of the share of teachers that agree: the mean over queries, or a list of shares,
    each for as many queries. With it, answers leave with little noise only if what they cost, told
    with noise, is small, and with more noise else; null charges the worst votes."""
    objections: Annotated[int | None, choice("A number", "Ask always")] = Field(
        None, ge=1, le=MOST_OBJECTIONS, title="Objections"
    )
    """So many times the teachers are asked where they object to a public model, which answers the
    rest at hardly any cost; null asks them on every query."""
    object_from: Share = Field(0.5, title="Share of the teachers that object")
    """With objections: from which share of the teachers on that name another class than the public
    model, found with noise."""
    neighbours: Annotated[PositiveFloat | None, choice("Records", "Teachers vote")] = Field(
        None, ge=3, title="Records that vote"
    )
    """Single private records vote in place of teachers: those near a query, about so many of them,
    in the space of data.extractor or data.backbone, which must be public; those of a group
    together, where groups are protected. null lets teachers vote."""
    votes: Count = Field(8, title="Votes of a record")
    """With neighbours: queries of a round on which one record, or one group, votes at most; it is
    silent then, and pays for no more, however many are asked."""
    bar: NonNegativeFloat = 3.0
    """With neighbours: noisy votes that the class in front must have, or by how many yes and no of
    a label must differ, in standard deviations of the noise; below it there is no answer."""
    queries: Count = 100
    """Public records that are labeled for the student."""
    rounds: int = Field(1, ge=1, le=100)
    """Parts in which these queries are asked, one after the other; each is a release of its own."""
    acquisition: QueryAcquisition = QueryAcquisition.RANDOM
    """Of several rounds: which public records are asked next. random, or those that a student of
    the answers so far is least sure of by least_confidence, margin or entropy; free, as it reads
    public records and released answers alone."""
    blocks: int = Field(0, ge=0, le=MOST_BLOCKS - 1, title="Further blocks")
    """Of block_size queries each, for campaigns whose labeler these teachers are. With neighbours,
    all records vote on all of them, and each is charged."""
    block_size: Count = 100
    """Queries of a block."""
    gate: Annotated[str | int | None, choice("A label", "Its number", "None")] = None
    """Label that is asked first; where it is released as absent, its dependents are 0 at no cost
    and more records are asked."""
    dependents: list[str | int] = Field([])
    """Labels that are 0 where the gate is; from knowledge."""
    seed: NonNegativeInt = 0
    """Of which records are asked; public."""

    def _require_near(self) -> None:
        others = (self.threshold, self.answer_from, self.agreement, self.gate, self.limit)
        counts = self.release is ReleasedVotes.COUNTS
        if any(given is not None for given in others) or self.noises != 2 or counts:
            raise ValueError(
                "voting.neighbours lets single records vote, answered above voting.bar; leave "
                "voting.threshold, answer_from, agreement, gate, limit, noises and release out"
            )

    def _require_consensus(self) -> None:
        others = (
            self.threshold,
            self.answer_from,
            self.agreement,
            self.gate,
            self.limit,
            self.neighbours,
        )
        if self.mechanism not in (None, Mechanism.GNMAX):
            raise ValueError(
                f"voting.objections are to the class that a public model names, and "
                f"voting.mechanism is {self.mechanism}; take gnmax, or leave it null"
            )
        counts = self.release is ReleasedVotes.COUNTS
        if any(given is not None for given in others) or counts or self.noises != 2:
            raise ValueError(
                "voting.objections are answered by what most teachers say; leave voting.threshold, "
                "answer_from, agreement, gate, limit, noises, neighbours and release out"
            )
        if self.rounds > 1 or self.blocks:
            raise ValueError(
                "voting.objections are counted over all queries, so that an answer depends on the "
                "queries before it; take voting.rounds 1 and voting.blocks 0"
            )

    @property
    def round_sizes(self) -> tuple[int, ...]:
        """Queries of each round, as equal as they can be."""
        each, more = divmod(self.queries, self.rounds)
        return tuple(each + (number < more) for number in range(self.rounds))

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.rounds > self.queries:
            raise ValueError(
                f"voting.rounds {self.rounds} have no query each: voting.queries is {self.queries}"
            )
        if self.rounds == 1 and self.acquisition is not QueryAcquisition.RANDOM:
            raise ValueError(
                f"voting.acquisition {self.acquisition} asks a student of earlier answers, and "
                "there is one round; set voting.rounds to 2 or more, or acquisition: random"
            )
        if self.objections is not None:
            self._require_consensus()
        if self.neighbours is not None:
            self._require_near()
        if (self.threshold is None) != (self.threshold_sigma is None):
            raise ValueError("voting.threshold and voting.threshold_sigma belong together")
        if (self.gate is None) != (not self.dependents):
            raise ValueError("voting.gate and voting.dependents belong together")
        chosen = (self.sigma, self.threshold, self.agreement, self.gate)
        if self.answer_from is not None and any(given is not None for given in chosen):
            raise ValueError(
                "voting.answer_from chooses threshold, threshold_sigma and sigma, for any votes; "
                "leave these, voting.agreement and voting.gate out"
            )
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

    method: Literal["supervised", "mixmatch", "least_squares"] = "supervised"
    """supervised: answered records alone. mixmatch: unanswered ones, too. least_squares: a linear
    model (model.name logistic) in one step, whose penalty the answers choose."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """sgd (momentum 0.9) or adam."""
    learning_rate: PositiveFloat = 1e-2
    """At the start; falls along a cosine."""
    epochs: Count = 40
    """Passes over the answered records."""
    batch_size: Count = 32
    """Records of a step."""
    weight_decay: NonNegativeFloat = 1e-4
    """Of the weights."""
    shift: NonNegativeInt = Field(0, title="Moved")
    """Most pixels by which a view of an image is moved."""
    noise: NonNegativeFloat = Field(0.0, title="Jitter")
    """Standard deviation added to a view of features."""
    seed: NonNegativeInt = 0
    """Of order, views and mixtures; public."""
    views: Count = 2
    """Of mixmatch, averaged for a guess."""
    temperature: Share = 0.5
    """Of mixmatch, sharpens guesses."""
    mixup: NonNegativeFloat = Field(0.75, title="MixUp")
    """Of mixmatch, its Beta parameter."""
    unlabeled_weight: NonNegativeFloat = Field(10.0, title="Weight of guesses")
    """Of mixmatch, once ramped up."""
    ramp: float = Field(0.25, ge=0, le=1)
    """Of mixmatch, share of steps."""
    balance: float = Field(0.0, ge=0, le=1)
    """How far rare answers weigh as much as frequent ones, by how many were released: 0 not at all,
    1 in full."""
    unlabeled: Count = Field(10_000, title="Unanswered records")
    """Of mixmatch: public records that are read without a label, at most."""
    cut: Cut = Cut.HALF
    """As of teachers, on the same tuning records."""

    def to_spec(self) -> StudentTraining:
        """As a frozen value."""
        values = dict(self)
        return StudentTraining(**{key: values[key] for key in values.keys() - {"unlabeled", "cut"}})
