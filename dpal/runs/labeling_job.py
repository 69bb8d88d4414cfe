"""What labelers need to know of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from dpal.config.campaign import CampaignConfig
from dpal.config.data import ContentChoice
from dpal.config.improvement import PublicConfig
from dpal.config.validation import held_out_share
from dpal.data.sources import Content, Role, Source, open_source
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.label_studio_questions import Question
from dpal.labels import Task
from dpal.runs.campaign import Campaign
from dpal.runs.labelers import NamedLabeler, labeler_of
from dpal.runs.open_sources import holding_out
from dpal.runs.read_recorded_settings import settings_that_label


@dataclass(frozen=True, kw_only=True)
class LabelingJob:
    """What labelers need to know of a run, whether or not it goes on.

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
        record, config = folder.read_record(), settings_that_label(folder)
        chosen = ContentChoice(record.get("content", config.data.content))
        place, column = config.labeled
        pool = open_source(
            place,
            Role.POOL,
            label_column=column,
            content=None if chosen is ContentChoice.AUTO else Content(chosen),
        )
        # Rows are counted among the pool's own.
        pool = holding_out(pool, held_out_share(config.data, config.validation))
        task = Task(record["task"]) if "task" in record else Task.SINGLE_LABEL
        return cls(
            config=config,
            pool=replace(pool, task=task),
            classes=record["classes"],
            class_names=tuple(record["class_names"]),
        )

    @property
    def labeler(self) -> NamedLabeler:
        """Who labels."""
        return labeler_of(self.config.labeler)

    @property
    def question(self) -> Question:
        """What is asked about each record."""
        return Question.about(self.pool, classes=self.classes, class_names=self.class_names)

    @property
    def folder(self) -> CampaignFolder:
        """The campaign's files."""
        return CampaignFolder(self.config.runtime.artifacts / self.config.name)
