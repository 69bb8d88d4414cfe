"""Private votes of an ensemble of teachers, by `labeler.kind: teachers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpal.runs.labelers import NamedLabeler, register_labeler

if TYPE_CHECKING:
    from dpal.files.artifacts import PhaseFolder
    from dpal.runs.labeling_job import LabelingJob


@register_labeler
class Teachers(NamedLabeler):
    """Asks the teachers of finished private voting, whose account pays for every label."""

    name = "teachers"
    about = "finished private voting, which pays for every label"
    place = "private votes of teachers (labeler.kind teachers)"
    needs_teachers = True
    may_skip = True  # what the votes do not settle has no answer

    def require_answers(self, job: LabelingJob, planned: Mapping[int, int]) -> None:
        """Requires that the teachers are there, fit, and have blocks enough."""
        from dpal.runs.teacher_labels import require_answers

        if planned:
            require_answers(job, planned)

    def answer(self, job: LabelingJob, files: PhaseFolder) -> None:
        """Releases votes on the selection and writes what they say."""
        from dpal.data.labeling_state import write_labels
        from dpal.runs.teacher_labels import labels_by_teachers

        write_labels(labels_by_teachers(job, files), files.labels)
