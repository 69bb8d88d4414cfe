"""People answer in Label Studio: tasks go out, annotations come in.

Tasks carry random keys; which record a key stands for is in the confidential folder alone,
so that neither a task nor what Label Studio logs of it names a record.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpal.data.labeling_state import read_labels
from dpal.data.sources import Source
from dpal.errors import LabelingProjectOpen
from dpal.files.atomic_writes import write_text
from dpal.labeling.label_aggregation import Opinion, UnlabeledReason, agree
from dpal.labeling.label_studio_api import LabelStudio
from dpal.labeling.label_studio_project import GONE, LabelingProject, ProjectContents
from dpal.labeling.label_studio_questions import Question
from dpal.labeling.label_studio_rules import Rules, Skipped
from dpal.labeling.labeling_figures import LabelingFigures, labeling_figures
from dpal.labeling.suggest_callback import Suggest, no_suggestions
from dpal.labels import Label

PROJECTS = "projects.json"
_LABEL, _DECIDE = "label", "decide"
_BYTES = 8


@dataclass(kw_only=True)
class Progress:
    """How far annotators are. Confidential, but for `news`.

    Attributes:
      labels: found so far, by record.
      skipped: records that get no label.
      waiting: records whose answers are missing.
      disputed: records that one person has to decide about.
      invalid: numbers of tasks with an answer that is not offered.
      opinions: of each record, before anybody decided what is disputed.
      news: what happened to the project; names no record and no number.
      partly: whether answers are read before there are enough of them.
    """

    labels: dict[str, Label] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    disputed: list[str] = field(default_factory=list)
    invalid: list[int] = field(default_factory=list)
    opinions: list[list[Opinion]] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    partly: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not (self.waiting or self.disputed)

    @property
    def figures(self) -> LabelingFigures:
        """How often they agree so far, and how long they take."""
        unlabeled = {
            UnlabeledReason.WAITING: len(self.waiting),
            UnlabeledReason.DISPUTED: len(self.disputed),
            UnlabeledReason.SKIPPED: len(self.skipped),
        }
        return labeling_figures(
            self.opinions,
            records=len(self.labels) + sum(unlabeled.values()),
            unlabeled=unlabeled,
        )


@dataclass(frozen=True, kw_only=True)
class LabelStudioLabeler:
    """Makes a project for a query, and reads it until every record has its label.

    Doing it again changes nothing, wherever it was killed: a project is known by a marker
    that was written down before it was made, a task by its key.

    Attributes:
      source: the pool.
      question: that is asked about each record.
      rules: about annotators.
      server: where.
      title: of the project.
      folder: where its keys are kept.
      delivered: where the answers are put.
      command: what looks at the project at once.
      webhook: address and headers that Label Studio calls; None for none.
      suggest: what annotators see filled in before they answer.
    """

    source: Source
    question: Question
    rules: Rules
    server: LabelStudio
    title: str
    folder: Path
    delivered: Path
    command: str
    webhook: tuple[str, Mapping[str, str]] | None = None
    suggest: Suggest = no_suggestions

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Returns the labels once they are complete; records that were skipped have none.

        Raises:
          LabelingProjectOpen: some are missing, or this is the first look, whatever is missing.
        """
        if self.delivered.exists():
            return read_labels(self.delivered)
        is_begun = bool(self._read())
        progress = self.look(ids)
        # Nobody may be selected, and a run that does not wait would tell.
        if not is_begun or not progress.complete:
            raise LabelingProjectOpen(self.place, self.command)
        return progress.labels

    @property
    def place(self) -> str:
        """Where people label."""
        number = self._read().get("projects", {}).get(_LABEL)
        return f"{self.server.url}/projects/{number}" if number else self.server.url

    def look(self, ids: Sequence[str], *, partly: bool = False) -> Progress:
        """Makes what is missing of the project, and reads what is there.

        Args:
          ids: of the query.
          partly: whether to read answers before there are enough of them; for people who want
            to know how far it is.

        Raises:
          LabelStudioError: the server does not do what was asked.
        """
        state, progress = self._state(ids), Progress(partly=partly)
        keys: dict[str, str] = state["keys"]
        contents = self._project(state, _LABEL, keys, {}, progress)
        disputed: dict[str, str] = {}
        for key, name in keys.items():
            opinions = contents.opinions.get(key, [])
            progress.opinions.append(opinions)
            given = [opinion.said for opinion in opinions]
            verdict = agree(given, annotators=self.rules.annotators, agreement=self.rules.agreement)
            again = verdict is UnlabeledReason.SKIPPED and self.rules.skipped is Skipped.ASK_AGAIN
            if again or verdict is UnlabeledReason.DISPUTED:
                disputed[key] = ", ".join(map(self._said, given))
            else:
                _note(name, verdict, progress)
        if disputed:
            self._decide(state, disputed, progress)
        return progress

    def clean(self) -> int:
        """Deletes the projects of this query; returns how many there were."""
        numbers = list(self._read().get("projects", {}).values())
        for number in numbers:
            self.server.delete_project(number)
        return len(numbers)

    def _decide(self, state: dict[str, Any], said: dict[str, str], progress: Progress) -> None:
        """Lets one person decide, in a second project that holds only what is disputed."""
        records = {key: state["keys"][key] for key in said}
        contents = self._project(state, _DECIDE, records, said, progress)
        for key, name in records.items():
            given = contents.opinions.get(key)
            # Whoever answered last has decided.
            _note(name, given[-1].said if given else UnlabeledReason.DISPUTED, progress)

    def _said(self, answer: Label | UnlabeledReason) -> str:
        return "skipped" if isinstance(answer, UnlabeledReason) else self.question.name_of(answer)

    def _project(
        self,
        state: dict[str, Any],
        role: str,
        records: Mapping[str, str],
        said: Mapping[str, str],
        progress: Progress,
    ) -> ProjectContents:
        """What a project of this query holds; one that is gone is made anew."""
        project = LabelingProject(
            server=self.server,
            source=self.source,
            question=self.question,
            rules=self.rules,
            title=self.title,
            marker=f"{state['marker']}-{role}",
            decides=role == _DECIDE,
            webhook=self.webhook,
            # Whoever decides sees what people said.
            suggest=no_suggestions if role == _DECIDE else self.suggest,
        )
        contents, saved = None, state["projects"].get(role)
        if saved is not None:
            contents = project.read(saved, records, said, progress.news, partly=progress.partly)
            if contents is None:
                progress.news.append(GONE)
        if contents is None:
            number = state["projects"][role] = project.found_or_made(progress.news)
            self._write(state)
            again = project.read(number, records, said, progress.news, partly=progress.partly)
            contents = again or ProjectContents()
        progress.invalid += contents.invalid
        return contents

    def _state(self, ids: Sequence[str]) -> dict[str, Any]:
        """Keys and projects; written down before anything is made from them."""
        state = self._read()
        if not state:
            keys = {secrets.token_hex(_BYTES): name for name in ids}
            state = {"marker": f"dpal-{secrets.token_hex(_BYTES)}", "projects": {}, "keys": keys}
            self._write(state)
        return state

    def _read(self) -> dict[str, Any]:
        path = self.folder / PROJECTS
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def _write(self, state: Mapping[str, Any]) -> None:
        write_text(self.folder / PROJECTS, json.dumps(state))


def _note(name: str, verdict: Label | UnlabeledReason, progress: Progress) -> None:
    if not isinstance(verdict, UnlabeledReason):
        progress.labels[name] = verdict
        return
    {
        UnlabeledReason.WAITING: progress.waiting,
        UnlabeledReason.SKIPPED: progress.skipped,
        UnlabeledReason.DISPUTED: progress.disputed,
    }[verdict].append(name)
