"""The settings of a campaign: pydantic schema, converted to frozen specs.

Rendered as YAML by `dpal init` and as a form by the Prefect UI; both show the
descriptions below. `runtime` changes where and how fast, never what is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator

from dpal.accounting.cohorts import Accountant
from dpal.config.data import ContentChoice, DataConfig, ExtractorKind
from dpal.config.form import choice
from dpal.config.help import explain
from dpal.config.labeler import FORM_RECORDS, LabelerConfig
from dpal.config.labeler import LabelerKind as LabelerKind
from dpal.config.runtime import Backend
from dpal.config.runtime import RuntimeConfig as RuntimeConfig
from dpal.config.runtime import Section as _Section
from dpal.config.training import TEXT_MODEL, ModelConfig, TrainingConfig
from dpal.errors import ConfigError, ParameterError
from dpal.models.normalisation import Normalisation
from dpal.models.spec import Task
from dpal.planning.recipe import Precision
from dpal.planning.spec import Acquisition, CampaignSpec, Schedule, SelectionMode, Strategy
from dpal.privacy import (
    Adjacency,
    PrivacyTarget,
    Profile,
    Unit,
    choose_delta,
    published_delta,
)

_TAKEN_NAMES = ("datasets", "mlflow", "remote", "watch")
SELECTION_SHARE = 0.25  # of epsilon, when selection_epsilon is left open


class PrivacyConfig(_Section):
    """What is promised to every record of the pool."""

    epsilon: float = Field(
        8.0,
        gt=0,
        title="Epsilon",
        description="Privacy loss of any record, in all; smaller is safer, 1 to 8 is common.",
        examples=[1, 3, 8],
    )
    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        title="Delta",
        description="Failure probability; null is 1 / (10 x pool size).",
        examples=[1e-5],
        json_schema_extra=choice("A number", "1 / (10 x pool size)"),
    )
    profile: Profile = Field(
        Profile.STANDARD,
        title="Profile",
        description="standard: delta below 1 / pool size. paper: delta up to 1 / labels, to "
        "reproduce published results; reports and certificates are marked.",
    )
    selection: SelectionMode = Field(
        SelectionMode.HIDDEN,
        title="Who may see the selection",
        description="hidden: nobody outside. visible: anyone may see the ids. paper: noisy "
        "scores are released.",
    )
    selection_epsilon: float | None = Field(
        None,
        ge=0,
        title="Epsilon of the selections",
        description="Share of epsilon for visible or paper selection; null is a quarter.",
        json_schema_extra=choice("A number", "A quarter of epsilon"),
    )
    adjacency: Adjacency = Field(
        Adjacency.ZERO_OUT,
        title="Adjacency",
        description="What changes between neighbouring data sets. zero_out: one record's content "
        "is blanked. replace_one: it is any other content; about twice the noise.",
    )
    accountant: Accountant = Field(
        Accountant.PLD,
        title="Accountant",
        description="pld: tight. rdp: 3 to 8 % more noise; for filters.",
    )
    threshold_noise: float | None = Field(
        None,
        gt=0,
        title="Noise of the thresholds",
        description="Noise multiplier of each hidden or visible threshold; null fits the query.",
        json_schema_extra=choice("A number", "Fitted to the query"),
    )


class ScheduleConfig(_Section):
    """How many labels are bought when."""

    initial: int = Field(
        700,
        ge=1,
        title="Labels at the start",
        description="Records labeled at random before the first training.",
    )
    # The form refuses a 0 at once; elsewhere the plan says what is wrong with it.
    queries: list[Annotated[int, Field(json_schema_extra={"minimum": 1})]] = Field(
        [300, 300, 300],
        title="Labels of each query",
        description="Records that each selection may buy, in order; one line a phase, none "
        "trains once.",
    )
    batch_size: int = Field(
        600, ge=1, title="Batch size", description="Records expected in a step's batch."
    )
    epochs_per_phase: int = Field(
        16,
        ge=1,
        title="Epochs of each phase",
        description="Passes over the labeled records; few suit private training.",
    )


class CampaignConfig(_Section):
    """A differentially private active-learning campaign.

    Give it a name, its data, a promise (epsilon) and how many labels may be bought. All else
    may stay as it is.
    """

    model_config = ConfigDict(title="Campaign")

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        title="Name",
        description="Names the campaign's folder and its ledger entries: lower-case letters, "
        "digits, - and _. The name of an unfinished campaign continues it.",
        examples=["clinic"],
    )
    data: DataConfig = Field(default_factory=DataConfig, title="Data")
    labeler: LabelerConfig = Field(default_factory=LabelerConfig, title="Labels")
    privacy: PrivacyConfig = Field(default_factory=PrivacyConfig, title="Privacy")
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig, title="Schedule")
    start_from: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        title="Start from",
        description="Finished campaign to go on from: its model, and labels where budget is left.",
        json_schema_extra=choice("A finished campaign", "Afresh"),
    )
    strategy: Strategy = Field(
        Strategy.STEP_AMPLIFICATION,
        title="Strategy",
        description="step_amplification: no cohort leaves budget unused, by more steps. "
        "noise_reduction: the same by less noise. continual: new records train alone first. "
        "naive: one rate for all.",
    )
    acquisition: Acquisition = Field(
        Acquisition.ENTROPY,
        title="Acquisition",
        description="Which unlabeled records are wanted most: random (free, reads no record), or "
        "those the model is least sure of by least_confidence, margin, entropy or bald (dropout).",
    )
    model: ModelConfig = Field(default_factory=ModelConfig, title="Model")
    training: TrainingConfig = Field(default_factory=TrainingConfig, title="Training")
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @model_validator(mode="after")
    def _own_place(self) -> CampaignConfig:
        if self.name in _TAKEN_NAMES:
            raise ValueError(f"name cannot be {self.name}: that folder of artifacts is taken")
        return self

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
        if self.labeler.kind is LabelerKind.FORM and largest > FORM_RECORDS:
            raise ValueError(
                f"labeler.kind form is for queries of at most {FORM_RECORDS} records, and the "
                f"schedule has one of {largest}; use labeler.kind file or label_studio"
            )
        if self.privacy.profile is Profile.PAPER and self.data.dataset is not None:
            raise ValueError(
                "privacy.profile paper is for reproducing published results, and data.dataset "
                "names a registered data set, whose owner limits delta; use profile standard"
            )
        texts = (ContentChoice.AUTO, ContentChoice.TEXT)
        fits = self.data.content in texts and extractor is ExtractorKind.NONE
        if self.model.name == TEXT_MODEL and not fits:
            raise ValueError(
                "model.name text_classifier reads texts; set data.content: text and "
                "data.extractor: none, or use another model"
            )
        return self

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

        Raises:
          ParameterError: the wishes contradict each other or the pool's size, or pretrained
            weights are not where they should be.
        """
        if (measured is not None) != self.data.normalisation.measured:
            raise ParameterError(
                "data.normalisation validation needs the validation set's own numbers; open the "
                "data first, or give constants"
            )
        privacy = self.privacy
        pays = not self.acquisition.is_random and bool(self.schedule.queries)
        pays &= privacy.selection is not SelectionMode.HIDDEN
        share = SELECTION_SHARE * privacy.epsilon if pays else 0.0
        chosen = privacy.selection_epsilon
        initial = carried or self.schedule.initial
        if privacy.profile is Profile.PAPER:
            delta = published_delta(privacy.delta, labels=initial + sum(self.schedule.queries))
        else:
            delta = choose_delta(privacy.delta, pool_size=pool_size)
        return CampaignSpec(
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
            acquisition=self.acquisition,
            selection=privacy.selection,
            selection_epsilon=share if chosen is None else chosen,
            threshold_noise=privacy.threshold_noise,
            dataset=self.data.dataset,
            start_from=self.start_from,
            carries_labels=carried > 0,
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
        )


def parse_config(values: Mapping[str, Any]) -> CampaignConfig:
    """Checks what a person wrote.

    Raises:
      ConfigError: a key is unknown (with the nearest valid one), missing, of the wrong
        type, or contradicts another.
    """
    try:
        return CampaignConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(explain(error, CampaignConfig)) from error


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
