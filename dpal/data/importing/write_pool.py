"""From a source to one Parquet file: records, labels as numbers, what is held out.

The source is read once, into a file beside the target; what has to be known of all records is then
known of those that are held out, and the target is written. Memory holds names as hashes, and what
has to be known; not the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dpal.data.importing.column_encoding import TableEncoding
from dpal.data.importing.file_names import require_text
from dpal.data.importing.import_report import ImportReport
from dpal.data.importing.importers import BUILT_IN, Importer, importer_of
from dpal.data.importing.pool_batches import ROWS_AT_ONCE, PoolBatches
from dpal.data.importing.recipe import RECIPE, Deciders, ImportRecipe, content_hashes
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.importing.stage_source import read_source
from dpal.data.parquet import schema_of
from dpal.data.pool_files import visible
from dpal.errors import DataError
from dpal.files.atomic_writes import workspace, write_private_parquet


def import_source(
    place: Path,
    target: Path,
    settings: ImportSettings,
    *,
    like: ImportRecipe | None = None,
    deciders: Deciders | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> ImportReport:
    """Imports a source into one Parquet file.

    Args:
      place: file or folder.
      target: the file to write; it is written whole or not at all.
      settings: what a person says of it.
      like: an earlier import, whose classes and columns hold here, too; then nothing is held out
        unless the source says so.
      deciders: the records that decided that; None where nobody knows them, and then they may be
        among those that are imported, for all that the file can say.
      on_rows: told how many more records were read.

    Raises:
      DataError: the source cannot be read, has no label to learn, or nothing says what is held out.
      StorageError: the target cannot be written.
    """
    if target.suffix != ".parquet":
        raise DataError(f"{target} is no name of a Parquet file; let it end in .parquet")
    if target.exists():
        raise DataError(f"{target} exists already; choose another name or remove it")
    asked = settings
    if like is not None:
        settings = _as_before(settings, like)
    require_text(str(place))
    importer = importer_of(place)
    _require_cells(place, settings)
    opened = importer.open(place, settings)
    if not opened.columns and (option := _about_columns(asked, importer)):
        raise DataError(
            f"{place} is no table, and {option} names a column of one; leave it out, or name a "
            "table"
        )
    divided = opened.has_splits and settings.part is None
    if not divided and settings.held_out is None and like is None:
        raise DataError(
            f"{place if settings.part is None else f'--part {settings.part}'} does not say which "
            "records are held out to measure models; hold some out with --split 0.2 (a fifth, "
            "drawn by name), or name the column that says so with --split NAME"
        )
    with workspace(target) as folder:
        raw = folder / "raw.parquet"
        seen = read_source(opened, settings, raw, like is None, on_rows)
        if settings.group is not None and not seen.grouped:  # else nobody's records were one
            raise DataError(
                f"no record of {place} says whose it is, which --group {settings.group} asks for; "
                "name a column that is filled in, or leave --group out"
            )
        finished = PoolBatches.of(opened, settings, seen, like, importer.name)
        if like is not None and like.columns is not None and deciders is not None:
            finished.decided_by_others = not _meet(raw, like.columns, deciders, opened.named)
        schema = finished.schema(raw)
        write_private_parquet(target, schema, lambda: finished.batches(raw, schema))
    return finished.report(opened)


def _about_columns(asked: ImportSettings, importer: Importer) -> str | None:
    """An option that means nothing where there are no columns; None where nobody gave one.

    Importers of other packages may make something of names.
    """
    named = {
        "--label": asked.labels,
        "--id": asked.id,
        "--text": asked.texts,
        "--picture": asked.picture,
        "--leave-out": asked.left_out,
        f"--split {asked.split}": asked.split,
    }
    given = {"--only": asked.only} | (named if importer in BUILT_IN else {})
    return next((option for option, value in given.items() if value), None)


def _require_cells(place: Path, settings: ImportSettings) -> None:
    """Requires that a table is not one already whose columns became numbers.

    A copy would have lost how they did, and who decided that.
    """
    if place.is_dir():
        files = [*visible(place, "*.parquet"), *visible(place, "*/*.parquet")]
    else:
        files = [place] if place.suffix.lower() == ".parquet" else []
    for path in files:
        about = schema_of(path).metadata or {}
        if RECIPE in about and b"feature_names" in about:
            remedy = "use it as it is, or import its source once more"
            if settings.whole:
                remedy = (
                    "predict from its source, or from that file alone if the model learned from "
                    "such a pool"
                )
            raise DataError(f"{path} is a pool that dpal import made of a table; {remedy}")


def _meet(raw: Path, columns: TableEncoding, deciders: Deciders, named: bool) -> bool:
    """Whether records that were read may be some of those that decided how columns are encoded."""
    by_name = named and deciders.named
    wanted = [" id"] if by_name else [column.name for column in columns.columns]
    with pq.ParquetFile(raw, pre_buffer=False) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=wanted):
            if by_name:
                names = [hash(name) for name in batch.column(0).to_pylist()]
                hashes, theirs = np.array(names, np.int64), deciders.names
            else:
                hashes, theirs = content_hashes(columns.encode(batch)), deciders.contents
            if np.isin(hashes, theirs).any():
                return True
    return False


def _as_before(settings: ImportSettings, like: ImportRecipe) -> ImportSettings:
    """Settings that read records in the form that an earlier import had, unless they say more."""
    rule = settings.picture_rule
    return replace(
        settings,
        picture_rule=like.picture_rule if rule == PictureRule() else rule,
        classes=settings.classes or like.classes,
        texts=settings.texts or like.texts,
        columns=() if like.columns is None else tuple(c.name for c in like.columns.columns),
        always=() if like.columns is None else like.columns.always,
        header=like.header if settings.header is None else settings.header,
        value_range=settings.value_range or like.value_range,
    )
