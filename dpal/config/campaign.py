"""The settings of a campaign: pydantic schema, converted to frozen specs.

Rendered as YAML by `dpal init` and as a form by the Prefect UI; both show the
descriptions below. `runtime` changes where and how fast, never what is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from dpal.config.data import ContentChoice, DataConfig, ExtractorKind
from dpal.config.form_choices import choice
from dpal.config.labeler import LabelerConfig
from dpal.config.runtime import Backend, RunConfig
from dpal.config.runtime import RuntimeConfig as RuntimeConfig
from dpal.config.search import SearchConfig
from dpal.config.section import Count, Fraction, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.config.training import ModelConfig, TrainingConfig
from dpal.config.validation import (
    MayBeDeclared,
    declared_validation,
    require_one_place,
    without_file_of_its_own,
)
from dpal.errors import ConfigError, ParameterError
from dpal.files.stored_objects import Place
from dpal.ledger.model_choice_and_stopping import ReleaseRule, StopRule
from dpal.models.normalisation import Normalisation
from dpal.models.spec import Task
from dpal.planning.campaign_spec import (
    USUAL_CHOICE,
    Acquisition,
    CampaignSpec,
    Groups,
    LabelCap,
    ProtectedValidation,
    Schedule,
    SelectionMode,
    SelfTraining,
    Strategy,
    ThresholdStart,
)
from dpal.planning.training_recipe import Precision
from dpal.privacy import (
    Accountant,
    Adjacency,
    DeltaPolicy,
    PrivacyTarget,
    Unit,
    choose_delta,
    published_delta,
)

SELECTION_SHARE = 0.25  # of epsilon, when selection_epsilon is left open


class AcquisitionWish(StrEnum):
    """An acquisition, or that public records choose one."""

    AUTO = "auto"
    RANDOM = Acquisition.RANDOM.value
    LEAST_CONFIDENCE = Acquisition.LEAST_CONFIDENCE.value
    MARGIN = Acquisition.MARGIN.value
    ENTROPY = Acquisition.ENTROPY.value
    BALD = Acquisition.BALD.value
    COMMITTEE = Acquisition.COMMITTEE.value
    CLASS_BALANCED = Acquisition.CLASS_BALANCED.value
    DIVERSE = Acquisition.DIVERSE.value


# Prefect's page names a choice of a referenced type after the class.
_NamedCap = Annotated[
    LabelCap, WithJsonSchema({"type": "string", "enum": [cap.value for cap in LabelCap]})
]


class PrivacyConfig(Section):
    """What is promised to every record of the pool."""

    epsilon: PositiveFloat = Field(8.0, examples=[1, 3, 8])
    """Privacy loss of any record, in all; smaller is safer, 1 to 8 is common."""
    delta: Annotated[Fraction | None, choice("A number", "1 / (10 x pool size)")] = Field(
        None, examples=[1e-5]
    )
    """Failure probability; null is 1 / (10 x pool size), or 1 / labels with profile paper."""
    profile: DeltaPolicy = DeltaPolicy.STANDARD
    """standard: delta below 1 / pool size. paper: delta up to 1 / labels, to reproduce published
    results; reports and certificates are marked."""
    selection: SelectionMode = Field(SelectionMode.HIDDEN, title="Who may see the selection")
    """hidden: nobody outside. visible: anyone may see the ids. paper: noisy scores are released."""
    selection_epsilon: Annotated[
        NonNegativeFloat | None, choice("A number", "A quarter of epsilon")
    ] = Field(None, title="Epsilon of the selections")
    """Of paper: epsilon of all noisy scores together. Of visible: that of the last query's yes.
    null is a quarter of epsilon; hidden selection has none."""
    adjacency: Adjacency = Adjacency.ZERO_OUT
    """What changes between neighbouring data sets. zero_out: one record's content is blanked.
    replace_one: it is any other content; about twice the noise, and more where secret draws would
    save some."""
    unit: Unit = Field(Unit.RECORD, title="Who is protected")
    """record: one record. group: all records of one person or site, as data.group_column says; all
    of them take part. A registered data set (data.dataset) says itself whom it protects; where
    that is groups, group lets all records of each take part, and record one of each."""
    accountant: Accountant = Accountant.PLD
    """pld: tight. rdp: 6 to 9 % more noise, and much more where secret draws would save some, as
    these count by pld alone; for filters."""
    threshold_noise: Annotated[PositiveFloat | None, choice("A number", "Fitted to the query")] = (
        Field(None, title="Noise of the thresholds")
    )
    """Noise multiplier of each hidden or visible threshold; null fits the query."""
    label_cap: Annotated[_NamedCap | None, choice("A cap", "As the labeler wants")] = Field(
        None, title="Hidden selection never exceeds"
    )
    """sum: the labels of all queries together, so that about a tenth more are bought; one query
    may be larger than asked for. query: the labels of each query. null: sum, and query where the
    labeler is paid or limited by query (teachers, form), or the validation set is protected."""
    secret_draw: Annotated[bool | None, choice("Yes or no", "Where it saves noise")] = Field(
        None, title="Draw by secret coins"
    )
    """Who is drawn at random is decided by coins that nobody outside sees: less noise for the same
    promise, and a number of labels that is known only nearly. null: where that saves noise,
    as with hidden selection, accountant pld and no data set, unless the labeler is paid or limited
    by query (teachers, form)."""
    candidates: Annotated[Count | None, choice("A number", "Four a label")] = Field(
        None, title="Candidates of the queries"
    )
    """Records that secret coins let queries select from: fewer mean less noise for the same
    promise, and less to choose from. null: four for each label that queries ask for, where the
    initial cohort is drawn by secret coins; as many as the pool has, or more, are all."""


class ScheduleConfig(Section):
    """How many labels are bought when."""

    initial: Count = Field(700, title="Labels at the start")
    """Records labeled at random before the first training."""
    # The form refuses a 0 at once; elsewhere the plan says what is wrong with it.
    queries: list[Annotated[int, Field(json_schema_extra={"minimum": 1})]] = Field(
        [300, 300, 300], title="Labels of each query"
    )
    """Records that each selection may buy, in order; one line a phase, none trains once."""
    batch_size: Count = 600
    """Records expected in a step's batch."""
    epochs_per_phase: Count = Field(16, title="Epochs of each phase")
    """Passes over the labeled records; few suit private training."""
    group_labels: Annotated[Count | None, choice("A number", "All of them")] = Field(
        None, title="Labels of each group"
    )
    """Of privacy.unit group, where all other numbers here count groups: labels that are bought of a
    selected one, for its first records; null is for all of its records."""
    group_records: Count = Field(4, title="Records of a group in a step")
    """Of privacy.unit group: records of one group in a step, at most, drawn anew each time. Their
    gradients are averaged."""


class StopConfig(Section):
    """When a campaign stops buying labels, by the validation set alone."""

    model_config = ConfigDict(title="When it is flat")

    patience: Count = Field(1, title="Phases without a gain")
    """Phases in a row that may bring less than the least gain together."""
    least_gain: float = Field(0.005, ge=0, le=1, allow_inf_nan=False, title="Least gain")
    """By how much they must improve on the best before: 0.005 is half a point of accuracy."""

    def rule(self) -> StopRule:
        """The rule as a frozen value."""
        return StopRule(patience=self.patience, least_gain=self.least_gain)


class SelfTrainingConfig(Section):
    """How records that nobody labeled train at the end, on labels that the model gives them."""

    model_config = ConfigDict(title="On pseudo-labels")

    epochs: Count = Field(6, title="Epochs")
    """Passes over the unlabeled records; few suit private training."""
    batch_size: Annotated[Count | None, choice("A number", "A tenth of them")] = None
    """Unlabeled records expected in a step's batch; null is a tenth of them."""

    def to_spec(self) -> SelfTraining:
        """The same as a frozen value."""
        return SelfTraining(epochs=self.epochs, batch_size=self.batch_size)


class CampaignConfig(RunConfig):
    """A differentially private active-learning campaign.

    Give it a name, its data, a promise (epsilon) and how many labels may be bought. All else
    may stay as it is.
    """

    model_config = ConfigDict(title="Campaign")

    name: Name = Field(examples=["clinic"])
    """Names the campaign's folder and its ledger entries: lower-case letters, digits, - and _. The
    name of an unfinished campaign continues it."""
    data: DataConfig = Field(default_factory=DataConfig)
    labeler: LabelerConfig = Field(default_factory=LabelerConfig, title="Labels")
    validation: MayBeDeclared = Field(None, title="Whose validation records these are")
    """Whether the records of data.validation are public, and why."""
    privacy: PrivacyConfig = Field(default_factory=PrivacyConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    release: ReleaseRule = Field(ReleaseRule.BEST, title="Which model is released")
    """best: of the phase that is best on the validation set, which costs nothing; last: of the last
    phase, even where it is worse."""
    stop: Annotated[StopConfig | None, choice("When it is flat", "When the plan is done")] = Field(
        None, title="When it stops buying"
    )
    """Ends the campaign early once the validation curve is flat, and gives back what it may; null
    buys all labels of the schedule."""
    self_training: Annotated[
        SelfTrainingConfig | None, choice("On pseudo-labels", "Not at all")
    ] = Field(None, title="How unlabeled records train")
    """A last phase in which the records that nobody labeled train, each within its own promise, on
    labels that the model of the phase before gives them; null leaves them out."""
    search: Annotated[SearchConfig | None, choice("Among trials", "None")] = Field(
        None, title="Search among settings"
    )
    """Settings of the training that are tried on the initial cohort before the campaign trains; the
    plan says what it costs. null uses `training` as it is."""
    start_from: Annotated[Name | None, choice("A finished campaign", "Afresh")] = None
    """Finished campaign on the same data.dataset to go on from: its model, and labels where budget
    is left."""
    strategy: Strategy = Strategy.STEP_AMPLIFICATION
    """step_amplification: no cohort leaves budget unused, by more steps. noise_reduction: the same
    by less noise. continual: new records train alone first. naive: one rate for all."""
    acquisition: AcquisitionWish = AcquisitionWish.ENTROPY
    """Which unlabeled records are wanted most: random (free, reads no record), or those the model
    is least sure of by least_confidence, margin, entropy, bald (dropout) or committee (weights at
    five of the later steps). class_balanced and diverse: least sure among those of the same
    predicted class, or of the same cluster, and as many of each. auto: rehearsed on the validation
    set, random unless a score is better beyond noise."""
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @property
    def labeled(self) -> tuple[Place | list[Place], str]:
        """The records that labels are bought for: files or a folder, and the column of labels."""
        return self.data.pool, self.data.label_column

    @model_validator(mode="before")
    @classmethod
    def _place_of_validation(cls, values: Any) -> Any:
        return without_file_of_its_own(values)

    @model_validator(mode="after")
    def _consistent(self) -> CampaignConfig:
        precision, backend = self.training.precision, self.runtime.backend
        if precision is not Precision.FP32 and backend is not Backend.BOOK_KEEPING:
            raise ValueError(
                f"training.precision {precision} is computed by runtime.backend book_keeping "
                f"only, and it is {backend}; use that one, or precision fp32"
            )
        extractor, augmentation = self.data.extractor, self.training.augmentation
        if extractor is not ExtractorKind.NONE and (augmentation.flip or augmentation.shift):
            raise ValueError(
                "training.augmentation changes images, and data.extractor "
                f"{extractor} turns them into features once, before training; use one of the two"
            )
        largest = max(self.schedule.initial, *self.schedule.queries, 0)
        most = self.labeler.most_records
        if most is not None and largest > most:
            raise ValueError(
                f"labeler.kind {self.labeler.kind} is for queries of at most {most} records, and "
                f"the schedule has one of {largest}; use labeler.kind file or label_studio"
            )
        if self.privacy.profile is DeltaPolicy.PAPER and self.data.dataset is not None:
            raise ValueError(
                "privacy.profile paper is for reproducing published results, and data.dataset "
                "names a registered data set, whose owner limits delta; use profile standard"
            )
        self._check_groups()
        require_one_place(self)
        if self.search is not None and self.runtime.training_pool is not None:
            raise ValueError(
                "search trains its trials where the campaign itself runs, and "
                "runtime.training_pool leaves training to workers; use one of the two"
            )
        if self.search is not None and self.runtime.rendezvous is not None:
            raise ValueError(
                "search trains its trials on one machine, and runtime.rendezvous has helpers of "
                "other machines; use one of the two"
            )
        if self.privacy.label_cap is LabelCap.SUM and self.labeler.limits_queries:
            raise ValueError(
                f"privacy.label_cap sum lets a query be larger than asked for, and labeler.kind "
                f"{self.labeler.kind} answers no more than that; use label_cap query or null"
            )
        if self.privacy.secret_draw and self.labeler.limits_queries:
            raise ValueError(
                "privacy.secret_draw draws a number of records that is known only nearly, and "
                f"labeler.kind {self.labeler.kind} answers no more than planned; use secret_draw "
                "false or null"
            )
        if self.validation is not None and self.validation.protected:
            if self.is_to_be_chosen:
                raise ValueError(
                    "acquisition auto is rehearsed on the validation set without noise, and "
                    "validation.protected allows that nobody; name one acquisition"
                )
            if self.privacy.label_cap is LabelCap.SUM:
                raise ValueError(
                    "privacy.label_cap sum needs thresholds that are looked for from the "
                    "validation set's quantile, and validation.protected allows that nobody; use "
                    "label_cap query or null"
                )
            if self.data.normalisation.measured:
                raise ValueError(
                    "data.normalisation validation leaves numbers of the validation set as they "
                    "are, and validation.protected allows that nobody; give constants"
                )
        texts = (ContentChoice.AUTO, ContentChoice.TEXT)
        fits = self.data.content in texts and extractor is ExtractorKind.NONE
        if self.model.architecture.reads_texts and not fits:
            raise ValueError(
                f"model.name {self.model.name} reads texts; set data.content: text and "
                "data.extractor: none, or use another model"
            )
        return self

    def _check_groups(self) -> None:
        grouped, column = self.privacy.unit is Unit.GROUP, self.data.group_column
        if self.data.dataset is not None and column is not None:
            raise ValueError(
                "data.dataset names a registered data set, which says itself whose a record is "
                "(dpal data register --group COLUMN); leave data.group_column out, and set "
                "privacy.unit: group where all records of each group are to take part"
            )
        if self.data.dataset is None and grouped is (column is None):
            raise ValueError(
                f"privacy.unit group and data.group_column go together, and they are "
                f"{self.privacy.unit} and {column or 'null'}; set both or neither"
            )
        # Of a registered data set it is known once that is looked up.
        alone = not grouped and self.data.dataset is None
        if alone and self.validation is not None and self.validation.group_records != 1:
            raise ValueError(
                f"validation.group_records {self.validation.group_records} counts records of "
                "groups, and privacy.unit is record; leave it out, or set privacy.unit: group and "
                "data.group_column"
            )
        if grouped and self.labeler.limits_queries:
            raise ValueError(
                f"privacy.unit group buys labels for all records of a group, how many is not known "
                f"beforehand, and labeler.kind {self.labeler.kind} limits its answers; use "
                "labeler.kind oracle, file or label_studio"
            )

    @property
    def is_to_be_chosen(self) -> bool:
        """Whether public records have to choose the acquisition first."""
        return self.acquisition is AcquisitionWish.AUTO

    def settled(self, acquisition: Acquisition) -> CampaignConfig:
        """The same with this acquisition, and without wishes that would mean nothing beside it.

        As in `CampaignSpec.varied`: random selection has no epsilon to pay with and no candidates,
        and secret coins save nothing where queries read records under adjacency replace_one.
        """
        privacy = self.privacy
        if acquisition.is_random:
            privacy = privacy.model_copy(update={"selection_epsilon": None, "candidates": None})
        elif privacy.secret_draw and privacy.adjacency is Adjacency.REPLACE_ONE:
            privacy = privacy.model_copy(update={"secret_draw": False})
        wish = AcquisitionWish(acquisition.value)
        return self.model_copy(update={"acquisition": wish, "privacy": privacy})

    def to_spec(
        self,
        *,
        pool_size: int,
        input_shape: Sequence[int],
        classes: int,
        task: Task = Task.SINGLE_LABEL,
        unit: Unit = Unit.RECORD,
        carried: int = 0,
        measured: Normalisation | None = None,
        threshold_start: ThresholdStart = ThresholdStart.VALIDATION,
        draws_openly: bool = False,
        offers_all: bool = False,
        protected_records: int | None = None,
        protected_groups: int | None = None,
        group_column: str | None = None,
    ) -> CampaignSpec:
        """Joins wishes with what is public about the data.

        Args:
          pool_size: records in the pool.
          input_shape: shape of one record.
          classes: number of classes, or of labels in a multi-label task.
          task: what a record's label is.
          unit: whose contribution is protected.
          carried: labels that an earlier campaign planned to buy and this one starts with;
            0 labels `schedule.initial` records at random.
          measured: normalisation found on the validation set, where that is asked for.
          threshold_start: of hidden selection; plain for a campaign that began when there was no
            other, as its plan is held.
          draws_openly: where the wishes leave secret draws open, whether there are none; for a
            campaign that began when they were not the default, as its plan is held.
          protected_records: of a validation set that is promised the same; None where it is public.
          protected_groups: whose records these are, where groups are the unit; else None.
          group_column: of a registered data set, where all records of each of its groups take part.
          offers_all: where the wishes leave candidates open, whether queries select from all; for
            a campaign that began when they did.

        Raises:
          ParameterError: the wishes contradict each other or the pool's size, pretrained weights
            are not where they should be, or the acquisition is still to be chosen.
        """
        if self.is_to_be_chosen:
            raise ParameterError(
                "acquisition auto is chosen for one campaign, by dpal plan or dpal run; name one "
                f"for this: acquisition {', '.join(Acquisition)}"
            )
        acquisition = Acquisition(self.acquisition.value)
        if (measured is not None) != self.data.normalisation.measured:
            raise ParameterError(
                "data.normalisation validation needs the validation set's own numbers; open the "
                "data first, or give constants"
            )
        privacy = self.privacy
        pays = not acquisition.is_random and bool(self.schedule.queries)
        pays &= privacy.selection is not SelectionMode.HIDDEN
        share = SELECTION_SHARE * privacy.epsilon if pays else 0.0
        chosen = privacy.selection_epsilon
        initial = carried or self.schedule.initial
        gates = not acquisition.is_random and bool(self.schedule.queries)
        gates &= privacy.selection is SelectionMode.HIDDEN
        start, cap = ThresholdStart.PLAIN, LabelCap.QUERY
        if gates and threshold_start is ThresholdStart.VALIDATION:
            usual = LabelCap.QUERY if self.labeler.limits_queries else LabelCap.SUM
            start, cap = threshold_start, privacy.label_cap or usual
        if privacy.profile is DeltaPolicy.PAPER:
            delta = published_delta(privacy.delta, labels=initial + sum(self.schedule.queries))
        else:
            delta = choose_delta(privacy.delta, pool_size=pool_size)
        spec = CampaignSpec(
            name=self.name,
            pool_size=pool_size,
            target=PrivacyTarget(
                epsilon=privacy.epsilon,
                delta=delta,
                adjacency=privacy.adjacency,
                unit=unit,
            ),
            accountant=privacy.accountant,
            strategy=self.strategy,
            acquisition=acquisition,
            selection=privacy.selection,
            selection_epsilon=share if chosen is None else chosen,
            threshold_noise=privacy.threshold_noise,
            dataset=self.data.dataset,
            start_from=self.start_from,
            carries_labels=carried > 0,
            secret_draw=privacy.secret_draw is True,
            self_training=None if self.self_training is None else self.self_training.to_spec(),
            schedule=Schedule(
                initial=initial,
                queries=tuple(self.schedule.queries),
                batch_size=self.schedule.batch_size,
                epochs_per_phase=self.schedule.epochs_per_phase,
            ),
            model=self.model.to_spec(
                input_shape=input_shape,
                classes=classes,
                task=task,
                normalisation=measured or self.data.constants(input_shape),
            ),
            optimizer=self.training.to_optimizer(),
            recipe=self.training.to_recipe(),
            extractor=self.data.to_extractor(),
            threshold_start=start,
            label_cap=cap,
            validation=self._protected(
                protected_records, None if unit is Unit.RECORD else protected_groups
            ),
            groups=self._groups(unit, group_column),
            search=None
            if self.search is None
            else self.search.to_spec(self.training, self.schedule.epochs_per_phase),
            head=self.training.to_head(),
        )
        # Who pays by query, or may answer so many, has no use for a number known only nearly.
        openly = draws_openly or privacy.secret_draw is not None or self.labeler.limits_queries
        spec = spec if openly else spec.with_secret_draws()
        return self._with_candidates(spec, offers_all=offers_all)

    def _protected(self, records: int | None, groups: int | None) -> ProtectedValidation | None:
        if records is None:
            return None
        asked = declared_validation(self)
        return ProtectedValidation(
            records=records,
            epsilon=asked.epsilon or self.privacy.epsilon,
            auc=asked.auc,
            groups=groups,
            group_records=1 if groups is None else asked.group_records,
            share=asked.share,
        )

    def _groups(self, unit: Unit, registered: str | None) -> Groups | None:
        column = self.data.group_column or registered
        if column is None or unit is Unit.RECORD:
            return None
        schedule = self.schedule
        return Groups(column=column, records=schedule.group_records, labels=schedule.group_labels)

    def _with_candidates(self, spec: CampaignSpec, *, offers_all: bool) -> CampaignSpec:
        wanted = self.privacy.candidates
        if wanted is None:
            usual = USUAL_CHOICE * sum(spec.schedule.queries)
            return spec if offers_all else spec.with_candidates(usual)
        if wanted >= spec.pool_size - spec.schedule.initial:
            return spec
        if not spec.secret_draw:
            raise ParameterError(
                f"privacy.candidates {wanted:,} would narrow the choice and save no noise, as the "
                f"initial cohort is not drawn by secret coins: "
                f"{spec.why_no_secret_draw or 'privacy.secret_draw is false'}; leave it null"
            )
        return replace(spec, candidates=wanted)


def parse_config(values: Mapping[str, Any]) -> CampaignConfig:
    """Checks what a person wrote.

    Raises:
      ConfigError: a key is unknown (with the nearest valid one), missing, of the wrong
        type, or contradicts another.
    """
    try:
        return CampaignConfig.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, CampaignConfig) from error


def override(values: dict[str, Any], key: str, value: object) -> None:
    """Sets one dotted key, such as "privacy.epsilon", in place.

    Raises:
      ConfigError: part of the path is not a section.
    """
    *path, last = key.split(".")
    section: Any = values
    for name in path:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{key} cannot be set: {name} is not a section")
    section[last] = value
