"""Which labeler answers a campaign's queries, and where its secrets are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self, cast

from prefect.blocks.system import Secret

from dpal.artifacts import VOTE_ACCOUNT, CampaignFolder, PhaseFolder
from dpal.config import CampaignConfig, LabelerKind
from dpal.config_any import parse_any
from dpal.config_data import ContentChoice
from dpal.config_pate import PateConfig
from dpal.config_public import PublicConfig
from dpal.data.catalog import Content, Role, Source, open_source
from dpal.errors import ConfigError, LabelStudioError
from dpal.labelers.label_studio import LabelStudioLabeler
from dpal.labelers.label_studio_api import LabelStudio
from dpal.labelers.questions import Question
from dpal.labels import Task
from tasks.allowing import require_allowed
from tasks.asking import has_server
from tasks.context import Campaign

TOKEN = "LABEL_STUDIO_API_KEY"  # noqa: S105  where it is, not what it is
TOKEN_BLOCK = "dpal-label-studio-token"  # noqa: S105
HOOK_SECRET = "DPAL_COLLECT_SECRET"  # noqa: S105
HOOK_HEADER = "X-Dpal-Secret"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What labelers need to know of a campaign, whether or not it runs.

    Attributes:
      config: its settings.
      pool: private records; of an improvement, the public ones that are labeled.
      classes: number of classes or labels.
      class_names: their names, or nothing.
    """

    config: CampaignConfig | PublicConfig
    pool: Source
    classes: int
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, campaign: Campaign) -> Self:
        """From a campaign that runs."""
        return cls(
            config=campaign.config,
            pool=campaign.pool,
            classes=campaign.plan.spec.model.classes,
            class_names=campaign.class_names,
        )

    @classmethod
    def recorded(cls, folder: CampaignFolder) -> Self:
        """From the record of one that waits."""
        record, config = folder.read_record(), recorded(folder)
        chosen = ContentChoice(record.get("content", config.data.content))
        place, column = config.data.pool, config.data.label_column
        if isinstance(config, PublicConfig):
            place, column = config.public.pool, config.public.label_column
        pool = open_source(
            place,
            Role.POOL,
            label_column=column,
            content=None if chosen is ContentChoice.AUTO else Content(chosen),
        )
        task = Task(record["task"]) if "task" in record else Task.SINGLE_LABEL
        return cls(
            config=config,
            pool=replace(pool, task=task),
            classes=record["classes"],
            class_names=tuple(record["class_names"]),
        )

    @property
    def kind(self) -> LabelerKind:
        """Who labels."""
        return self.config.labeler.kind

    @property
    def question(self) -> Question:
        """What is asked about each record."""
        return Question.about(self.pool, classes=self.classes, class_names=self.class_names)

    @property
    def folder(self) -> CampaignFolder:
        """The campaign's files."""
        return CampaignFolder(self.config.runtime.artifacts / self.config.name)


def recorded_config(folder: CampaignFolder) -> CampaignConfig:
    """The configuration that a campaign was last run with, wherever it is called from.

    Raises:
      ConfigError: it is an improvement's, which is no campaign.
    """
    found = recorded(folder)
    if isinstance(found, PublicConfig):
        raise ConfigError(
            f"{folder.name} is an improvement with public records and no campaign; name the "
            "campaign below it"
        )
    return found


def recorded(folder: CampaignFolder) -> CampaignConfig | PublicConfig:
    """The same, of a campaign or of an improvement."""
    record = folder.read_record()
    if record.get("kind") == VOTE_ACCOUNT:
        raise ConfigError(
            f"{folder.name} is an account of teachers (dpal vote) and no campaign; see dpal ledger "
            "show"
        )
    values = record["config"]
    values["runtime"]["artifacts"] = str(folder.root.resolve().parent)
    found = parse_any(values)
    if isinstance(found, PateConfig):
        raise ConfigError(
            f"{folder.name} is private voting and no campaign; see its report.md, and run its "
            "settings again to continue it"
        )
    require_allowed(found)  # recorded by a run that may not have been limited
    return found


@contextmanager
def opened_label_studio(asked: Asked, files: PhaseFolder) -> Iterator[LabelStudioLabeler]:
    """The labeler that asks people in Label Studio, with a connection for the block.

    Raises:
      LabelStudioError: its token is nowhere.
    """
    settings = asked.config.labeler.label_studio
    secret = os.environ.get(HOOK_SECRET)
    server = LabelStudio(settings.url, label_studio_token(settings.url))
    try:
        yield LabelStudioLabeler(
            source=asked.pool,
            question=asked.question,
            rules=settings.to_rules(),
            server=server,
            title=f"{settings.title or asked.config.name[:30]}, {files.root.name}",
            folder=files.query,
            delivered=files.labels,
            command=f"dpal label {asked.folder.root}",
            # Without a secret nothing would be taken from it; labels are noticed in a minute.
            webhook=(settings.webhook, {HOOK_HEADER: secret})
            if settings.webhook and secret
            else None,
        )
    finally:
        server.close()


def label_studio_token(url: str) -> str:
    """The token for Label Studio: from the environment, or from Prefect's secrets.

    Raises:
      LabelStudioError: it is in neither.
    """
    if token := os.environ.get(TOKEN):
        return token
    if has_server():
        try:
            return str(cast(Secret[str], Secret.load(TOKEN_BLOCK)).get())
        except ValueError:
            pass  # there is no such block
    raise LabelStudioError(
        url,
        "needs a token, and none is set",
        f"put it into the environment variable {TOKEN} or the Prefect Secret block {TOKEN_BLOCK}",
    )
