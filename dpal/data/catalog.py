"""What a data file is, found out before anything depends on it.

A pool is Parquet: `id` (string, unique), one of `image` (PNG or JPEG bytes) or
`features` (list of float32), and possibly a label column. A `split` column, where there
is one, is obeyed: its "train" rows are the pool, its "test" rows the validation set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from dpal.errors import DataError


class Role(StrEnum):
    """What a file is used for, and hence which rows of a `split` column are read."""

    POOL = "train"
    VALIDATION = "test"


class Content(StrEnum):
    """What one record consists of; also the name of its column."""

    IMAGE = "image"
    FEATURES = "features"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data file in one role.

    Attributes:
      path: the Parquet file.
      role: pool or validation.
      content: what a record consists of.
      label_column: name of the label column, or None when the file has none.
      has_split: whether rows are filtered by the `split` column.
      class_names: names in class order as the file's metadata gives them; may be empty.
    """

    path: Path
    role: Role
    content: Content
    label_column: str | None
    has_split: bool
    class_names: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """Columns that a full read needs."""
        columns = ["id", self.content.value]
        if self.label_column:
            columns.append(self.label_column)
        return [*columns, "split"] if self.has_split else columns


def open_source(path: Path, role: Role, *, label_column: str) -> Source:
    """Reads a file's schema and says what it holds.

    Args:
      path: a Parquet file.
      role: what it will be used for.
      label_column: name of the label column; a pool may lack it.

    Raises:
      DataError: the file is missing, is not Parquet, or lacks or mistypes a column.
    """
    schema = _schema(path)
    named = f"{role.name.lower()} file {path}"
    if "id" not in schema.names or not _is_string(schema.field("id").type):
        raise DataError(f"{named} has no string column 'id'; give every record a unique name")
    label = label_column if label_column in schema.names else None
    if label is None and role is Role.VALIDATION:
        raise DataError(
            f"{named} has no column {label_column!r} (it has {', '.join(schema.names)}); "
            "set data.label_column, or use a file with labels"
        )
    if label is not None and not pt.is_integer(schema.field(label).type):
        kind = schema.field(label).type
        raise DataError(
            f"column {label!r} of {named} holds {kind}, where whole class numbers are needed; "
            "multi-label data is not supported yet"
            if _is_list(kind)
            else f"column {label!r} of {named} holds {kind}, where whole class numbers are needed"
        )
    if "split" in schema.names and not _is_string(schema.field("split").type):
        raise DataError(f"column 'split' of {named} is no string; use 'train' and 'test'")
    return Source(
        path=path,
        role=role,
        content=_content(schema, named),
        label_column=label,
        has_split="split" in schema.names,
        class_names=_class_names(schema, named),
    )


def _schema(path: Path) -> pa.Schema:
    if not path.is_file():
        raise DataError(
            f"{path} does not exist; check the path (the sample is restored by: make data)"
        )
    try:
        return pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file") from error


def _content(schema: pa.Schema, named: str) -> Content:
    if "image" in schema.names:
        kind = schema.field("image").type
        if pt.is_binary(kind) or pt.is_large_binary(kind):
            return Content.IMAGE
    if "features" in schema.names:
        kind = schema.field("features").type
        if _is_list(kind) and pt.is_floating(kind.value_type):
            return Content.FEATURES
        raise DataError(
            f"column 'features' of {named} holds {kind}, where float32 lists are needed"
        )
    if "text_a" in schema.names:
        raise DataError(f"{named} holds texts; no registered model reads texts yet")
    raise DataError(
        f"{named} has neither 'image' (PNG or JPEG bytes) nor 'features' (float32 lists)"
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _class_names(schema: pa.Schema, named: str) -> tuple[str, ...]:
    stored = (schema.metadata or {}).get(b"class_names")
    if not stored:
        return ()
    try:
        names = json.loads(stored)
    except ValueError:
        names = None
    if not isinstance(names, list) or len(names) < 2:
        raise DataError(f"class_names in the metadata of {named} is no JSON list of names")
    return tuple(str(name) for name in names)
