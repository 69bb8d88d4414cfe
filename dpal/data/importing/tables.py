"""Tables of any kind, whose rows are features, texts, or name pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dpal.data.importing.cells import cell_names
from dpal.data.importing.column_roles import Roles, is_list, no_features, roles_of
from dpal.data.importing.importers import OpenedSource, Part
from dpal.data.importing.known_tables import KNOWN_TABLES
from dpal.data.importing.picture_files import picture_parts
from dpal.data.importing.row_fields import cells_of, ids_of, rows_asked_for, splits_of
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import SourceTable
from dpal.data.importing.table_labels import LabelReader
from dpal.data.importing.table_pictures import named_pictures
from dpal.data.sources import Content
from dpal.data.texts import TEXT_COLUMNS
from dpal.errors import DataError

_NUMBERS = (pt.is_integer, pt.is_floating, pt.is_boolean, pt.is_decimal)
ODD_ROWS = "rows with more or fewer fields than the header"
LINE_BREAKS = "line breaks inside quotes, which may be rows that a stray quote swallowed"
NO_TEXT = "rows without a text"


def opened_table(table: SourceTable, settings: ImportSettings) -> OpenedSource:
    """Looks at a table of whatever kind of file: what its columns are, and so its records.

    Raises:
      DataError: a column that is asked for is not there, or none is left to be a record.
    """
    known = next((each for each in KNOWN_TABLES if each.columns <= set(table.columns)), None)
    roles = roles_of(table, settings, known)
    labels = LabelReader(table, settings, roles.labels, known)
    classes = settings.classes or labels.declared
    has_splits = roles.split is not None or table.has_parts
    named = roles.id is not None
    if roles.picture is not None or (known is not None and known.folder is not None):
        return OpenedSource(
            content=Content.IMAGE,
            parts=lambda: picture_parts(
                named_pictures(table, settings, roles, labels, known),
                settings,
                any_size=settings.whole,
            ),
            about=f"pictures named by {known.name if known else table.place.name}",
            classes=classes,
            has_splits=has_splits,
            named=named,
            id=roles.id,
            columns=table.columns,
        )
    content = Content.TEXT if roles.texts else None
    if roles.features == ("features",) and is_list(table, "features"):
        content = Content.FEATURES
        kind = None if table.schema is None else table.schema.field("features").type.value_type
        if kind is not None and not any(accepts(kind) for accepts in _NUMBERS):
            raise DataError(
                f"column features of {table.place} has lists of type {kind}; write lists of numbers"
            )
    return OpenedSource(
        content=content,
        parts=lambda: _parts(table, settings, roles, labels, content),
        about="texts" if content is Content.TEXT else f"a table of {len(roles.features)} columns",
        classes=classes,
        has_splits=has_splits,
        named=named,
        id=roles.id,
        columns=table.columns,
        left_out={} if roles.texts else no_features(table, roles),
    )


def _parts(
    table: SourceTable,
    settings: ImportSettings,
    roles: Roles,
    labels: LabelReader,
    content: Content | None,
) -> Iterator[Part]:
    """Rows whose records are texts, lists of features, or cells."""
    done, columns = 0, roles.texts if roles.texts else roles.features
    for rows in table.rows():
        cells, dropped, noted = rows.cells, {ODD_ROWS: rows.odd}, {LINE_BREAKS: rows.breaks}
        numbers = rows.numbers or range(done + 1, done + cells.num_rows + 1)
        done += cells.num_rows
        asked = rows_asked_for(cells, settings.only)
        words = splits_of(cells, roles.split, rows.split)
        aside = Counter(word or "" for word, here in zip(words, asked, strict=True) if not here)
        if aside:
            cells = cells.filter(pa.array(asked, pa.bool_()))
            numbers = list(compress(numbers, asked))
        ids = ids_of(table, cells, roles.id, numbers)
        if content is Content.TEXT:
            texts = list(zip(*(cell_names(cells.column(name)) for name in columns), strict=True))
            good = [position for position, row in enumerate(texts) if all(row)]
            dropped[NO_TEXT] = cells.num_rows - len(good)
            cells, ids = cells.take(pa.array(good, pa.int64())), [ids[place] for place in good]
            values = [
                pa.array([texts[g][k] for g in good], pa.string()) for k in range(len(columns))
            ]
            records = pa.record_batch(values, list(TEXT_COLUMNS[: len(columns)]))
        else:
            records = cells.select(list(columns))
            noted[LINE_BREAKS] += _line_breaks(records)
        yield Part(
            ids=ids,
            labels=labels.read(cells),
            splits=splits_of(cells, roles.split, rows.split),
            groups=cells_of(cells, roles.group),
            records=records,
            dropped=dropped,
            noted=noted,
            aside=aside,
        )


def _line_breaks(cells: pa.RecordBatch) -> int:
    """How many there are in cells: a quote that nobody closed swallows the rows after it."""
    columns = [each for each in cells.columns if pt.is_string(each.type)]
    return sum(pc.sum(pc.count_substring(each, "\n")).as_py() or 0 for each in columns)
