"""The pool's own label column, by `labeler.kind: oracle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpal.runs.labelers import NamedLabeler, register_labeler

if TYPE_CHECKING:
    from dpal.files.artifacts import PhaseFolder
    from dpal.labeling import Labeler
    from dpal.runs.labeling_job import LabelingJob


@register_labeler
class PoolLabels(NamedLabeler):
    """Reads labels where the records are; for research, rehearsals and tests."""

    name = "oracle"
    about = "the pool's label column"
    place = "the pool (labeler.kind oracle)"
    reads_pool = True

    def labeler(self, job: LabelingJob, files: PhaseFolder) -> Labeler:
        """Reads the pool's file."""
        from dpal.labeling.oracle import OracleLabeler

        return OracleLabeler(job.pool, job.classes)
