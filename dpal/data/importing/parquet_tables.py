"""Parquet: one file or several, as pools, tables, or pictures of Hugging Face."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dpal.data.class_names import class_names_in
from dpal.data.importing.column_roles import LABEL_COLUMNS
from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import Rows, SourceTable
from dpal.data.importing.tables import opened_table
from dpal.data.parquet import named_twice, read_batches, schema_of
from dpal.data.pool_files import visible
from dpal.errors import DataError


def open_parquet(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a Parquet file, or at a folder of them whose names may begin with their part.

    Raises:
      DataError: it cannot be read, or a column that is asked for is not there.
    """
    files = [place]
    if place.is_dir():
        files = sorted(visible(place, "*.parquet")) or sorted(visible(place, "*/*.parquet"))
    schema = schema_of(files[0])
    for path in files[1:]:
        if not schema_of(path).equals(schema):
            raise DataError(f"{path} and {files[0]} have different columns; import them apart")
    parts = [_part_in_name(path) for path in files] if place.is_dir() else [None]
    own = class_names_in(schema, str(files[0]))
    names = [name.strip() for name in schema.names]  # as those of other tables
    twice = named_twice(names)
    if twice is not None:
        raise DataError(f"{place} has two columns {{twice}}; give each a name of its own",
                        twice=repr(twice))  # fmt: skip

    given = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    plain = pa.schema([field.with_type(_plain(field.type)) for field in given])

    def rows() -> Iterator[Rows]:
        for path, part in zip(files, parts, strict=True):
            for _, batch in read_batches(path, schema.names):
                cells = batch.rename_columns(names)
                yield Rows(cells if plain == given else cells.cast(plain), split=part)

    return opened_table(
        SourceTable(
            place=place,
            columns=tuple(names),
            rows=rows,
            schema=plain,
            classes=own or _hugging_face_names(schema),
            has_parts=len(set(parts)) > 1 and None not in parts,
        ),
        settings,
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The usual type of what DataFusion and others write as views, of which Arrow takes no rows."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return views.get(kind, kind)


def _part_in_name(path: Path) -> str | None:
    """The part that a file of Hugging Face says it is: train-00000-of-00002.parquet."""
    found = re.match(r"(train|test|validation|valid|val|dev)\b", path.name)
    return found.group(1) if found else None


def _hugging_face_names(schema: pa.Schema) -> tuple[str, ...]:
    """Names of classes in what the library `datasets` writes beside a schema."""
    try:
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = about["info"]["features"]
        for name in LABEL_COLUMNS:
            kind = features.get(name, {})
            names = kind.get("names") or kind.get("feature", {}).get("names")
            if names:
                return tuple(map(str, names))
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    return ()
