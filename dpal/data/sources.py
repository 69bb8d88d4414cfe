"""What a data file is, found out before anything depends on it.

A pool is Parquet: `id` (string, unique), one of `image` (PNG or JPEG bytes), `features`
(list of float32) or `text_a` (string, with `text_b` for pairs), and possibly a label column.
A `split` column, where there is one, is obeyed: its "train" rows are the pool, its "test"
rows the validation set. Of a file without one a share may be held out instead: then both are read
from that file, each its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
from torch import Tensor

from dpal.data.class_names import class_names_in
from dpal.data.held_out import HeldOutShare
from dpal.data.label_columns import task_of
from dpal.data.parquet import read_batches, schema_of
from dpal.data.pictures import is_deep
from dpal.data.pool_files import digest_of, files_of
from dpal.data.texts import TEXT_COLUMNS, TextEncoding
from dpal.data.verified_row_groups import KnownFile
from dpal.errors import DataError
from dpal.labels import Task

if TYPE_CHECKING:  # a served model reads no file
    from dpal.files.stored_objects import Place

_USUAL_LABELS = ("label", "labels", "class", "classes", "target", "targets", "category", "y")

# A fixed, public function of every record by itself: decoded records in, features out.
Extractor = Callable[[Tensor], Tensor]


class Role(StrEnum):
    """What a file is used for, and hence which rows of a `split` column are read."""

    POOL = "train"
    VALIDATION = "test"


class Content(StrEnum):
    """What one record consists of; also the name of its column.

    Texts are one column of structs: `text_a` alone, or a pair `text_a` and `text_b`.
    """

    IMAGE = "image"
    FEATURES = "features"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data file, or several as if they were one, in one role.

    Attributes:
      paths: the Parquet files, in order; all of one kind.
      role: pool or validation.
      content: what a record consists of.
      label_column: name of the label column, or None when the file has none.
      task: what a label is; of a file without labels, what a labeler will give.
      has_split: whether rows are filtered by the `split` column.
      class_names: names in class order as the file's metadata gives them; may be empty.
      texts: columns of the file that make up a text record; empty for other content.
      encoding: what turns texts into records; None where they are not decoded.
      extractor: what turns decoded records into features; None leaves them as they are.
      held_out: what holds records of the files out of the pool: a pool reads the others, and a
        validation set these alone. None reads all.
      known: what each file held when a plan was made for it, as it must whenever it is read; empty
        where nobody has read them before.
    """

    paths: tuple[Place, ...]
    role: Role
    content: Content
    label_column: str | None
    has_split: bool
    class_names: tuple[str, ...]
    task: Task = Task.SINGLE_LABEL
    texts: tuple[str, ...] = ()
    encoding: TextEncoding | None = None
    extractor: Extractor | None = None
    held_out: HeldOutShare | None = None
    known: tuple[KnownFile, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def deep(self) -> bool:
        """Whether its pictures have 16 bits of grey, by the first one, as all must have.

        Decoded they are uint16 then, and uint8 otherwise.
        """
        if self.content is not Content.IMAGE:
            return False
        for path in self.paths:
            with suppress(DataError, OSError):  # who reads all of it says what is wrong
                for _, batch in read_batches(path, [Content.IMAGE.value], rows=1):
                    return is_deep(batch.column(0)[0].as_py() or b"")
        return False

    @property
    def name(self) -> str:
        """What to call it in a message."""
        more = len(self.paths) - 1
        named = f"{self.paths[0]} and {more} more" if more else str(self.paths[0])
        if self.held_out is None:
            return named
        does = "holds out" if self.role is Role.VALIDATION else "leaves"
        return f"{named} (what validation.share {self.held_out.share:g} {does})"

    @property
    def files_digest(self) -> str:
        """SHA-256 of each file's bytes, in order, as they were read for a plan, or are read now."""
        return "".join(file.sha256 for file in self.known) or digest_of(self.paths)

    def known_file(self, number: int) -> KnownFile | None:
        """What one of the files must hold, by its place among them; None for whatever it does."""
        return self.known[number] if self.known else None

    @property
    def columns(self) -> list[str]:
        """Columns that a full read needs."""
        columns = ["id", self.content.value]
        if self.label_column:
            columns.append(self.label_column)
        return [*columns, "split"] if self.has_split else columns


def open_source(
    place: Place | Sequence[Place],
    role: Role,
    *,
    label_column: str,
    encoding: TextEncoding | None = None,
    content: Content | None = None,
) -> Source:
    """Reads the schema of a file or of several and says what they hold.

    Args:
      place: a Parquet file, a folder of them (taken in the order of their names), or
        several files; here or in object storage.
      role: what they will be used for.
      label_column: name of the label column; a pool may lack it.
      encoding: what turns texts into records, where some are to be decoded.
      content: which column a record is, where there are several; None takes the first that
        is there of image, features and texts.

    Raises:
      DataError: a file is missing, is not Parquet, lacks or mistypes a column, or differs in
        kind from the first.
      StoreError: a store does not answer, or gives no access.
    """
    first, *others = (
        _open_file(path, role, label_column=label_column, wanted=content)
        for path in files_of(place)
    )
    for other in others:
        if replace(other, paths=first.paths) != first:
            raise DataError(
                f"{other.name} and {first.name} differ in columns or class names; files of one "
                "pool need the same id, content, label and split columns"
            )
    paths = (*first.paths, *(source.paths[0] for source in others))
    return replace(first, paths=paths, encoding=encoding if first.texts else None)


def _open_file(path: Place, role: Role, *, label_column: str, wanted: Content | None) -> Source:
    schema = _schema(path)
    named = f"{role.name.lower()} file {path}"
    _require_ids(schema, named)
    label = label_column if label_column in schema.names else None
    if label is None and role is Role.VALIDATION:
        raise missing_label(schema, named, label_column, "or use a file with labels")
    task = Task.SINGLE_LABEL if label is None else task_of(schema.field(label).type)
    if task is None:
        raise DataError(
            f"column {label!r} of {named} holds {schema.field(label).type}, where whole class "
            "numbers are needed, or lists with a 0 or 1 for each label"
        )
    if "split" in schema.names and not _is_string(schema.field("split").type):
        raise DataError(
            f"column 'split' of {named} holds {schema.field('split').type}, where the texts "
            "'train' and 'test' are needed; write it so, or leave it out"
        )
    content = _content(schema, named, wanted)
    return Source(
        paths=(path,),
        role=role,
        content=content,
        label_column=label,
        has_split="split" in schema.names,
        texts=_texts(schema) if content is Content.TEXT else (),
        class_names=class_names_in(schema, named, least=1 if task is Task.MULTI_LABEL else 2),
        task=task,
    )


def _schema(path: Place) -> pa.Schema:
    if not path.is_file():
        raise DataError(
            f"{path} does not exist; check the path (the sample: `dpal demo`, or `make data`)"
        )
    return schema_of(path)


def _require_ids(schema: pa.Schema, named: str) -> None:
    if "id" not in schema.names:
        raise DataError(
            f"{named} has no column 'id' (it has {', '.join(schema.names)}); give every record a "
            "unique name in one, as text"
        )
    kind = schema.field("id").type
    if not _is_string(kind):
        what = "whole numbers" if pt.is_integer(kind) else f"{kind}"
        raise DataError(
            f"column 'id' of {named} holds {what}, and ids are texts; write them as text (in "
            "pandas: table['id'] = table['id'].astype(str))"
        )


def missing_label(schema: pa.Schema, named: str, wanted: str, otherwise: str) -> DataError:
    """What to raise where a file has no label column of the wanted name: what it has instead.

    Args:
      schema: of the file.
      named: what to call the file.
      wanted: name of the column.
      otherwise: what else a person may do.
    """
    others = {"id", "split", "image", "features", *TEXT_COLUMNS}
    fitting = [
        field for field in schema if field.name not in others and task_of(field.type) is not None
    ]
    usual = [field.name for field in fitting if field.name.lower() in _USUAL_LABELS]
    likely = usual or [field.name for field in fitting]
    meant = f"did you mean {likely[0]!r}? " if len(likely) == 1 else ""
    return DataError(
        f"{named} has no column {wanted!r} (it has {', '.join(schema.names)}); {meant}set "
        f"data.label_column (of dpal init: --label-column), {otherwise}"
    )


def _content(schema: pa.Schema, named: str, wanted: Content | None) -> Content:
    column = TEXT_COLUMNS[0] if wanted is Content.TEXT else wanted
    if column is not None:
        if column not in schema.names:
            raise DataError(
                f"{named} has no column {column!r}, which data.content {wanted} asks for; set "
                "data.content to auto"
            )
        # The other columns do not count.
        others = {"image", "features", TEXT_COLUMNS[0]} - {column}
        schema = pa.schema([field for field in schema if field.name not in others])
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
        for name in _texts(schema):
            kind = schema.field(name).type
            if not _is_string(kind):
                raise DataError(
                    f"column {name!r} of {named} holds {kind}, where strings are needed"
                )
        return Content.TEXT
    raise DataError(
        f"{named} has neither 'image' (PNG or JPEG bytes) nor 'features' (float32 lists) nor "
        "'text_a' (strings)"
    )


def _texts(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(name for name in TEXT_COLUMNS if name in schema.names)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))
