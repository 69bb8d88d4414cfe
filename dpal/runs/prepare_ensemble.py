"""What every task of private voting is handed, and how it comes from settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism, ReleasedVotes
from dpal.accounting.votes.near_records import NearRecords
from dpal.accounting.votes.voting_rule import VotingRule, noises_of
from dpal.acquisition.scores import score_function
from dpal.canonical import digest, file_digest, plain
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.pate import PateConfig
from dpal.config.validation import require_public
from dpal.data.ballot_files import read_budgets
from dpal.data.inspect_rows import inspect, require_apart, require_match
from dpal.data.partitions import named_teachers, require_groups, require_parts
from dpal.data.sources import Source
from dpal.data.validation_checks import require_same_names
from dpal.errors import ConfigError, DataError, ParameterError
from dpal.files.artifacts import CONFIDENTIAL, PhaseFolder
from dpal.labels import Task
from dpal.ledger.data_set_limits import DataHold
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import Acquisition
from dpal.planning.public_consensus import with_consensus
from dpal.planning.queries_per_teacher_budget import with_budgets
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import CertifiedVoting, VotingPlan, VotingSpec, certify_voting
from dpal.privacy import PrivacyTarget, Unit, choose_delta
from dpal.reports.plan_and_phase_tables import shares_table
from dpal.reports.report import Table
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.accounts_of_earlier_versions import charged_by_answers, earlier_bound
from dpal.runs.devices import require_device
from dpal.runs.ensemble_data_set_holds import find_start, owner_of_ballots, shares_of_votes
from dpal.runs.model_description import describe_model
from dpal.runs.open_sources import open_public, require_alike
from dpal.runs.plan_new_campaign import require_unregistered
from dpal.runs.prepare_campaign import open_data
from dpal.runs.progress_logging import notify
from dpal.runs.run import ConfiguredRun
from dpal.runs.unregistered_runs import tell_of_others
from dpal.runs.vote_account import Account
from dpal.runs.vote_request import asked_first
from dpal.training.augmentation import require_shift


@dataclass(frozen=True, kw_only=True)
class Ensemble(ConfiguredRun[VotingPlan]):
    """Certified teachers and where their things are.

    Attributes:
      config: what the person wrote.
      certified: what they may be asked, and the proof.
      pool: private records.
      public: public records, of which some are asked.
      validation: public labeled records that figures are measured on.
      tuning: public labeled records that cuts are chosen on; None for none.
      class_names: names in class order; empty when the data has none.
      model: architecture of teachers and student.
      rows: private records.
      public_rows: public ones.
      data: what the account takes of a registered data set; None for none.
      compared: with how many parts of data sets its records were compared; None where one counts
        them, or the account began.
    """

    kind, noun = "pate", "account"

    config: PateConfig
    certified: CertifiedVoting
    pool: Source
    public: Source
    validation: Source
    tuning: Source | None
    class_names: tuple[str, ...]
    model: ModelSpec
    rows: int
    public_rows: int
    data: DataHold | None
    compared: int | None

    @property
    def spec(self) -> VotingSpec:
        """Numbers of the plan."""
        return self.certified.plan.spec

    @property
    def dataset(self) -> str | None:
        """The registered data set that it is on; None for none."""
        return self.config.data.dataset

    @property
    def sources(self) -> tuple[Source, ...]:
        """All records that it reads."""
        tuning = () if self.tuning is None else (self.tuning,)
        return self.pool, self.public, self.validation, *tuning

    @property
    def account(self) -> Account:
        """Who pays for votes."""
        return Account(certified=self.certified, runtime=self.config.runtime)

    @property
    def files(self) -> PhaseFolder:
        """Those of the student."""
        return self.folder.phase(0)

    @property
    def title(self) -> str:
        """What pages call it."""
        return f"Private voting {self.name}"

    def plan_tables(self) -> Sequence[Table]:
        """What votes cost, and what they take of a data set."""
        taken = [] if self.data is None else [shares_table(self.data.record())]
        return [*self.account.plan_tables(), *taken]

    def plan_words(self) -> Sequence[str]:
        """How votes are counted."""
        return self.account.plan_words()

    def plan_record(self) -> Mapping[str, Any]:
        """What they take of a data set."""
        return {"data": self.data and self.data.record()}

    @property
    def parts_file(self) -> Path:
        """Which record belongs to which teacher. Private."""
        return self.folder.root / CONFIDENTIAL / "teachers" / "parts.parquet"

    @property
    def grouped_file(self) -> Path:
        """The pool by teacher, while they are trained. Private, never versioned."""
        return self.folder.scratch / "by-teacher.parquet"

    @property
    def public_model_file(self) -> Path:
        """Weights of the public model that teachers may object to; they are no secret."""
        return self.folder.root / CONFIDENTIAL / "teachers" / "public-model.safetensors"

    def teacher_file(self, number: int) -> Path:
        """Weights of a teacher. Private."""
        return self.folder.root / CONFIDENTIAL / "teachers" / f"teacher-{number}.safetensors"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of labels, numbers where the data has none."""
        return self.class_names or tuple(str(number) for number in range(self.model.classes))

    @property
    def has_teachers(self) -> bool:
        """Whether models vote; else single records do."""
        return self.spec.near is None

    @property
    def rounds(self) -> range:
        """Numbers of the blocks whose queries are the student's."""
        return range(1, self.config.voting.rounds + 1)

    @property
    def offered(self) -> int:
        """Public records that are asked; more than the queries paid for where a gate saves some."""
        return min(self.public_rows, sum(map(self.offered_in, self.rounds)))

    def offered_in(self, number: int) -> int:
        """The same of a round; fewer where no public record is left."""
        rule, queries = self.spec.rule, self.spec.blocks[number - 1]
        if self.spec.gate is None:
            return queries
        first = rule.labels - len(self.spec.dependents)
        return math.ceil(queries * rule.labels / first)

    def asked_file(self, number: int) -> Path:
        """Which public records a round asks, and how unsure the student was of them; public."""
        return self.files.root / f"asked-{number}.parquet"

    def chooser_file(self, number: int) -> Path:
        """Weights of the student that chooses the queries of a round; public."""
        return self.files.root / f"chooser-{number}.safetensors"


def prepare_ensemble(config: PateConfig) -> Ensemble:
    """Checks the device and certifies an account, before anything is released."""
    require_device(config.runtime)
    ensemble = plan_ensemble(config)
    target = ensemble.spec.target
    notify(
        f"plan certified: {ensemble.certified.epsilon:.4f} of epsilon {target.epsilon:g} for "
        f"{sum(ensemble.spec.blocks):,} queries, sigma {ensemble.spec.rule.sigma:.4g}"
    )
    if config.data.dataset is None:
        tell_of_others(config.runtime, ensemble.pool, config.name)
    return ensemble


def plan_ensemble(config: PateConfig) -> Ensemble:
    """Looks at the data and certifies an account. Releases nothing, writes nothing.

    Raises:
      PlanRejected: the queries cost more than is promised, whatever the votes are.
      ParameterError: the wishes contradict each other or the data.
      DataBudgetExceeded: the data set has not enough left.
    """
    reading = reading_settings(config)
    require_public(reading)
    opened, start = open_data(reading), find_start(reading)
    group = owner_of_ballots(config.teachers.group_column, opened.pool, start.dataset)
    teachers = config.teachers.model_copy(update={"group_column": group})
    config = config.model_copy(update={"teachers": teachers})
    compared = None
    if start.dataset is None and not start.begun:
        compared = require_unregistered(config.runtime, opened.pool)
    public = replace(open_public(reading, config.public), task=opened.spec.model.task)
    require_alike(opened.pool, opened.validation, public)
    if not start.begun:
        require_same_names(opened.pool, public)
        require_same_names(opened.validation, public)
        require_unregistered(config.runtime, public)
    tuning = None
    with tqdm(desc="checking public data", unit="rec", disable=None, leave=False) as bar:
        held, checked = inspect(public, on_rows=bar.update), inspect(opened.validation)
        require_match(held, checked)
        if config.teachers.tuning is not None:
            section = config.public.model_copy(update={"pool": config.teachers.tuning})
            tuning = open_public(reading, section)
            require_alike(opened.pool, opened.validation, public, tuning)
            if not start.begun:
                require_same_names(opened.validation, tuning)
                require_unregistered(config.runtime, tuning)
            if not inspect(tuning, on_rows=bar.update).fully_labeled:
                raise DataError.before_release(
                    f"teachers.tuning {tuning.name} has rows without a label; cuts are chosen, and "
                    "a public model learns, on labeled public records"
                )
            require_apart(tuning, opened.pool, "a protected record cannot be public")
            require_apart(tuning, opened.validation, "what cuts are chosen on cannot be a test")
    require_apart(public, opened.pool, "a protected record cannot be public")
    require_apart(public, opened.validation, "what was learned from cannot be a test")
    if config.teachers.partition is not None:
        require_parts(config.teachers.partition, config.teachers.count)
    require_groups(opened.pool, config.teachers.group_column)
    acquisition = Acquisition(config.voting.acquisition.value)
    if not acquisition.is_random:
        # A score that the task does not have is refused before the first round is paid for.
        score_function(acquisition, task=opened.spec.model.task)
    neighbours = config.voting.neighbours
    if neighbours is not None and neighbours > opened.rows:
        raise ParameterError.before_release(
            f"voting.neighbours {neighbours:g} are asked for and there are {opened.rows:,} "
            "private records; lower it"
        )
    if neighbours is None and opened.rows < config.teachers.count:
        raise ParameterError.before_release(
            f"{opened.rows:,} private records cannot be dealt out to {config.teachers.count:,} "
            "teachers; lower teachers.count"
        )
    shape = opened.spec.model.input_shape
    require_shift(config.teachers.shift, shape, setting="teachers.shift")
    require_shift(config.student.shift, shape, setting="student.shift")
    spec = voting_spec(config, opened.rows, opened.spec.model, opened.class_names)
    if held.rows < config.voting.queries:
        raise ParameterError.before_release(
            f"voting.queries {config.voting.queries:,} are asked for and there are {held.rows:,} "
            "public records; lower it"
        )
    certified = certify_voting(spec)
    ensemble = Ensemble(
        config=config,
        certified=certified,
        pool=opened.pool,
        public=public,
        validation=opened.validation,
        tuning=tuning,
        class_names=opened.class_names,
        model=opened.spec.model,
        rows=opened.rows,
        public_rows=held.rows,
        data=shares_of_votes(start, reading, opened.pool, certified),
        compared=compared,
    )
    if neighbours is not None and max(map(ensemble.offered_in, ensemble.rounds)) >= held.rows:
        raise ParameterError.before_release(
            f"voting.queries {config.voting.queries:,} ask all {held.rows:,} public records, and "
            "how far neighbours are is judged by others; lower it"
        )
    guesses = config.student.method == "mixmatch"
    if guesses and ensemble.offered >= held.rows:
        raise ConfigError.before_release(
            "student.method mixmatch guesses labels of public records that are not asked, and all "
            "are; ask fewer, or take supervised"
        )
    if "private_knn" in config.baselines.run:
        _require_neighbours(ensemble)
    return ensemble


def _require_neighbours(ensemble: Ensemble) -> None:
    """What would refuse the baseline private_knn, before anything is spent."""
    about, rule = ensemble.config.baselines, ensemble.spec.rule
    if rule.mechanism in PLURALITY or ensemble.spec.target.unit is Unit.GROUP:
        raise ConfigError.before_release(
            "baselines.run private_knn lets single records vote yes or no on several labels, and "
            f"here {rule.mechanism} votes protect a {ensemble.spec.target.unit}; leave it out"
        )
    if about.neighbours > ensemble.rows:
        raise ParameterError.before_release(
            f"baselines.neighbours {about.neighbours} is above the {ensemble.rows} private "
            "records; lower it"
        )


def voting_spec(
    config: PateConfig, rows: int, model: ModelSpec, class_names: tuple[str, ...]
) -> VotingSpec:
    """The wishes joined with what is public about the data."""
    voting, single = config.voting, model.task is Task.SINGLE_LABEL
    mechanism = voting.mechanism or (Mechanism.GNMAX if single else Mechanism.BINARY)
    if voting.objections is not None and not single:
        raise ConfigError.before_release(
            "voting.objections are to the one class that a public model names, and records have "
            "several labels each; leave it out"
        )
    if single is not (mechanism is Mechanism.GNMAX):
        about = "one class" if single else "several labels"
        raise ConfigError.before_release(
            f"records have {about} each, and voting.mechanism {mechanism} counts others; leave it "
            "null"
        )
    target = PrivacyTarget(
        epsilon=config.privacy.epsilon,
        delta=choose_delta(config.privacy.delta, pool_size=rows),
        adjacency=config.privacy.adjacency,
        unit=Unit.RECORD if config.teachers.group_column is None else Unit.GROUP,
    )
    near = None
    if voting.neighbours is not None:
        near = NearRecords(
            votes=voting.votes,
            neighbours=voting.neighbours,
            bar=voting.bar,
            blocks=voting.blocks,
        )
    counts = voting.release is ReleasedVotes.COUNTS
    rule = VotingRule(
        mechanism=mechanism,
        teachers=config.teachers.count if near is None else math.ceil(near.neighbours),
        labels=model.classes,
        sigma=voting.sigma or 1.0,
        limit=voting.limit,
        noises=noises_of(mechanism, counts=counts, noises=voting.noises),
        confidence=voting.confidence,
        counts=counts,
    )
    if near is None:
        rule = rule.charged(by_answers=charged_by_answers(config.runtime.artifacts / config.name))
    tuned = config.teachers.tuning
    spec = VotingSpec(
        name=config.name,
        target=target,
        rule=rule,
        blocks=(*voting.round_sizes, *(voting.block_size for _ in range(voting.blocks))),
        teachers=digest(
            {
                "training": config.teachers.model_dump(
                    mode="json", exclude={"tuning", "partition", "budgets"}
                ),
                "tuning": None if tuned is None else file_digest(tuned),
                "model": plain(model),
            }
        ),
        near=near,
        **asked_first(voting.gate, voting.dependents, class_names, model.classes),
    )
    if voting.objections is not None:
        return with_consensus(
            spec,
            objections=voting.objections,
            object_from=voting.object_from,
            sigma=voting.sigma,
        )
    whole = fitted(
        spec,
        sigma=voting.sigma,
        agreement=voting.agreement,
        answer_from=voting.answer_from,
        earlier=earlier_bound(config.runtime.artifacts / config.name),
    )
    if config.teachers.budgets is None or config.teachers.partition is None:
        return whole
    names = named_teachers(config.teachers.partition)
    own = read_budgets(config.teachers.budgets, names)
    return with_budgets(whole, own, sigma=voting.sigma)


def reading_settings(config: PateConfig, **changed: Any) -> CampaignConfig:
    """A campaign on all private records at once: how data is read, and the baseline of DP-SGD.

    Args:
      config: of private voting.
      changed: sections that differ.
    """
    values: dict[str, Any] = {
        "name": config.name,
        "data": config.data.model_dump(),
        "validation": config.validation,
        "labeler": {"kind": "oracle"},
        "privacy": config.privacy.model_dump(),
        "schedule": {"initial": 1, "queries": [], "batch_size": 1, "epochs_per_phase": 1},
        "strategy": "naive",
        "acquisition": "random",
        "model": config.model.model_dump(),
        "training": config.training.model_dump(),
        "runtime": config.runtime.model_dump(),
    }
    return parse_config({**values, **changed})


def record_ensemble(ensemble: Ensemble) -> None:
    """Writes what later commands need to know."""
    summary, queries = ensemble.certified.summary(), ensemble.config.voting.queries
    ensemble.folder.write_record(
        {
            "kind": ensemble.kind,
            "name": ensemble.config.name,
            "plan": {
                **summary,
                "phases": [{"phase": 0, "cohort_size": queries}],
            },
            "task": ensemble.model.task.value,
            "classes": ensemble.model.classes,
            "class_names": list(ensemble.class_names),
            "model": describe_model(
                ensemble.model,
                ensemble.config.data.to_extractor(),
                ensemble.public,
                ensemble.class_names,
            ),
            "config": with_absolute_paths(ensemble.config).model_dump(mode="json"),
        }
    )
