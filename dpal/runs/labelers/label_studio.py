"""People in Label Studio, by `labeler.kind: label_studio`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dpal.runs.labelers import NamedLabeler, register_labeler
from dpal.runs.labelers.labeler_base import LabelingProgress, LabelingProjects

if TYPE_CHECKING:
    from dpal.config.labeler import LabelerConfig
    from dpal.files.artifacts import PhaseFolder
    from dpal.labeling.label_studio import LabelStudioLabeler
    from dpal.runs.labeling_job import LabelingJob

_LOOK_SECONDS = 60.0  # whoever looks at a labeling project has it to itself


@register_labeler
class LabelStudioProject(NamedLabeler):
    """Makes a project for each query, and looks at it until every record is decided."""

    name = "label_studio"
    about = "a project there"
    place = "Label Studio"
    asks_people = True
    may_skip = True  # annotators skip what they cannot tell

    @property
    def projects(self) -> LabelingProjects:
        """Its own."""
        return self

    def answer(self, job: LabelingJob, files: PhaseFolder) -> None:
        """Looks once; the labels are kept by whoever finds them complete."""
        from dpal.errors import LabelingProjectOpen

        look = self.look(job, files)
        if not look.complete:
            raise LabelingProjectOpen(look.place, f"dpal label {job.folder.root}")

    def look(
        self, job: LabelingJob, files: PhaseFolder, *, partly: bool = False
    ) -> LabelingProgress:
        """Looks at a query's project, and keeps its labels once they are complete.

        Whatever is wrong with the server is told and does not end the waiting: the next look,
        within a minute, tries again.
        """
        from dpal.data.labeling_state import read_selection, write_labels
        from dpal.errors import CampaignBusy, LabelStudioError
        from dpal.labeling.labeling_figures import write_labeling_figures
        from dpal.ledger.folder_lock import lock_folder
        from dpal.runs.progress_logging import notify

        phase, place, progress = files.root.name, job.config.labeler.label_studio.url, None
        try:
            with lock_folder(files.query, patience=_LOOK_SECONDS):
                if files.labels.exists():
                    return LabelingProgress(place=place, complete=True)
                with self._opened(job, files) as labeler:
                    progress = labeler.look(read_selection(files.selection), partly=partly)
                    place = labeler.place
                if progress.complete:
                    write_labeling_figures(progress.figures, files.labeling)
                    write_labels(progress.labels, files.labels)
        except CampaignBusy:  # somebody else looks, and for long
            return LabelingProgress(place=place, complete=files.labels.exists())
        except LabelStudioError as trouble:
            notify(f"{phase}: {trouble}")
            return LabelingProgress(place=place, complete=False, trouble=str(trouble))
        for sentence in progress.news:
            notify(f"{phase}: {sentence}")
        if progress.invalid and not progress.complete:
            notify(f"{phase}: a task in Label Studio has an answer that is not offered; "
                f"`dpal label {job.folder.root}` says which, correct it there")  # fmt: skip
        return LabelingProgress(place=place, complete=progress.complete, progress=progress)

    def delete_project(self, job: LabelingJob, files: PhaseFolder) -> int:
        """Deletes the projects of a query; returns how many there were."""
        with self._opened(job, files) as labeler:
            return labeler.clean()

    def _opened(
        self, job: LabelingJob, files: PhaseFolder
    ) -> AbstractContextManager[LabelStudioLabeler]:
        """A connection to the server of a run that asks there.

        Raises:
          ConfigError: it asks somebody else; what it says of Label Studio was never compared with
            the list of the data's owner.
        """
        from dpal.errors import ConfigError
        from dpal.runs.label_studio_access import opened_label_studio

        kind = job.config.labeler.kind
        if kind != self.name:
            raise ConfigError.before_release(
                f"labeler.kind of {job.config.name} is {kind}, so that Label Studio is not asked; "
                f"set labeler.kind: {self.name} and run it again"
            )
        return opened_label_studio(job, files)

    def findings(self, settings: LabelerConfig, /) -> Iterator[tuple[str, str]]:
        """Whether Label Studio answers and takes our token."""
        import httpx

        from dpal.errors import DpalError
        from dpal.labeling.label_studio_api import LabelStudio
        from dpal.runs.label_studio_access import label_studio_token

        url = settings.label_studio.url
        try:
            server = LabelStudio(url, label_studio_token(url))
            try:
                server.find_project("dpal doctor looks for nothing")
            finally:
                server.close()
        except (DpalError, httpx.HTTPError) as error:
            advice = "dpal serve --label-studio starts one; docs/labeling.md"
            yield str(error) or type(error).__name__, advice
            return
        yield f"{url} answers and takes the token", ""
