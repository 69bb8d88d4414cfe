"""A labeler in one file: the largest of a record's features is its class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpal.config.labeler import LabelerConfig
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.files.artifacts import PhaseFolder
from dpal.labels import Label
from dpal.runs.labelers import NamedLabeler, register_labeler
from dpal.runs.labeling_job import LabelingJob


@dataclass(frozen=True)
class LargestFeature:
    """Looks at the records alone, each by itself."""

    source: Source
    classes: int

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """The class of each record."""
        found: dict[str, Label] = {}
        for batch in raw_batches(self.source, ["id", "features"]):
            names, features = (batch.table.column(place).to_pylist() for place in (0, 1))
            largest = np.asarray(features)[:, : self.classes].argmax(axis=1).tolist()
            found |= dict(zip(names, largest, strict=True))
        return {name: found[name] for name in ids}


@register_labeler
class Toy(NamedLabeler):
    """Settings name it by `labeler.kind: toy`."""

    name = "toy"
    about = "the largest feature"
    place = "the largest feature (labeler.kind toy)"
    most_records = 300

    def require_settings(self, settings: LabelerConfig, /) -> None:
        """Requires what it would ask of its settings."""
        super().require_settings(settings)
        if settings.trusted_page:
            raise ValueError("labeler.kind toy shows nothing on a page")

    def labeler(self, job: LabelingJob, files: PhaseFolder) -> LargestFeature:
        """For the records of the run."""
        return LargestFeature(job.pool, job.classes)

    def findings(self, settings: LabelerConfig, /) -> Iterator[tuple[str, str]]:
        """It is always ready."""
        yield "looks at features", ""
