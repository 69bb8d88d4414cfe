"""Runs that were measured on protected records, and whether some records are among those.

Figures cost the records that they are of, and no block of a data set counts that: who is in a data
set is in no protected validation set, before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import FIGURES
from dpal.config.data import DataConfig
from dpal.config.validation import DeclaredValidation, held_out_share
from dpal.data.known_records import (
    COINCIDENCE,
    MarkKey,
    Marks,
    OverlapCount,
    marks_as_block,
    owners_in,
    scan,
)
from dpal.data.parquet import schema_of
from dpal.data.pool_files import commitment
from dpal.data.sources import Content, Role, Source, open_source
from dpal.errors import DataError, DpalError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.release_json import measures_protected, release_of
from dpal.runs.open_sources import holding_out
from dpal.runs.unregistered_runs import Runs

VALIDATION_FILES = "validation_files"  # in a run's record: commits to its protected records

Rows = NDArray[np.bool_]


def measured_on(
    source: Source,
    entries: Iterable[Entry],
    artifacts: Path,
    *,
    owner_column: str,
    rows: Rows | None = None,
) -> Runs:
    """Compares records with the protected validation set of every run that has one.

    One is read where it was, if its files are as they were when the run began. A run that ended
    before it measured anything is left out.

    Args:
      source: records that are, or are to be, in a data set.
      entries: of the ledger.
      artifacts: folder of the runs.
      owner_column: of the data set: says who is protected.
      rows: (n,) which rows of the source are meant; None for all.
    """
    entries, about, unknown = list(entries), [], []
    asked: _Asked | None = None
    for held in entries:
        if held.kind is not EntryKind.HOLD or not measures_protected(held.body):
            continue
        if _ended_unmeasured(entries, held.campaign):
            continue
        measured = _measured_of(CampaignFolder(artifacts / held.campaign))
        if measured is None:
            unknown.append(held.campaign)
            continue
        asked = asked or _Asked(source, owner_column, rows)
        if asked.is_in(*measured):
            about.append(held.campaign)
    return Runs(tuple(about), tuple(unknown))


def require_unmeasured(runs: Runs, source: Source) -> None:
    """Requires that no run was measured on records that a data set counts.

    Args:
      runs: from `measured_on`.
      source: the records.

    Raises:
      DataError: one was.
    """
    if runs.about:
        raise DataError.before_release(
            f"{source.name} holds records of the protected validation set of "
            f"{', '.join(runs.about)}, or copies of them, and what its figures cost them is in no "
            "account of a data set; leave all records of these people out of it"
        )


def validation_commitment(folder: CampaignFolder, validation: Source) -> str:
    """Commits to the files of a protected validation set, under the run's salt."""
    return commitment(folder.salt.read_bytes(), validation.files_digest)


class _Asked:
    """Records that are compared with several validation sets, and read once for all."""

    def __init__(self, source: Source, owner_column: str, rows: Rows | None) -> None:
        self._source, self._column, self._rows = source, owner_column, rows
        self._salt = os.urandom(32)
        self._marks = scan(source, self._salt)
        if rows is not None:
            self._marks = self._marks.of(rows)

    def is_in(self, validation: Source, group_column: str | None) -> bool:
        """Whether chance does not explain what both have in common, or they share an owner.

        Args:
          validation: protected records.
          group_column: said whose those were, where it was groups.
        """
        measured = scan(validation, self._salt)
        # A few people among many records are many among few: it is asked both ways.
        key = MarkKey(self._salt)
        if _overlap(key, self._marks, measured) or _overlap(key, measured, self._marks):
            return True
        paths = (*self._source.paths, *validation.paths)
        columns = {self._column, group_column or "id"} - {"id"}
        return any(
            self._share_owner(validation, column)
            for column in columns
            if all(column in schema_of(path).names for path in paths)
        )

    def _share_owner(self, validation: Source, column: str) -> bool:
        owners = owners_in(self._source, column)
        owners = owners if self._rows is None else owners[self._rows]
        return bool(np.isin(owners, owners_in(validation, column)).any())


def _overlap(key: MarkKey, known: Marks, asked: Marks) -> bool:
    count = OverlapCount()
    count.add(marks_as_block(known, key).look_up({key: asked}), asked)
    return count.result().is_more_than(COINCIDENCE)


def _ended_unmeasured(entries: Iterable[Entry], campaign: str) -> bool:
    own = [entry for entry in entries if entry.campaign == campaign]
    reserved = [release_of(entry) for entry in own if entry.kind is EntryKind.RESERVE]
    measured = any(release.kind == FIGURES for release in reserved)
    return any(entry.kind is EntryKind.END for entry in own) and not measured


def _measured_of(folder: CampaignFolder) -> tuple[Source, str | None] | None:
    """The protected records of a run and the column of their groups; None if they changed."""
    try:
        record = folder.read_record()
        data = DataConfig.model_validate(record["config"]["data"])
        content = None if data.content == "auto" else Content(data.content)
        declared = DeclaredValidation.model_validate(record["config"]["validation"])
        place = data.pool if data.validation is None else data.validation
        validation = holding_out(
            open_source(place, Role.VALIDATION, label_column=data.label_column, content=content),
            held_out_share(data, declared),
        )
        same = record[VALIDATION_FILES] == validation_commitment(folder, validation)
    except (DpalError, KeyError, ValueError, OSError):
        return None  # then nothing shows whose they were
    return (validation, data.group_column) if same else None
