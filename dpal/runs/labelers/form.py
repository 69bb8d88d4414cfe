"""A form on the page of the run, by `labeler.kind: form`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpal.runs.labelers import NamedLabeler, register_labeler

if TYPE_CHECKING:
    from dpal.config.labeler import LabelerConfig
    from dpal.files.artifacts import CampaignFolder, PhaseFolder
    from dpal.labeling.label_form import Form
    from dpal.runs.labeling_job import LabelingJob


@register_labeler
class PageForm(NamedLabeler):
    """Asks for one choice a record where the run is shown; its page must be trusted."""

    name = "form"
    about = "a form on the Prefect page, for tiny queries"
    place = "the form on its Prefect page"
    most_records = 20  # more is no form, but a day's work
    on_page = True
    asks_people = True

    def require_settings(self, settings: LabelerConfig, /) -> None:
        """Requires in addition that the page is said to be trusted."""
        super().require_settings(settings)
        if not settings.trusted_page:
            raise ValueError(
                "labeler.kind form shows private records on the Prefect page; set "
                "labeler.trusted_page: true if only people who may see them can open that page, "
                "or use labeler.kind file"
            )

    def form(self, job: LabelingJob, files: PhaseFolder) -> Form | None:
        """One choice for each selected record."""
        from dpal.data.labeling_state import read_selection
        from dpal.labeling.label_form import make_form
        from dpal.runs.suggested_labels import suggested_labels

        ids = read_selection(files.selection)
        return make_form(job.question, job.pool, ids, suggested_labels(job, ids))

    def answer(self, job: LabelingJob, files: PhaseFolder) -> None:
        """Writes the labels that were filled in on the page."""
        from dpal.data.labeling_state import read_selection, write_labels
        from dpal.errors import FormOpen, LabelError
        from dpal.labeling.label_aggregation import Opinion
        from dpal.labeling.label_form import read_form
        from dpal.labeling.labeling_figures import labeling_figures, write_labeling_figures
        from dpal.runs.host import host
        from dpal.runs.progress_logging import notify

        values = host().form_values(files)
        if values is None:
            raise FormOpen("the campaign's flow run", "Resume on its Prefect page")
        try:
            labels = read_form(job.question, values, read_selection(files.selection))
        except LabelError as error:
            notify(f"{files.root.name}: {error}")
            raise FormOpen("the campaign's flow run", "Resume on its Prefect page") from error
        opinions = [[Opinion(said=label, annotator="")] for label in labels.values()]
        write_labeling_figures(labeling_figures(opinions, records=len(labels)), files.labeling)
        write_labels(labels, files.labels)

    def what_to_do(self, folder: CampaignFolder, files: PhaseFolder) -> str:
        """Fill in the form."""
        return "waits for the form on its Prefect page; fill it in there"
