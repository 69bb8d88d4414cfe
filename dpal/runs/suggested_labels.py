"""What the released model says of records that people are asked about: they see it, and correct it.

A suggestion follows from a released model and from the record itself, which whoever labels it sees
anyway. It says nothing of why the record was selected: no probability goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpal.data.readers import records_of
from dpal.inference.answers import ModelAnswers, calibrated_probabilities, require_shape
from dpal.labeling.record_display import rows_of
from dpal.labels import Label
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.predict import open_model


def suggested_labels(job: LabelingJob, ids: Sequence[str]) -> dict[str, Label]:
    """The label of each record by the released model; none where they are not wanted.

    Args:
      job: who labels what.
      ids: of the query.

    Returns:
      By record, in the order of the pool; empty before the first model is released.
    """
    if not job.config.labeler.suggest or not job.folder.finished_phases():
        return {}
    model = open_model(job.folder.root)
    network = model.build()
    source = replace(job.pool, extractor=model.build_extractor(), encoding=model.encoding)
    found: dict[str, Label] = {}
    for name, column, row in rows_of(source, ids):
        # One at a time: who shares a batch with whom would tell a record's rounding of others.
        inputs = records_of(source, column, rows=row)
        require_shape(model, inputs, "records of the query")
        guesses = calibrated_probabilities(model, network, inputs, 1)
        [found[name]] = ModelAnswers(model=model, probabilities=guesses).labels()
    return found
