"""Kinds of runs: what commands, deployments and forms need to know of each.

Nobody else asks which kind a run is of. Whatever is the same for all is derived from `KINDS`:
parsing, templates, deployments, the list of what Prefect may run, commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import KIND, PublicConfig, parse_public
from dpal.config.voting import PATE, PateConfig, parse_pate
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder

if TYPE_CHECKING:
    from dpal.labelers import Labeler
    from dpal.runs.run import Run
    from dpal.runs.tracked import Tracked

AnyConfig = CampaignConfig | PublicConfig | PateConfig


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
      template: file below `flows/configs` that `dpal init` writes.
      does: what a run of it does, as a sentence.
      does_named: the same of one named run; `{name}` stands for it.
    """

    name: str
    noun: str
    settings: type[AnyConfig]
    parse: Callable[[Mapping[str, Any]], AnyConfig]
    entrypoint: str
    steps: str
    template: str
    does: str
    does_named: str

    @property
    def line(self) -> str:
        """The line of a YAML file that says this kind; a campaign needs none."""
        return "" if self is CAMPAIGN else f"kind: {self.name}\n"

    def use_cases(self) -> UseCases:
        """What a run of it does, step by step; imports what that needs."""
        return cast("UseCases", import_module(self.steps))


CAMPAIGN = RunKind(
    name="campaign",
    noun="campaign",
    settings=CampaignConfig,
    parse=parse_config,
    entrypoint="flows.campaign.run_campaign",
    steps="dpal.runs.campaign",
    template="digits.yaml",
    does="Runs a campaign, or continues it from where it stands.",
    does_named="Runs the campaign {name}, or continues it from where it stands.",
)
IMPROVEMENT = RunKind(
    name=KIND,
    noun="improvement with public records",
    settings=PublicConfig,
    parse=parse_public,
    entrypoint="flows.public.improve_model",
    steps="dpal.runs.improvement",
    template="digits-public.yaml",
    does="Improves a private model with labels of public records.",
    does_named="Improves a private model as {name}, or goes on from where that stands.",
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
)
KINDS = {kind.name: kind for kind in (CAMPAIGN, IMPROVEMENT, VOTING)}


def kind_in(values: Mapping[str, Any]) -> RunKind:
    """The kind that settings say, before anything is made of them.

    Raises:
      ConfigError: there is no such kind.
    """
    name = values.get("kind")
    if name is None:
        return CAMPAIGN
    if not isinstance(name, str) or name not in KINDS or name == CAMPAIGN.name:
        others = " or ".join(kind for kind in KINDS if kind != CAMPAIGN.name)
        raise ConfigError(f"kind cannot be {name!r}; leave it out for a campaign, or use {others}")
    return KINDS[name]


def kind_of(config: AnyConfig) -> RunKind:
    """The kind that settings are of."""
    return next(kind for kind in KINDS.values() if isinstance(config, kind.settings))


def parse_any(values: Mapping[str, Any]) -> AnyConfig:
    """Checks settings of whatever kind.

    Raises:
      ConfigError: as the kind's own `parse`, or there is no such kind.
    """
    return kind_in(values).parse(values)


def folder_of(config: AnyConfig) -> CampaignFolder:
    """The folder of the run that settings name."""
    return CampaignFolder(config.runtime.artifacts / config.name)
