"""What the columns of a table are: labels, names, groups, texts, pictures, features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpal.data.importing.cells import cell_numbers, cell_texts
from dpal.data.importing.importers import TEST
from dpal.data.importing.known_tables import KnownTable
from dpal.data.importing.parts import drawn_part, part_of
from dpal.data.importing.picture_files import ENDINGS
from dpal.data.importing.row_fields import cells_of, ids_of, splits_of
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import SourceTable
from dpal.errors import DataError

LABEL_COLUMNS = (
    "label", "labels", "class", "classes", "target", "targets", "category", "y", "income",
)  # fmt: skip
_PICTURES = ("image", "path", "file", "filename", "file_name", "image_path", "img")
_TEXTS = (
    ("text_a", "text_b"), ("sentence1", "sentence2"), ("premise", "hypothesis"),
    ("question1", "question2"), ("text",), ("text_a",), ("sentence",), ("review",),
)  # fmt: skip
_ROWS = 1000  # looked at together
_HeldOut = Callable[[], pa.RecordBatch | None]  # reads once, and only where types do not decide
_INDEX = ("", "unnamed: 0", "index", "__index_level_0__")  # what pandas writes beside a table


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What the columns of a table are.

    Attributes:
      labels: of labels; empty where there are none.
      id, group, split: None where there is none.
      texts: of texts; empty where a record is no text.
      picture: that names or holds pictures.
      features: a column of lists, or all that is left.
    """

    labels: tuple[str, ...]
    id: str | None
    group: str | None
    split: str | None
    texts: tuple[str, ...]
    picture: str | None
    features: tuple[str, ...]


def no_features(table: SourceTable, roles: Roles) -> dict[str, str]:
    """Columns that nobody asked to leave out, and that are no features for what they are."""
    if roles.features == ("features",):
        return {}
    taken = {*roles.labels, roles.id, roles.split, roles.group, *roles.features}
    left = [name for name in table.columns if name not in taken]
    return {name: "holds lists or bytes" for name in left if _is_nested(table, name)} | {
        name: "numbers the rows by its name" for name in left if name.lower() in _INDEX
    }


def is_list(table: SourceTable, name: str) -> bool:
    """Whether a column holds lists, such as of features."""
    if table.schema is None or name not in table.schema.names:
        return False
    return is_list_type(table.schema.field(name).type)


def is_list_type(kind: pa.DataType) -> bool:
    """Whether a type is of lists, of whatever length."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def roles_of(table: SourceTable, settings: ImportSettings, known: KnownTable | None) -> Roles:
    """What the columns are: as a person names them, as published tables have them, or as usual.

    Args:
      table: what was opened.
      settings: what a person says of it.
      known: the published table that it is, if any.

    Raises:
      DataError: a column that is named is not there, or none is left to be a record.
    """
    by_name = {name.lower(): name for name in table.columns if name not in settings.left_out}

    def named(wanted: str | None, why: str) -> str | None:
        if wanted is not None and wanted not in table.columns:
            shown = ", ".join(table.columns[:30])
            raise DataError(f"{table.place} has no column {wanted!r}, which {why}; it has "
                            "{shown}", shown=shown)  # fmt: skip
        return wanted

    def usual(names: Sequence[str]) -> str | None:
        return next((by_name[name] for name in names if name in by_name), None)

    labels = tuple(str(named(name, "--label names")) for name in settings.labels)
    if not labels and known is not None:
        labels = known.labels
    if not labels and (found := usual(LABEL_COLUMNS)) is not None:
        labels = (found,)
    wants_text = "the model reads" if settings.whole else "is to be the text (see --text)"
    texts = tuple(str(named(name, wants_text)) for name in settings.texts)
    picture = named(settings.picture, "--picture names") or (known.picture if known else None)
    row_id = named(settings.id, "--id names") or usual(("id",))
    split = named(settings.split, "--split names") or usual(("split",))
    group = named(settings.group, "--group names")
    taken = {*labels, row_id, split, group, *settings.left_out}
    has_lists = is_list(table, "features") and "features" not in taken
    # Records of an earlier import that were columns are that again, whatever came beside them.
    guessed = not settings.columns and picture is None and not texts
    if guessed:
        found = usual(_PICTURES)
        usual_texts = [tuple(by_name[name] for name in names)
                       for names in _TEXTS if by_name.keys() >= set(names)]  # fmt: skip
        held_out = cache(lambda: _held_out_rows(table, settings, row_id, group, split))
        if found is not None and _names_pictures(table, found, held_out):
            picture = found
        elif not has_lists:
            of_texts = (own for own in usual_texts
                        if all(_holds_texts(table, name, held_out) for name in own))  # fmt: skip
            texts = next(of_texts, ())
    if settings.whole:  # nobody looks at labels, and what is called so may be something else
        labels = tuple(name for name in labels if name not in (*texts, picture, row_id))
    both = next((name for name in labels if name in (*texts, picture, row_id)), None)
    if both is not None:
        raise DataError(
            f"column {both!r} of {table.place} is the label, and cannot be what a record is or is "
            "called; name another one"
        )
    for name, _ in settings.only:
        named(name, "--only names")
    taken |= {picture, *texts}
    for name in settings.left_out:
        named(name, "--leave-out names")
    if settings.columns:
        lost = next((name for name in settings.columns if name not in table.columns), None)
        if lost is not None:
            whose = "the model reads" if settings.whole else "the earlier table had"
            raise DataError(f"{table.place} has no column {lost!r}, which {whose}; it has "
                            "{shown}", shown=", ".join(table.columns[:30]))  # fmt: skip
        features: tuple[str, ...] = settings.columns
    elif has_lists and not (settings.texts or settings.picture):
        features = ("features",)
    else:
        features = tuple(
            name for name in table.columns
            if name not in taken and name.lower() not in _INDEX and not _is_nested(table, name)
        )  # fmt: skip
    if not (features or texts or picture or (known and known.folder)):
        remedy = "name one with --text or --picture"
        if settings.whole:
            remedy = f"add those that the model reads (of pictures: one called {_PICTURES[0]})"
        raise DataError(f"{table.place} has no column left to be a record; {remedy}")
    return Roles(labels=labels, id=row_id, group=group, split=split, texts=texts,
                  picture=picture, features=features)  # fmt: skip


def _is_nested(table: SourceTable, name: str) -> bool:
    if table.schema is None:
        return False
    kind = table.schema.field(name).type
    if isinstance(kind, pa.BaseExtensionType):  # such as a UUID, as DuckDB writes it
        kind = kind.storage_type
    return bool(
        pt.is_nested(kind)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_fixed_size_binary(kind)
    )


def _held_out_rows(
    table: SourceTable,
    settings: ImportSettings,
    row_id: str | None,
    group: str | None,
    split: str | None,
) -> pa.RecordBatch | None:
    """The first rows that are held out: only cells of such say what columns hold.

    What private records have there must not decide what all records are. A table may begin with
    many rows of a part that is not held out.
    """
    done = 0
    for rows in table.rows():
        numbers = rows.numbers or range(done + 1, done + 1 + rows.cells.num_rows)
        for begin in range(0, rows.cells.num_rows, _ROWS):
            cells = rows.cells.slice(begin, _ROWS)
            if settings.held_out is None:
                parts = [part_of(word) for word in splits_of(cells, split, rows.split)]
            else:
                names = ids_of(table, cells, row_id, numbers[begin : begin + cells.num_rows])
                groups = cells_of(cells, group)
                owners = (own or name for own, name in zip(groups, names, strict=True))
                parts = [drawn_part(owner, settings.held_out) for owner in owners]
            if TEST in parts:
                return cells.filter(pa.array([part == TEST for part in parts], pa.bool_()))
        done += rows.cells.num_rows
    return None


def _holds_texts(table: SourceTable, name: str, held_out: _HeldOut) -> bool:
    """Whether a column may be of texts: by its type, else unless held-out cells are numbers."""
    if table.schema is not None:
        kind = table.schema.field(name).type
        return bool(pt.is_string(kind) or pt.is_large_string(kind))
    if (rows := held_out()) is None:
        return True
    cells = rows.column(name)
    given = np.array([text is not None for text in cell_texts(cells)], bool)
    return not given.any() or bool(np.isnan(cell_numbers(cells)[given]).any())


def _names_pictures(table: SourceTable, name: str, held_out: _HeldOut) -> bool:
    """Whether a column holds pictures, or its held-out cells are names of some.

    Where nothing is held out, what the column is called decides.
    """
    if table.schema is not None:
        kind = table.schema.field(name).type
        if pt.is_binary(kind) or pt.is_large_binary(kind):
            return True
        if pt.is_struct(kind):
            return "bytes" in [kind.field(i).name for i in range(kind.num_fields)]
    if not _holds_texts(table, name, held_out):
        return False
    rows = held_out()
    names = [] if rows is None else cell_texts(rows.column(name))
    given = next((each for each in names if each is not None), None)
    return given is None or given.lower().endswith(ENDINGS)
