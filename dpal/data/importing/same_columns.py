"""Whether columns of a table became the same numbers in several files that were imported."""

from __future__ import annotations

from collections.abc import Iterable

from dpal.data.importing.recipe import RECIPE, recipe_from
from dpal.data.parquet import schema_of
from dpal.errors import DataError
from dpal.files.stored_objects import Place


def first_imported(paths: Iterable[Place]) -> Place | None:
    """The first of some files that was imported; None where none was."""
    return next((path for path in paths if RECIPE in (schema_of(path).metadata or {})), None)


def require_same_columns(paths: Iterable[Place]) -> None:
    """Requires that columns became the same numbers in all files that were imported.

    Else one number stands for different values, and no model can tell which. Of a file that was
    written in another way nothing is known, and it may stand beside any.

    Raises:
      DataError: they became other numbers in one than in the first.
    """
    first: Place | None = None
    told, columns = b"", None
    for path in dict.fromkeys(paths):
        stored = (schema_of(path).metadata or {}).get(RECIPE)
        if stored is None or stored == told:  # most are alike to the letter, and of any version
            continue
        if first is None:
            first, told = path, stored
            continue
        columns = columns or recipe_from(told.decode()).columns
        if recipe_from(stored.decode()).columns != columns:
            raise DataError(
                f"the columns of {path} became numbers in another way than those of {first}, so "
                "that the same number means another value there; import it again from its source "
                f"with --like {first} (of one pool, with --split where that one has it), and begin "
                "anew what has learned from both"
            )
