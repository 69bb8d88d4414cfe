"""Kinds of runs: what commands, deployments and forms need to know of each.

Nobody else asks which kind a run is of. Whatever is the same for all is derived from `KINDS`:
parsing, templates, deployments, the list of what Prefect may run, commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import KIND, PublicConfig, parse_public
from dpal.config.runtime import RunConfig
from dpal.config.votes import VOTE, VoteConfig, parse_vote
from dpal.config.voting import PATE, PateConfig, parse_pate
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.planning.public_selection import Method

if TYPE_CHECKING:
    from dpal.labelers import Labeler
    from dpal.runs.results import Shown
    from dpal.runs.run import Run
    from dpal.runs.sweeps import Member
    from dpal.runs.tracked import Tracked


class UseCases(Protocol):
    """The module of a kind: what a run does between settings and certificate.

    All of it may be called again after a crash, and changes nothing where it was done.
    """

    def plan(self, config: Any, /) -> Run[Any]:
        """Looks at the data and certifies a plan. Releases nothing, writes nothing."""

    def prepare(self, config: Any, /) -> Run[Any]:
        """The same, at the start of a run: says what it found."""

    def advance(self, run: Any, labeler: Labeler | None = None, /) -> Run[Any]:
        """Holds the plan and does everything that is not done yet, up to the certificate."""

    def certify(self, run: Any, /) -> object:
        """Writes certificate.json from what the ledger holds."""

    def results(self, folder: CampaignFolder, /) -> Shown:
        """What a finished run has to show, in reading order."""

    def sweep_member(self, values: dict[str, Any], /) -> dict[str, Any]:
        """Settings of one run of a sweep, under a name that follows from all of them."""

    def write_sweep(
        self, folder: Path, finished: Sequence[Member], refused: Sequence[Mapping[str, Any]], /
    ) -> Shown:
        """Writes results, report and figures of a sweep."""

    def tracked_of(self, run: Any, /) -> Tracked:
        """What a tracking server is told of a finished run."""


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """One kind of run.

    Attributes:
      name: as settings say it by `kind`, and as its flow and its deployment are called.
      noun: what a person calls a run of it.
      settings: the schema of its settings.
      parse: checks what a person wrote.
      entrypoint: module and name of its flow.
      steps: module of its use cases, as `UseCases` says.
      views: module of what `dpal plan` shows of it.
      alternatives: settings, and their values, that `dpal plan --compare` sets side by side.
      telling: numbers of a plan's summary that tell plans apart.
      template: file below `flows/configs` that `dpal init` writes.
      does: what a run of it does, as a sentence.
      does_named: the same of one named run; `{name}` stands for it.
    """

    name: str
    noun: str
    settings: type[RunConfig]
    parse: Callable[[Mapping[str, Any]], RunConfig]
    entrypoint: str
    steps: str
    template: str
    does: str
    does_named: str
    views: str = "flows.cli.plan_any"
    alternatives: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    telling: Sequence[str] = ()

    @property
    def line(self) -> str:
        """The line of a YAML file that says this kind; a campaign needs none."""
        return "" if self is CAMPAIGN else f"kind: {self.name}\n"

    def use_cases(self) -> UseCases:
        """What a run of it does, step by step; imports what that needs."""
        return cast("UseCases", import_module(self.steps))


CAMPAIGN = RunKind(
    name="campaign",
    noun="a campaign",
    settings=CampaignConfig,
    parse=parse_config,
    entrypoint="flows.campaign.run_campaign",
    steps="dpal.runs.campaign",
    template="digits.yaml",
    does="Runs a campaign, or continues it from where it stands.",
    does_named="Runs the campaign {name}, or continues it from where it stands.",
    views="flows.cli.plan_campaign",
)
IMPROVEMENT = RunKind(
    name=KIND,
    noun="an improvement with public records",
    settings=PublicConfig,
    parse=parse_public,
    entrypoint="flows.public.improve_model",
    steps="dpal.runs.improvement",
    template="digits-public.yaml",
    does="Improves a private model with labels of public records.",
    does_named="Improves a private model as {name}, or goes on from where that stands.",
    alternatives={"choice.method": tuple(Method)},
    telling=("labels", "start_epsilon"),
)
VOTING = RunKind(
    name=PATE,
    noun="private voting of teachers",
    settings=PateConfig,
    parse=parse_pate,
    entrypoint="flows.pate.vote_and_learn",
    steps="dpal.runs.voting",
    template="digits-pate.yaml",
    does="Lets teachers on private records vote on public ones, and a student learn from that.",
    does_named="Lets teachers of {name} vote, and a student learn, or goes on from there.",
    alternatives={"voting.mechanism": tuple(Mechanism)},
    telling=("queries", "sigma"),
)
VOTES = RunKind(
    name=VOTE,
    noun="an account of teachers",
    settings=VoteConfig,
    parse=parse_vote,
    entrypoint="flows.whole_run.vote",
    steps="dpal.runs.votes",
    template="votes.yaml",
    does="Turns ballots of teachers into released labels, under an account in the ledger.",
    does_named="Releases votes under the account {name}; the same ballots again change nothing.",
    alternatives={"voting.mechanism": tuple(Mechanism)},
    telling=("queries", "sigma"),
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


def campaign_of(config: RunConfig) -> CampaignConfig:
    """The same settings, if they are a campaign's.

    Raises:
      ConfigError: they are not.
    """
    if not isinstance(config, CampaignConfig):
        raise ConfigError(
            f"{config.name} is {kind_of(config).noun} and no campaign; name a campaign, such as "
            "the one below it"
        )
    return config


def parse_any(values: Mapping[str, Any]) -> RunConfig:
    """Checks settings of whatever kind.

    Raises:
      ConfigError: as the kind's own `parse`, or there is no such kind.
    """
    return kind_in(values).parse(values)


def folder_of(config: RunConfig) -> CampaignFolder:
    """The folder of the run that settings name."""
    return CampaignFolder(config.runtime.artifacts / config.name)
