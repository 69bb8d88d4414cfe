"""What everybody may ask of a labeler that settings name, instead of which one it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from dpal.config.labeler import LabelerConfig
    from dpal.files.artifacts import CampaignFolder, PhaseFolder
    from dpal.labeling import Labeler
    from dpal.labeling.label_form import Form
    from dpal.labeling.label_studio import Progress
    from dpal.runs.labeling_job import LabelingJob


@dataclass(frozen=True, kw_only=True)
class LabelingProgress:
    """How far people are with a query, in the project where they label it.

    Attributes:
      place: where people label.
      complete: whether all labels are there, and kept.
      progress: how far people are; confidential. None if that could not be seen.
      trouble: what is wrong with the server; None if nothing is.
    """

    place: str
    complete: bool
    progress: Progress | None = None
    trouble: str | None = None


class LabelingProjects(Protocol):
    """Projects, one or more a query, in which people label together."""

    def look(
        self, job: LabelingJob, files: PhaseFolder, *, partly: bool = False
    ) -> LabelingProgress:
        """Looks at the project of a query, and keeps its labels once they are complete.

        Args:
          job: who labels what.
          files: of the phase.
          partly: whether answers are counted before there are enough of them.
        """

    def delete_project(self, job: LabelingJob, files: PhaseFolder) -> int:
        """Deletes the projects of a query; returns how many there were."""


class NamedLabeler:
    """A labeler that settings name. Its module is light: what labels is imported in its methods.

    Attributes:
      name: as settings say it.
      about: what it is, in a few words, for forms.
      place: where its labels come from, as a refusal says it.
      most_records: that one query may have; None for any number.
      needs_teachers: whether settings name finished private voting for it.
      reads_pool: whether it reads the pool's own labels, which must be there beforehand.
      takes_answers: whether answers in a person's file, or of a program, may be handed in.
      may_skip: whether a record may stay without a label; it leaves the pool then.
      on_page: whether people answer a form on the page of the run.
      asks_people: whether people answer, who may see suggestions.
    """

    name: str
    about: str
    place: ClassVar[str]
    most_records: int | None = None
    needs_teachers: ClassVar[bool] = False
    reads_pool: ClassVar[bool] = False
    takes_answers: ClassVar[bool] = False
    may_skip: bool = False
    on_page: ClassVar[bool] = False
    asks_people: ClassVar[bool] = False

    def require_settings(self, settings: LabelerConfig, /) -> None:
        """Requires that the settings have what it needs; the sentence is a person's to read.

        Raises:
          ValueError: they have not.
        """
        if self.needs_teachers != (settings.teachers is not None):
            raise ValueError(
                "labeler.kind teachers and labeler.teachers (the name of finished private voting) "
                "go together; set both or neither"
            )
        if settings.suggest and not self.asks_people:
            raise ValueError(
                "labeler.suggest shows people what the last model says, and labeler.kind "
                f"{self.name} asks nobody; leave it out, or use file, form or label_studio"
            )

    def require_answers(self, job: LabelingJob, planned: Mapping[int, int]) -> None:
        """Requires, before anything is held, that it can answer all that a plan could ask.

        Args:
          job: who labels what.
          planned: labels that the plan could buy, by phase.

        Raises:
          DpalError: it cannot. Nothing was released.
        """

    def labeler(self, job: LabelingJob, files: PhaseFolder) -> Labeler:
        """Makes the labeler of one query.

        Args:
          job: who labels what.
          files: of the phase whose selection is made.
        """
        raise NotImplementedError(f"{type(self).__name__} makes no labeler")

    def answer(self, job: LabelingJob, files: PhaseFolder) -> None:
        """Writes the labels of a selection, each checked.

        Raises:
          LabelError: an answer is missing or is no label. Nothing was merged.
          LabelsPending: people are still at work.
        """
        from dpal.data.labeling_state import read_selection, write_labels
        from dpal.labeling.checked_labels import ProgramLabeler

        checked = ProgramLabeler(
            self.labeler(job, files), job.classes, job.pool.task, may_skip=self.may_skip
        )
        write_labels(checked.label(read_selection(files.selection)), files.labels)

    @property
    def projects(self) -> LabelingProjects | None:
        """Where people label together; None where they do not."""
        return None

    def form(self, job: LabelingJob, files: PhaseFolder) -> Form | None:
        """The form that people fill in on the page of the run; None where there is none."""
        return None

    def what_to_do(self, folder: CampaignFolder, files: PhaseFolder) -> str:
        """What a person has to do for the labels of an open query, after the campaign's name."""
        return f"takes its labels from {self.place}; run its settings again to go on"

    def findings(self, settings: LabelerConfig, /) -> Iterator[tuple[str, str]]:
        """What `dpal doctor` finds of it: how it stands, and advice, or nothing if all is well."""
        return iter(())
