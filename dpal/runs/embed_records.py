"""Embeds a run's records once, where a public model makes features of them.

Later phases read what lies on disk (`dpal.features.stored_features`). All records are embedded, in
the order of their files, whoever will be selected; a run that was killed begins again with the
file that was not whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tqdm import tqdm

from dpal.data.sources import Source
from dpal.features.stored_features import StoredFeatures


class ReadsRecords(Protocol):
    """A run that reads its records more than once."""

    @property
    def sources(self) -> Sequence[Source]:
        """All of them."""
        ...


def embed_records(run: ReadsRecords) -> None:
    """Embeds all records of a run that are not on disk yet as a public model embeds them.

    Of records that no such model reads it does nothing.

    Raises:
      DataError: a record cannot be read, or a model's weights are not those of the plan.
      StorageError: the disk is full.
    """
    for source in run.sources:
        stored = source.extractor
        if isinstance(stored, StoredFeatures) and not stored.is_complete(source):
            with tqdm(desc="embedding", unit="rec", disable=None, leave=False) as bar:
                stored.write(source, bar.update)
