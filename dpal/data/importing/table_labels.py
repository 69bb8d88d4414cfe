"""Labels of a table's rows: classes, lists of names, or one column for each label."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpal.data.importing.cells import cell_texts
from dpal.data.importing.column_roles import is_list_type
from dpal.data.importing.importers import RawLabel, Several
from dpal.data.importing.known_tables import KnownTable
from dpal.data.importing.settings import ImportSettings, Unsure
from dpal.data.importing.source_table import SourceTable
from dpal.errors import DataError

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")  # of a list as Python prints it
_ANSWERS = {"0": False, "0.0": False, "no": False, "false": False,
            "1": True, "1.0": True, "yes": True, "true": True}  # fmt: skip
_UNCERTAIN = ("-1", "-1.0")
NOT_KNOWN = "unknown"  # whatever a -1 or a blank means: nobody looked


@dataclass(frozen=True)
class LabelReader:
    """Labels of rows, by what the columns that hold them are."""

    table: SourceTable
    settings: ImportSettings
    columns: tuple[str, ...]
    known: KnownTable | None

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of labels that the table itself declares."""
        return self.columns if len(self.columns) > 1 else self.table.classes

    @property
    def separator(self) -> str | None:
        """What stands between the labels that one text lists; None: a text is one class."""
        return self.settings.separator or (self.known.separator if self.known else None)

    def read(self, cells: pa.RecordBatch) -> list[RawLabel]:
        """The label of each row.

        Raises:
          DataError: one of several labels is neither 0, 1, -1, "unknown" nor blank.
        """
        if not self.columns or self.settings.whole:
            return [None] * cells.num_rows
        declared = frozenset(self.settings.classes or self.table.classes)
        if len(self.columns) > 1:
            texts = [cell_texts(cells.column(name)) for name in self.columns]
            return [self._of_columns(row) for row in zip(*texts, strict=True)]
        column = cells.column(self.columns[0])
        if is_list_type(column.type):
            return [self._of_list(row) for row in column.to_pylist()]
        return [self._of_text(text) for text in cell_texts(column, declared)]

    def _of_columns(self, answers: Sequence[str | None]) -> Several:
        has, unknown = [], []
        for name, answer in zip(self.columns, answers, strict=True):
            said: Unsure | None = None
            if answer is None:
                said = self.settings.blank
            elif answer in _UNCERTAIN:
                said = self.settings.uncertain
            elif answer == NOT_KNOWN:
                said = Unsure.UNKNOWN
            elif answer.lower() not in _ANSWERS:
                raise DataError(
                    f"column {name!r} of {self.table.place} has a cell that is neither 0, 1, -1 "
                    "nor blank, as a column of one label among several holds; name other "
                    "columns with --label"
                )
            if said is Unsure.UNKNOWN:
                unknown.append(name)
            elif said is Unsure.YES or (said is None and answer and _ANSWERS[answer.lower()]):
                has.append(name)
        return Several(tuple(has), tuple(unknown))

    def _of_list(self, row: Sequence[Any] | None) -> RawLabel:
        if row is None:
            return None
        names = self.table.classes
        if names and len(row) == len(names) and set(row) <= {0, 1, -1, None}:
            pairs = list(zip(names, row, strict=True))
            return Several(
                tuple(name for name, value in pairs if value == 1),
                tuple(name for name, value in pairs if value in (-1, None)),
            )
        return Several(tuple(self._named(str(value)) for value in row))

    def _of_text(self, text: str | None) -> RawLabel:
        separator = self.separator
        if text is None:
            says_none = separator is not None and self.settings.blank is Unsure.NO
            return Several() if says_none else None
        if text.startswith("["):
            listed = _listed(text)
        elif separator is None:
            return self._named(text)
        else:
            listed = text.split(separator)
        without = self.settings.without or (self.known.without if self.known else None)
        names = (name.strip() for name in listed)
        return Several(tuple(self._named(n) for n in names if n and n != without))

    def _named(self, text: str) -> str:
        """A class by its name, where a file numbers classes and names them elsewhere."""
        names = self.table.classes
        return names[int(text)] if names and text.isdecimal() and int(text) < len(names) else text


def _listed(text: str) -> list[str]:
    """Members of a list as JSON or Python writes it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        members = [one or other for one, other in _QUOTED.findall(text)]
        if not members and text.strip("[] "):
            raise DataError(
                "a label begins with a bracket and is no list of JSON; write lists as "
                '["sport", "arts"], and other labels without a bracket'
            ) from None
        return members
    return [str(each) for each in value] if isinstance(value, list) else []
