"""A person's file of answers, by `labeler.kind: file`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dpal.runs.labelers import NamedLabeler, register_labeler

if TYPE_CHECKING:
    from dpal.files.artifacts import CampaignFolder, PhaseFolder
    from dpal.labeling import Labeler
    from dpal.runs.labeling_job import LabelingJob


@register_labeler
class Files(NamedLabeler):
    """Writes query.csv and waits until labels.csv is delivered."""

    name = "file"
    about = "query.csv out, labels.csv in"
    place = "a file"
    takes_answers = True
    asks_people = True

    def labeler(self, job: LabelingJob, files: PhaseFolder) -> Labeler:
        """Writes the query beside the phase."""
        from dpal.labeling.file import QUERY, FileLabeler
        from dpal.runs.suggested_labels import suggested_labels

        return FileLabeler(
            source=job.pool,
            question=job.question,
            suggest=partial(suggested_labels, job),
            folder=files.query,
            delivered=files.labels,
            command=f"dpal label {job.folder.root} {files.query / QUERY}",
        )

    def what_to_do(self, folder: CampaignFolder, files: PhaseFolder) -> str:
        """Fill in the query."""
        return (
            f"waits for labels; fill in {files.query / 'query.csv'} and pass its path: "
            f"dpal label {folder.root} LABELS.csv"
        )
