"""What a campaign is asked to do, as frozen values. The wishes; the plan is the answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dpal import check
from dpal.canonical import LATER
from dpal.data.held_out import HeldOutShare
from dpal.errors import ParameterError
from dpal.features.spec import ExtractorSpec
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.planning.linear_head_spec import HeadKind, LinearHead
from dpal.planning.training_recipe import OptimizerSpec as OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit

if TYPE_CHECKING:
    from dpal.ledger.data_set_accounts import BlockShare

LINEAR = "logistic"  # the model whose weights a linear head is
LEAST_CHOICE = 2  # candidates of queries for each label that these ask for, at least
USUAL_CHOICE = 4  # likewise, where nobody says how many
LEAST_SECRET_DRAW = 32  # on average; e^-32 is the chance that nobody is drawn


class Strategy(StrEnum):
    """How steps and sample rates follow from the schedule."""

    NAIVE = "naive"
    STEP_AMPLIFICATION = "step_amplification"
    NOISE_REDUCTION = "noise_reduction"
    CONTINUAL = "continual"


class Acquisition(StrEnum):
    """Which unlabeled records are wanted most."""

    RANDOM = "random"
    LEAST_CONFIDENCE = "least_confidence"
    MARGIN = "margin"
    ENTROPY = "entropy"
    BALD = "bald"
    COMMITTEE = "committee"
    CLASS_BALANCED = "class_balanced"
    DIVERSE = "diverse"

    @property
    def is_random(self) -> bool:
        """Whether no record is read to select, so that selection is free."""
        return self is Acquisition.RANDOM

    @property
    def ranks_among_public(self) -> bool:
        """Whether a record's score is its rank among the records of the validation set."""
        return self in (Acquisition.CLASS_BALANCED, Acquisition.DIVERSE)


class SelectionMode(StrEnum):
    """Who can see the selection, and hence what it costs.

    HIDDEN: nobody outside; only models leave. Costs a noisy threshold.
    VISIBLE: the selected ids leave too. Costs an anchored randomised response.
    PAPER: noisy scores leave. Costs Laplace noise on every score.
    """

    HIDDEN = "hidden"
    VISIBLE = "visible"
    PAPER = "paper"


class ThresholdStart(StrEnum):
    """Where the search for a hidden threshold begins.

    PLAIN: in the middle of all scores, as every search did at first; each query is capped.
    VALIDATION: at the quantile that the public validation set suggests.
    """

    PLAIN = "plain"
    VALIDATION = "validation"


class LabelCap(StrEnum):
    """What hidden selection may not exceed: the labels of all queries together, or of each."""

    SUM = "sum"
    QUERY = "query"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many labels are bought when, and how long each phase trains.

    Attributes:
      initial: records labeled at random before the first phase.
      queries: records added by each selection, in order.
      batch_size: expected batch size B.
      epochs_per_phase: passes over the labeled records in each phase.
    """

    initial: int
    queries: tuple[int, ...]
    batch_size: int
    epochs_per_phase: int

    def __post_init__(self) -> None:
        check.at_least(
            1,
            **{
                "schedule.initial": self.initial,
                "schedule.batch_size": self.batch_size,
                "schedule.epochs_per_phase": self.epochs_per_phase,
            },
        )
        for query in self.queries:
            check.at_least(1, **{"schedule.queries": query})

    @property
    def cohort_sizes(self) -> tuple[int, ...]:
        """Records added in each phase, phase 0 first."""
        return (self.initial, *self.queries)

    def require_labels_for_batch(self) -> None:
        """Requires that a batch can be full at last.

        A phase with fewer labels than a batch trains on all of them in every step, which is
        well where more are to come.

        Raises:
          ParameterError: all labels together are fewer than a batch.
        """
        labels = sum(self.cohort_sizes)
        if self.batch_size > labels:
            raise ParameterError(
                f"schedule.batch_size {self.batch_size:,} is larger than all {labels:,} labels "
                f"that the schedule buys; set it to {labels:,} at most"
            )


@dataclass(frozen=True, kw_only=True)
class SelfTraining:
    """How records that nobody labeled train at the end, on labels that a released model gives.

    Attributes:
      epochs: passes over them.
      batch_size: of them, expected in a step; None is a tenth of them.
    """

    epochs: int
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check.at_least(1, **{"self_training.epochs": self.epochs})
        if self.batch_size is not None:
            check.at_least(1, **{"self_training.batch_size": self.batch_size})


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of the training that are tried on the initial cohort, before the campaign trains.

    How many there are is fixed beforehand, each is a training like that of phase 0 and charged, and
    so is every figure by which the best is found (docs/guarantee.md, "A search among settings").

    Attributes:
      others: optimizers that are tried beside the campaign's own, which is tried first.
      epochs: passes of each trial over the initial cohort.
    """

    others: tuple[OptimizerSpec, ...]
    epochs: int

    def __post_init__(self) -> None:
        check.at_least(1, **{"search.trials": len(self.others), "search.epochs": self.epochs})


@dataclass(frozen=True, kw_only=True)
class ProtectedValidation:
    """A validation set whose records are promised something, too.

    Attributes:
      records: how many there are; public.
      epsilon: what all figures together may cost each of them, at the campaign's delta.
      auc: whether histograms of scores are released as well, for areas under the ROC curve.
      groups: whose records they are, where groups are the unit, and are promised the same; else
        None.
      group_records: of one group that are measured, at most.
      share: of the pool's file that a declared coin for each record, or group, holds out as these
        records; None where they are in a file of their own.
    """

    records: int
    epsilon: float
    auc: bool = field(default=False, metadata=LATER)
    groups: int | None = field(default=None, metadata=LATER)
    group_records: int = field(default=1, metadata=LATER)
    share: float | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(1, **{"validation records": self.records})
        check.positive(**{"validation.epsilon": self.epsilon})
        check.at_least(1, **{"validation.group_records": self.group_records})
        if self.share is not None:
            HeldOutShare(share=self.share)
        if self.groups is None:
            check.within(1, 1, **{"validation.group_records": self.group_records})
        else:
            least = -(-self.records // self.group_records)
            check.within(least, self.records, **{"validation groups": self.groups})

    @property
    def owners(self) -> int:
        """How many are promised something: groups, or records."""
        return self.records if self.groups is None else self.groups


@dataclass(frozen=True, kw_only=True)
class Groups:
    """How all records of a group take part, where groups are the unit.

    Sizes of pool, cohorts, queries and batches then count groups.

    Attributes:
      column: of the pool; says who belongs together.
      records: of one group in a step, at most; their gradients are averaged, and clipped once.
      labels: that are bought of one group, for its first records; None for all of its records.
    """

    column: str
    records: int
    labels: int | None = None

    def __post_init__(self) -> None:
        check.at_least(1, **{"schedule.group_records": self.records})
        if self.labels is not None:
            check.at_least(1, **{"schedule.group_labels": self.labels})


@dataclass(frozen=True, kw_only=True)
class CampaignSpec:
    """Everything that decides what happens to private records.

    Attributes:
      pool_size: records in the pool; public.
      target: the promise to every one of them.
      accountant: which bound the plan is solved against.
      selection: who can see the selection.
      selection_epsilon: of the noisy scores together (paper), or of the last query's yes
        (visible); 0 where neither is released.
      threshold_noise: noise multiplier of each threshold (hidden, visible); None lets the
        sizes of the queries decide.
      dataset: the registered data set that the pool belongs to, if any.
      blocks: shares of its blocks that take part; empty where none is registered.
      start_from: the earlier campaign whose model is the start, if any.
      carries_labels: whether the initial cohort was labeled by an earlier campaign, which
        may have looked at records to choose them.
      secret_draw: whether who is drawn at random is a secret, decided by coins, that makes what
        the drawn lose cheaper.
      candidates: records, on average, that the same coins let queries select from; None lets them
        select from all that were not drawn.
      self_training: how the records that nobody labeled train; None leaves them out.
      recipe: what else decides the steps of a training.
      extractor: the fixed, public function that makes features of every record first.
      threshold_start: where hidden selection begins to look for a threshold.
      label_cap: what hidden selection may not exceed.
      validation: what is promised to the records that figures are measured on; None where they are
        public.
      groups: how all records of a group take part; None where each record, or one of a group,
        stands alone.
      search: which other optimizers are tried first; None where `optimizer` is used untried.
      head: how a linear model is fitted in one release for each phase; None trains by DP-SGD, as
        schedule and optimizer say.
    """

    pool_size: int
    target: PrivacyTarget
    accountant: Accountant
    strategy: Strategy
    acquisition: Acquisition
    selection: SelectionMode
    selection_epsilon: float
    threshold_noise: float | None
    schedule: Schedule
    model: ModelSpec
    optimizer: OptimizerSpec
    name: str
    dataset: str | None = None
    blocks: tuple[BlockShare, ...] = ()
    start_from: str | None = None
    carries_labels: bool = False
    secret_draw: bool = field(default=False, metadata=LATER)
    candidates: int | None = field(default=None, metadata=LATER)
    self_training: SelfTraining | None = field(default=None, metadata=LATER)
    recipe: Recipe = field(default_factory=Recipe)
    extractor: ExtractorSpec = field(default_factory=ExtractorSpec)
    threshold_start: ThresholdStart = field(default=ThresholdStart.PLAIN, metadata=LATER)
    label_cap: LabelCap = field(default=LabelCap.QUERY, metadata=LATER)
    validation: ProtectedValidation | None = field(default=None, metadata=LATER)
    groups: Groups | None = field(default=None, metadata=LATER)
    search: Search | None = field(default=None, metadata=LATER)
    head: LinearHead | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(0, **{"privacy.selection_epsilon": self.selection_epsilon})
        if self.threshold_noise is not None:
            check.positive(**{"privacy.threshold_noise": self.threshold_noise})
        wanted = sum(self.schedule.cohort_sizes)
        if wanted > self.pool_size:
            raise ParameterError(
                f"the schedule asks for {wanted:,} {self.counted} and the pool has "
                f"{self.pool_size:,} {self.members}; lower schedule.initial or schedule.queries"
            )
        if self.groups is not None and self.target.unit is not Unit.GROUP:
            raise ParameterError(
                f"groups take part where they are the unit, and it is {self.target.unit}; set "
                "privacy.unit: group"
            )
        self._check_model()
        self._check_validation()
        self._check_selection_epsilon()
        self._check_self_training()
        self._check_candidates()
        self._check_search()
        self._check_head()
        if self.threshold_start is ThresholdStart.PLAIN and self.label_cap is LabelCap.SUM:
            raise ParameterError(
                "privacy.label_cap sum needs thresholds that are looked for from the validation "
                "set's quantile; use label_cap query"
            )
        if self.secret_draw and (reason := self.why_no_secret_draw):
            raise ParameterError(
                f"privacy.secret_draw true is not possible: {reason}; set it to false, or to null, "
                "which draws by secret coins where that saves noise"
            )
        if self.carries_labels and self.target.adjacency is Adjacency.REPLACE_ONE:
            raise ParameterError(
                "labels of an earlier campaign are carried over under adjacency zero_out only: "
                "a record and its replacement may have been labeled in different phases; start "
                "without start_from, or use adjacency zero_out"
            )
        if self.carries_labels and self.selection is SelectionMode.HIDDEN and not self.selects:
            # A draw of so many records, whoever is labeled already: who was labeled in
            # secret pushes others out of it, and a blank record would not.
            raise ParameterError(
                "labels of an earlier campaign are carried into queries by score alone where "
                "selection is hidden: whom a random draw can take depends on who was chosen; set "
                "schedule.queries, such as [300], and an acquisition other than random, or start "
                "without start_from"
            )
        trains = self.head is None  # a fit has no rate that a strategy could choose
        if trains and self.entries_may_differ and self.strategy is not Strategy.NAIVE:
            raise ParameterError(
                "hidden selection under adjacency replace_one is planned by strategy naive only: "
                "a record and its replacement may enter in different phases unseen, and "
                f"strategy {self.strategy} trains phases at different rates; use strategy naive, "
                "selection visible, or adjacency zero_out"
            )

    def varied(self, **changes: Any) -> CampaignSpec:
        """The same with other wishes.

        Without secret coins, or candidates that they draw, where those would save nothing.
        Thresholds are looked for as they were; where there were none, as settings would have it,
        and where there are none any more, nothing is said of them.
        """
        openly = replace(self, secret_draw=False, **{"candidates": None, **changes})
        if openly.seeks_thresholds is not self.seeks_thresholds:
            start, cap = ThresholdStart.PLAIN, LabelCap.QUERY
            if openly.seeks_thresholds and self.validation is None:
                start, cap = ThresholdStart.VALIDATION, LabelCap.SUM
            openly = replace(openly, threshold_start=start, label_cap=cap)
        if not self.secret_draw:
            return openly
        secretly = openly.with_secret_draws()
        return secretly if self.candidates is None else secretly.with_candidates(self.candidates)

    def with_secret_draws(self) -> CampaignSpec:
        """The same, with secret coins where those save something."""
        return self if self.why_no_secret_draw else replace(self, secret_draw=True)

    def with_candidates(self, candidates: int) -> CampaignSpec:
        """The same with so many candidates of its queries, where coins draw some and leave some."""
        if not (self.secret_draw and self.selects) or self._why_no_candidates(candidates):
            return self
        return replace(self, candidates=candidates)

    @property
    def trials(self) -> tuple[OptimizerSpec, ...]:
        """The optimizers that are tried first, the campaign's own before the others."""
        return () if self.search is None else (self.optimizer, *self.search.others)

    @property
    def members(self) -> str:
        """What sizes of the pool and of cohorts count."""
        return "records" if self.groups is None else "groups"

    @property
    def counted(self) -> str:
        """What the schedule buys: one label for each record, or all that a group has."""
        return "labels" if self.groups is None else "groups with labels"

    @property
    def splits_budget(self) -> bool:
        """Whether secret coins draw, and those whom they leave lose something, too."""
        return self.secret_draw and (self.selects or self.self_training is not None)

    @property
    def why_no_secret_draw(self) -> str | None:
        """Why it cannot count that who is drawn at random is a secret; None where it can."""
        if self.selection is not SelectionMode.HIDDEN:
            return f"selection {self.selection} shows who is labeled"
        if self.dataset is not None or self.carries_labels:
            return (
                "campaigns on a registered data set are added up as if everybody knew who is "
                "labeled"
            )
        if self.accountant is not Accountant.PLD:
            return "accountant rdp adds up releases as if everybody knew who is labeled"
        if self.target.adjacency is Adjacency.REPLACE_ONE:
            if self.selects:
                return "under adjacency replace_one queries that read records leave nothing of it"
            if self.self_training is not None:
                return (
                    "under adjacency replace_one records that train unlabeled leave nothing of it"
                )
        return self._why_no_coins()

    def _why_no_coins(self) -> str | None:
        """Which phase draws too few or too many for its draw to be a secret."""
        # Settings are read without numpy.
        from dpal.accounting.secret_draws_amplification import LEAST_ENTROPY, entropy_of_draw

        sizes, pool = self.schedule.cohort_sizes, self.pool_size
        for phase, size in enumerate(sizes if self.acquisition.is_random else sizes[:1]):
            if size < LEAST_SECRET_DRAW:
                return (
                    f"phase {phase} draws {size:,} records, and {LEAST_SECRET_DRAW} on average are "
                    "the least of which coins draw some for certain"
                )
            if not size < pool - sum(sizes[:phase]):
                return (
                    f"phase {phase} asks for all {size:,} records that are left, so that who is "
                    "drawn is no secret"
                )
            if not entropy_of_draw(pool, size) >= LEAST_ENTROPY:
                return (
                    f"phase {phase} draws {size:,} of {pool:,} records, so few possible draws that "
                    "all of them could be tried against a digest of the one that was made"
                )
        return None

    def _check_candidates(self) -> None:
        if self.candidates is None:
            return
        if not (self.selects and self.selection is SelectionMode.HIDDEN):
            raise ParameterError(
                f"privacy.candidates {self.candidates:,} are what hidden queries select from, and "
                "there are none; leave it null"
            )
        if reason := self._why_no_candidates(self.candidates):
            raise ParameterError(f"privacy.candidates {self.candidates:,}: {reason}")

    def _why_no_candidates(self, candidates: int) -> str | None:
        """Why coins cannot draw so many that queries select from; None where they can."""
        # Settings are read without numpy.
        from dpal.accounting.secret_draws_amplification import LEAST_ENTROPY, entropy_of_draw

        left, asked = self.pool_size - self.schedule.initial, sum(self.schedule.queries)
        if candidates < LEAST_CHOICE * asked:
            return (
                f"queries ask for {asked:,} labels, and choose from {LEAST_CHOICE * asked:,} "
                "candidates at least"
            )
        if candidates >= left:
            return f"only {left:,} records are left after the initial cohort; leave it null"
        if self.secret_draw and not entropy_of_draw(left, candidates) >= LEAST_ENTROPY:
            return "there are so few ways to draw them that all could be tried; leave it null"
        return None

    def _check_search(self) -> None:
        if self.search is None:
            return
        alike = [tried.alike for tried in self.trials]
        for number, tried in enumerate(alike):
            if tried in alike[:number]:
                raise ParameterError(
                    f"search.trials has one training twice (1 is `training` itself): trial "
                    f"{number + 1} trains like trial {alike.index(tried) + 1}, and each is "
                    "charged; leave one out"
                )

    def _check_head(self) -> None:
        """Requires a linear model, and nothing that only steps of a training can do."""
        if self.head is None:
            return
        kind, model = self.head.kind, self.model
        if model.name != LINEAR or model.weights is not None or model.trainable:
            what = model.name if model.name != LINEAR else "one with weights or frozen parts"
            raise ParameterError(
                f"training.method {kind} fits a linear model, and the model is {what}; use "
                f"model.name {LINEAR} on features (data.extractor), or training.method dp_sgd"
            )
        if kind is HeadKind.PROTOTYPES and model.task is Task.MULTI_LABEL:
            raise ParameterError(
                "training.method prototypes takes one class for each record, and these have "
                "several labels; use least_squares or dp_sgd"
            )
        steps = {
            "search": self.search is not None,
            "self_training": self.self_training is not None,
            "acquisition committee": self.acquisition is Acquisition.COMMITTEE,
        }
        if wanted := [name for name, asked in steps.items() if asked]:
            raise ParameterError(
                f"{wanted[0]} needs a training of several steps, and training.method {kind} fits "
                "in one; leave it out, or use training.method dp_sgd"
            )

    def _check_validation(self) -> None:
        """Requires that nothing but its figures is made of a validation set that is protected."""
        if self.validation is None:
            return
        if self.validation.auc and self.model.task is Task.SINGLE_LABEL and self.model.classes > 2:
            raise ParameterError(
                "validation.auc is the area under the ROC curve of two classes, or of several "
                f"labels, and there are {self.model.classes} classes; leave it out"
            )
        if self.acquisition.ranks_among_public:
            raise ParameterError(
                f"acquisition {self.acquisition} ranks records among those of the validation set, "
                "and they are protected; use another acquisition, or public validation records"
            )
        if (self.target.unit is Unit.GROUP) is (self.validation.groups is None):
            raise ParameterError(
                "a validation set is protected by groups where privacy.unit, or the data set's, is "
                "group, and record by record where it is record"
            )
        if self.threshold_start is ThresholdStart.VALIDATION:
            raise ParameterError(
                "hidden queries cannot begin at the validation set's quantile where its records "
                "are protected"
            )

    def _check_self_training(self) -> None:
        if self.self_training is None:
            return
        if self.unlabeled < 1:
            raise ParameterError(
                f"the schedule buys labels for all {self.pool_size:,} records of the pool, so that "
                "none is left for self_training; set it to null, or buy fewer labels"
            )
        if self.entries_may_differ:
            raise ParameterError(
                "self_training after hidden queries under adjacency replace_one is not planned: a "
                "record and its replacement may be labeled in one world and guessed in the other; "
                "set self_training: null, or use acquisition random, selection visible, or "
                "adjacency zero_out"
            )

    @property
    def offered_to_queries(self) -> int:
        """Records that the first query selects from, as planned."""
        return self.candidates or self.pool_size - self.schedule.initial

    @property
    def unlabeled(self) -> int:
        """Records of the pool for which the schedule buys no label."""
        return self.pool_size - sum(self.schedule.cohort_sizes)

    def _check_model(self) -> None:
        model, views = self.model, self.recipe.augmentation
        if views.changes_records and len(model.input_shape) != 3:
            raise ParameterError(
                "training.augmentation flips and shifts images, and a record here has shape "
                f"{model.input_shape}; set flip: false, shift: 0 and multiplicity: 1"
            )

    def _check_selection_epsilon(self) -> None:
        share, target = self.selection_epsilon, self.target.epsilon
        if share >= target:
            raise ParameterError(
                f"privacy.selection_epsilon {share:g} leaves nothing of privacy.epsilon "
                f"{target:g} for training; a quarter of it ({target / 4:g}) is usual"
            )
        if not self.selects and share > 0:
            raise ParameterError(
                f"privacy.selection_epsilon {share:g} would be wasted: random selection costs "
                "nothing; leave it null or choose another acquisition"
            )
        if self.selects and self.selection is SelectionMode.HIDDEN and share > 0:
            raise ParameterError(
                f"privacy.selection_epsilon {share:g} has nothing to pay for: hidden selection "
                "releases a noisy threshold only; leave it null, or set privacy.threshold_noise"
            )
        if not self.selects or self.selection is SelectionMode.HIDDEN:
            return
        if share == 0:
            raise ParameterError(
                f"acquisition {self.acquisition} with privacy.selection_epsilon 0 would not be "
                "private; use acquisition random, selection hidden, or leave it null"
            )
        from dpal.accounting.events import PURE_EPSILONS  # settings are read without it

        least = most = share / len(self.schedule.queries)
        if self.selection is SelectionMode.VISIBLE:
            most = share  # of the last query's answers
            if self.target.adjacency is Adjacency.REPLACE_ONE:
                least, most = least / 2, most / 2  # both contents of the record answer
        if not PURE_EPSILONS[0] <= least <= most <= PURE_EPSILONS[1]:
            wrong = most if most > PURE_EPSILONS[1] else least
            raise ParameterError(
                f"privacy.selection_epsilon {share:g} is {wrong:.3g} for one selection, and "
                f"{PURE_EPSILONS[0]:.1g} to {PURE_EPSILONS[1]:g} can be drawn"
            )

    def participation(self, block: int) -> float:
        """The factor on the sample rates of a block's records; 0 for one that sits out."""
        if not self.blocks:
            return 1.0
        return next((share.participation for share in self.blocks if share.block == block), 0.0)

    @property
    def selects(self) -> bool:
        """Whether any query looks at records."""
        return not self.acquisition.is_random and bool(self.schedule.queries)

    @property
    def entries_may_differ(self) -> bool:
        """Whether a record and its replacement may enter in different phases unseen.

        Where ids are visible, equal outputs mean equal entries. A blank record trains
        nothing, so its entry does not matter.
        """
        hidden = self.selects and self.selection is SelectionMode.HIDDEN
        return hidden and self.target.adjacency is Adjacency.REPLACE_ONE

    @property
    def planning_epsilon(self) -> float:
        """What a planner aims for: below the target by more than rounding can add up to."""
        return self.target.epsilon * (1 - 1e-9)

    @property
    def seeks_thresholds(self) -> bool:
        """Whether any query finds a hidden threshold."""
        return self.selects and self.selection is SelectionMode.HIDDEN
