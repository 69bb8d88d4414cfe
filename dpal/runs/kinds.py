"""Kinds of runs: what commands, deployments and forms need to know of each.

Nobody else asks which kind a run is of. Whatever is the same for all is derived from `KINDS`:
parsing, templates, deployments, the list of what Prefect may run, commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.config.briefs import Brief, CampaignBrief, ImprovementBrief, VotesBrief, VotingBrief
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import KIND, PublicConfig, parse_public
from dpal.config.pate import PATE, PateConfig, parse_pate
from dpal.config.runtime import RunConfig
from dpal.config.vote import VOTE, VoteConfig, parse_vote
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import CampaignFolder
from dpal.planning.public_selection import PublicSelectionMethod
from dpal.plugins import load_plugins

if TYPE_CHECKING:
    from dpal.runs.run import Run
    from dpal.runs.use_cases import UseCases


@dataclass(frozen=True, kw_only=True)
class InBooks:
    """How a book of results fills the settings of a kind of run that ends with a model.

    Attributes:
      labels: the setting that says how many labels there are; empty where a schedule buys them, by
        any method.
      public_pool: whether it labels public records, in public.pool.
      seeds: settings that a cell's seed is written to.
    """

    labels: str = ""
    public_pool: bool = False
    seeds: tuple[str, ...] = ("model.seed",)

    @property
    def buys_by_schedule(self) -> bool:
        """Whether a schedule says how many labels are bought, and when."""
        return not self.labels


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """One kind of run.

    Attributes:
      name: as settings say it by `kind`, and as its flow and its deployment are called.
      in_sentences: what a person calls a run of it, with its article.
      in_titles: the same, without one.
      settings: the schema of its settings.
      parse: checks what a person wrote.
      entrypoint: module and name of its flow.
      steps: module and name of its `UseCases`.
      views: module of what `dpal plan` shows of it.
      alternatives: settings, and their values, that `dpal plan --compare` sets side by side.
      telling: numbers of a plan's summary that tell plans apart.
      recorded: the kind as records of its folders say it, where that is not its name.
      redraws: whether its trainings can be thrown away and paid again, one by one.
      by_cohort: whether its phases say what each cohort has lost.
      of_ballots: whether what is private to it are ballots that others cast, and no records.
      template: file below `flows/configs` that `dpal init` writes.
      for_own_data: lines of the template that suit the sample data alone, and what `dpal init`
        writes in their place.
      in_books: how a book of results fills its settings; None where a book has no cells of it.
      short_form: what a person decides of it; None where a person sees every setting.
      short_form_settings: module and name of what makes settings of that.
      does: what a run of it does, as a sentence.
      does_named: the same of one named run; `{name}` stands for it.
    """

    name: str
    in_sentences: str
    in_titles: str
    settings: type[RunConfig]
    parse: Callable[[Mapping[str, Any]], RunConfig]
    entrypoint: str
    steps: str
    template: str
    does: str
    does_named: str
    views: str = "flows.cli.plan_view"
    alternatives: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    telling: Sequence[str] = ()
    recorded: str = ""
    redraws: bool = False
    by_cohort: bool = False
    of_ballots: bool = False
    for_own_data: Mapping[str, str] = field(default_factory=dict)
    in_books: InBooks | None = None
    short_form: type[Brief] | None = None
    short_form_settings: str = ""

    @property
    def line(self) -> str:
        """The line of a YAML file that says this kind; a campaign needs none."""
        return "" if self is CAMPAIGN else f"kind: {self.name}\n"

    def use_cases(self) -> UseCases[Any, Run[Any]]:
        """What a run of it does, step by step; imports what that needs."""
        module, _, name = self.steps.rpartition(".")
        return cast("UseCases[Any, Run[Any]]", getattr(import_module(module), name)())


CAMPAIGN = RunKind(
    name="campaign",
    in_sentences="a campaign",
    in_titles="campaign",
    settings=CampaignConfig,
    parse=parse_config,
    entrypoint="flows.campaign.run_campaign",
    steps="dpal.runs.campaign_use_cases.CampaignRuns",
    template="digits.yaml",
    does="Runs a campaign, or continues it from where it stands.",
    does_named="Runs the campaign {name}, or continues it from where it stands.",
    views="flows.cli.plan_campaign",
    redraws=True,
    by_cohort=True,
    # The sample names a score, to show a selection; whether one pays on other data is open.
    for_own_data={"acquisition: entropy": "acquisition: auto   "},
    in_books=InBooks(),
    short_form=CampaignBrief,
    short_form_settings="dpal.runs.settings_of_briefs.campaign_settings",
)
IMPROVEMENT = RunKind(
    name=KIND,
    in_sentences="an improvement with public records",
    in_titles="improvement",
    settings=PublicConfig,
    parse=parse_public,
    entrypoint="flows.public.improve_model",
    steps="dpal.runs.improvement_use_cases.ImprovementRuns",
    template="digits-public.yaml",
    does="Improves a private model with labels of public records.",
    does_named="Improves a private model as {name}, or goes on from where that stands.",
    alternatives={"choice.method": tuple(PublicSelectionMethod)},
    telling=("labels", "start_epsilon"),
    in_books=InBooks(labels="choice.labels", public_pool=True),
    short_form=ImprovementBrief,
    short_form_settings="dpal.runs.settings_of_briefs.improvement_settings",
)
VOTING = RunKind(
    name=PATE,
    in_sentences="private voting of teachers",
    in_titles="private voting",
    settings=PateConfig,
    parse=parse_pate,
    entrypoint="flows.pate.vote_and_learn",
    steps="dpal.runs.pate_use_cases.VotingRuns",
    template="digits-pate.yaml",
    does="Lets teachers on private records vote on public ones, and a student learn from that.",
    does_named="Lets teachers of {name} vote, and a student learn, or goes on from there.",
    alternatives={"voting.mechanism": tuple(Mechanism)},
    telling=("queries", "sigma"),
    in_books=InBooks(
        labels="voting.queries", public_pool=True, seeds=("model.seed", "teachers.seed")
    ),
    short_form=VotingBrief,
    short_form_settings="dpal.runs.settings_of_briefs.voting_settings",
)
VOTES = RunKind(
    name=VOTE,
    in_sentences="an account of teachers",
    in_titles="account of teachers",
    settings=VoteConfig,
    parse=parse_vote,
    entrypoint="flows.whole_run.vote",
    steps="dpal.runs.vote_use_cases.VoteRuns",
    template="votes.yaml",
    does="Turns ballots of teachers into released labels, under an account in the ledger.",
    does_named="Releases votes under the account {name}; the same ballots again change nothing.",
    alternatives={"voting.mechanism": tuple(Mechanism)},
    telling=("queries", "sigma"),
    recorded="voting",
    of_ballots=True,
    short_form=VotesBrief,
    short_form_settings="dpal.runs.settings_of_briefs.votes_settings",
)
KINDS = {kind.name: kind for kind in (CAMPAIGN, IMPROVEMENT, VOTING, VOTES)}


def kind_in(values: Mapping[str, Any]) -> RunKind:
    """The kind that settings say, before anything is made of them.

    Raises:
      ConfigError: there is no such kind.
    """
    name = values.get("kind")
    if name is None:
        return CAMPAIGN
    if not isinstance(name, str) or name not in KINDS or name == CAMPAIGN.name:
        *first, last = (kind for kind in KINDS if kind != CAMPAIGN.name)
        others = f"{', '.join(first)} or {last}"
        raise ConfigError(f"kind cannot be {name!r}; leave it out for a campaign, or use {others}")
    return KINDS[name]


def kind_of(config: RunConfig) -> RunKind:
    """The kind that settings are of."""
    return next(kind for kind in KINDS.values() if isinstance(config, kind.settings))


def recorded_kind(folder: CampaignFolder) -> RunKind:
    """The kind of the run that a folder is of.

    Raises:
      DataError: the folder has no record that can be read, or is of a kind unknown here.
    """
    name = folder.read_record().get("kind", CAMPAIGN.name)
    if (kind := _recorded_as(name)) is None:
        raise DataError(f"{folder.root} is of a run of kind {name!r}, which is not known here")
    return kind


def require_model(folder: CampaignFolder) -> None:
    """Requires that a run has a model, be it not its last.

    Raises:
      DataError: it has none yet, or its kind never has one.
    """
    if folder.finished_phases():
        return
    kind = _recorded_as(folder.read_record().get("kind", CAMPAIGN.name))
    if kind is not None and not kind.use_cases().has_model:
        raise DataError(
            f"{folder.root} is of {kind.in_sentences}, which releases labels and no model; name a "
            "run that trains one"
        )
    raise DataError(
        f"{folder.root} has no finished phase, and so no model yet; finish it with the same `dpal "
        "run`"
    )


def holds_ballots(folder: CampaignFolder) -> bool:
    """Whether a folder is of a run on ballots that others cast; not, where its kind is unknown."""
    kind = _recorded_as(folder.read_record().get("kind", CAMPAIGN.name))
    return kind is not None and kind.of_ballots


def _recorded_as(name: object) -> RunKind | None:
    return next((kind for kind in KINDS.values() if name == (kind.recorded or kind.name)), None)


def parse_as(kind: RunKind, config: RunConfig | Mapping[str, Any]) -> Any:
    """Settings of one kind, as they come from a form or a deployment.

    Raises:
      ConfigError: they cannot be settings of that kind.
    """
    return config if isinstance(config, kind.settings) else kind.parse(cast("Any", config))


def campaign_of(config: RunConfig) -> CampaignConfig:
    """The same settings, if they are a campaign's.

    Raises:
      ConfigError: they are not.
    """
    if not isinstance(config, CampaignConfig):
        raise ConfigError(
            f"{config.name} is {kind_of(config).in_sentences} and no campaign, which this is for; "
            "name a campaign, such as the one below it"
        )
    return config


def parse_any(values: Mapping[str, Any]) -> RunConfig:
    """Checks settings of whatever kind.

    Raises:
      ConfigError: as the kind's own `parse`, or there is no such kind, or what another package
        offers cannot be imported.
    """
    load_plugins()
    return kind_in(values).parse(values)


def folder_of(config: RunConfig) -> CampaignFolder:
    """The folder of the run that settings name."""
    return CampaignFolder(config.runtime.artifacts / config.name)
