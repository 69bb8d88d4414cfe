"""One labeling project: its tasks go out, the annotations come back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpal.data.sources import Content, Source
from dpal.labeling.label_aggregation import Opinion, UnlabeledReason
from dpal.labeling.label_studio_api import LabelStudio
from dpal.labeling.label_studio_questions import KEY, SAID, Question
from dpal.labeling.label_studio_rules import Media, Rules, Skipped
from dpal.labeling.record_display import pictures_of, shown_lines, texts_of
from dpal.labeling.suggest_callback import Suggest, no_suggestions
from dpal.labels import Label

GONE = (
    "a labeling project was deleted and is made anew; the annotations in it are lost, the "
    "campaign is not"
)
UNCALLED = (
    "Label Studio does not take the webhook, so labels are noticed by the next look; to calls of a "
    "private address it agrees when it is started with SSRF_PROTECTION_ENABLED=false"
)
_LONGEST = 1e9  # seconds; nobody looks at a record for longer
REFILLED = "tasks were missing from a labeling project and are imported again"


@dataclass(kw_only=True)
class ProjectContents:
    """What a project holds.

    Attributes:
      opinions: by key, in the order of time, the last one of each annotator.
      invalid: numbers of tasks with an answer that is not offered.
    """

    opinions: dict[str, list[Opinion]] = field(default_factory=dict)
    invalid: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LabelingProject:
    """A project in Label Studio, found by a marker in its description.

    Attributes:
      server: where.
      source: the pool whose records are shown.
      question: that is asked about each.
      rules: about annotators.
      title: of the project.
      marker: by which it is found again, whenever its maker was killed.
      decides: whether one person decides here what others dispute.
      webhook: address and headers that Label Studio calls; None for none.
      suggest: what annotators see filled in before they answer.
    """

    server: LabelStudio
    source: Source
    question: Question
    rules: Rules
    title: str
    marker: str
    decides: bool
    webhook: tuple[str, Mapping[str, str]] | None
    suggest: Suggest = no_suggestions

    def found_or_made(self, news: list[str]) -> int:
        """The number of the project, which is made if it is not there.

        Args:
          news: gets a sentence if the server will not call us.
        """
        number = self.server.find_project(self.marker)
        if number is None:
            number = self._made()
        if self.webhook is not None and not self.server.call_back(number, *self.webhook):
            news.append(UNCALLED)
        return number

    def _made(self) -> int:
        return self.server.create_project(
            title=f"{self.title}, to decide" if self.decides else self.title,
            description=f"Made by dpal for a campaign; please leave this line. {self.marker}",
            label_config=self.question.labeling_config(decides=self.decides),
            maximum_annotations=self.wanted,
            show_skip_button=not self.decides or self.rules.skipped is Skipped.RETIRE,
            skip_queue="IGNORE_SKIPPED",
            enable_empty_annotation=False,
            show_collab_predictions=not self.decides,  # what is suggested, if anything is
        )

    @property
    def wanted(self) -> int:
        """Answers for each task."""
        return 1 if self.decides else self.rules.annotators

    def read(
        self,
        number: int,
        records: Mapping[str, str],
        said: Mapping[str, str],
        news: list[str],
        *,
        partly: bool,
    ) -> ProjectContents | None:
        """Imports tasks that are missing and reads the answers.

        Args:
          number: of the project.
          records: the record that each key stands for.
          said: by key, what annotators said before; empty unless one person decides.
          news: gets a sentence if tasks had to be imported again.
          partly: whether to read them while there are fewer than are needed; else nothing is
            downloaded before.

        Returns:
          What it holds; None if the project is gone.
        """
        about = self.server.project(number)
        if about is None:
            return None
        there, contents = int(about.get("task_number") or 0), ProjectContents()
        given = int(about.get("total_annotations_number") or 0)
        given += int(about.get("skipped_annotations_number") or 0)
        enough = partly or given >= self.wanted * len(records)
        if there >= len(records) and not enough:
            return contents
        exported: set[str] = set()
        for task in self.server.export(number) if there else ():
            key = task["data"].get(KEY)
            if key in records:  # others are somebody's own
                exported.add(key)
                self._read_task(key, task, contents)
        missing = [key for key in records if key not in exported]
        if missing:
            if there and given:
                news.append(REFILLED)
            tasks = self._shown(number, {key: records[key] for key in missing})
            suggested = self._suggested({key: records[key] for key in missing})
            self.server.add_tasks(
                number, [{**task, **_said(task, said)} for task in tasks], suggested
            )
        return contents

    def _read_task(self, key: str, task: Mapping[str, Any], contents: ProjectContents) -> None:
        latest: dict[str, Opinion] = {}
        for annotation in sorted(
            task["annotations"], key=lambda annotation: (annotation["updated_at"], annotation["id"])
        ):
            answer: Label | UnlabeledReason | None = UnlabeledReason.SKIPPED
            if not annotation.get("was_cancelled"):
                answer = self.question.read(annotation["result"])
            elif self.decides and self.rules.skipped is Skipped.ASK_AGAIN:
                self.server.delete_annotation(annotation["id"])  # else nobody is asked again
                continue
            if answer is None:
                contents.invalid.append(int(task["id"]))
                continue
            who = _annotator(annotation.get("completed_by"))
            latest.pop(who, None)
            latest[who] = Opinion(
                said=answer, annotator=who, seconds=_seconds(annotation.get("lead_time"))
            )
        # A task that was imported twice counts as one.
        contents.opinions.setdefault(key, []).extend(latest.values())

    def _shown(self, number: int, records: Mapping[str, str]) -> list[dict[str, str]]:
        """The data of tasks: a key, and what a person sees of the record."""
        keys = {name: key for key, name in records.items()}
        if self.source.content is Content.IMAGE:
            return [
                {KEY: keys[name], "image": self._picture(number, keys[name], picture)}
                for name, picture in pictures_of(self.source, list(keys))
            ]
        if self.source.content is Content.TEXT:
            texts = texts_of(self.source, list(keys))
            return [
                {KEY: key, **dict(zip(self.question.texts, texts[name], strict=True))}
                for name, key in keys.items()
            ]
        lines = shown_lines(self.source, list(keys))
        return [{KEY: key, "record": lines.get(name) or name} for name, key in keys.items()]

    def _suggested(self, records: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Predictions, by the key of a task; without a score, which would say why it is asked."""
        labels = self.suggest(list(records.values()))
        return {
            key: {"model_version": "dpal", "result": [self.question.answer(labels[name])]}
            for key, name in records.items()
            if name in labels
        }

    def _picture(self, number: int, key: str, picture: bytes) -> str:
        if self.rules.media is Media.HOSTED:
            return self.server.upload(number, f"{key}.png", picture)
        return f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"


def _said(task: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    return {SAID: said[task[KEY]]} if task[KEY] in said else {}


def _annotator(who: object) -> str:
    """Servers tell a number or a whole person."""
    return str(who.get("id") if isinstance(who, dict) else who)


def _seconds(lead_time: object) -> float | None:
    """How long an annotation was worked on; None where that was not measured."""
    if isinstance(lead_time, bool) or not isinstance(lead_time, int | float):
        return None
    return float(lead_time) if 0 < lead_time < _LONGEST else None
