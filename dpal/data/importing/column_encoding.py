"""How columns of a table become numbers: decided by held-out records alone, the same for all.

Which categories a column has, where its numbers lie, whether any is missing: read off private
records, the width of a model would tell that one person has a rare job. So it is read off the
records that are held out, which are public for that purpose, or taken from an earlier import. A
private record is then encoded by itself: a category that no held-out record has is `other`, a
number beyond theirs is brought to the nearest of theirs, a missing one to their mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal.data.importing.ambiguous_cells import COMMAS, DATES, odd_form
from dpal.data.importing.cells import (
    ANSWERS,
    Floats,
    cell_days,
    cell_numbers,
    cell_texts,
    given_among,
    measurable,
    written_numbers,
)
from dpal.errors import DataError

_MOST_VALUES = 64  # categories of a column that get a feature of their own
_LEAST_SEEN = 10  # held-out records that have a category, where there are more than those
_MOST_KEPT = 4096  # values of a column that are counted at all
_COVERED = 0.5  # share of records that the kept categories must cover
_HALF = 0.5
_NEARLY_ALL = 0.95  # share of given cells that are numbers, or dates, in a column of those
_MOST_NAMED = 8  # categories that a person is shown
_MOST_SHOWN = 32  # characters of each
_TEXTS = "has too many different texts"
_TOO_LARGE = "has no number that somebody can have measured"
_SKEWED = (
    8.0  # standard deviations between mean and largest number, beyond which logarithms are taken
)


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """Numbers, centred and scaled by held-out records; dates are days.

    Attributes:
      name: of the column.
      low, high: what numbers are brought between first.
      mean, std: of held-out ones, after the logarithm where that is taken.
      dated: whether cells are dates.
      logarithm: whether log(1 + number - low) is taken.
      marks_missing: whether a feature of its own says that the number is missing.
    """

    name: str
    low: float
    high: float
    mean: float
    std: float
    dated: bool = False
    logarithm: bool = False
    marks_missing: bool = False

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        return [self.name, *([f"{self.name} missing"] if self.marks_missing else [])]

    def encode(self, values: Floats) -> Floats:
        """Features of n cells, shape (n, features): one of mean 0 and deviation 1, and 0 or 1.

        Args:
          values: the cells as `read` reads them.
        """
        missing = np.isnan(values)
        bounded = np.where(missing, self.low, values).clip(self.low, self.high)
        shifted = np.log1p(bounded - self.low) if self.logarithm else bounded
        scaled = np.where(missing, 0.0, (shifted - self.mean) / self.std)
        return np.stack([scaled, missing], axis=1) if self.marks_missing else scaled[:, None]

    def decode(self, features: Floats) -> str:
        """About what a cell was, for people: bounded, in six digits; "" where it was missing.

        Args:
          features: (features,) of one record.
        """
        if self.marks_missing and features[1] > _HALF:
            return ""
        shifted = float(features[0]) * self.std + self.mean
        value = float(np.expm1(shifted)) + self.low if self.logarithm else shifted
        return self._written(min(max(value, self.low), self.high))

    @property
    def about(self) -> str:
        """How its cells are read, for people."""
        what = ("dates" if self.dated else "numbers") + (" by logarithm" if self.logarithm else "")
        return f"{what} from {self._written(self.low)} to {self._written(self.high)}"

    def _written(self, value: float) -> str:
        """A number as a cell would have it, in six digits."""
        return str(np.datetime64(round(value), "D")) if self.dated else f"{value:.6g}"

    def read(self, column: pa.Array) -> Floats:
        """Cells as numbers, shape (n,); NaN where one is missing or none."""
        return cell_days(column) if self.dated else cell_numbers(column)


@dataclass(frozen=True, kw_only=True)
class CategoryColumn:
    """Categories, one feature each, one for all others and one for none.

    Attributes:
      name: of the column.
      values: those with a feature of their own, in order.
      has_missing: whether a held-out record has none, or an earlier version did not note it.
    """

    name: str
    values: tuple[str, ...]
    has_missing: bool = True

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        return [f"{self.name}={value}" for value in (*self.values, "(other)", "(missing)")]

    @property
    def about(self) -> str:
        """How its cells are read, for people: the first few categories, and what they look like."""
        shown = " | ".join(value[:_MOST_SHOWN] for value in self.values[:_MOST_NAMED])
        more = len(self.values) - _MOST_NAMED
        odd = odd_form(dict.fromkeys(self.values, 1))
        return f"categories: {shown}{f' and {more} more' if more > 0 else ''}" + (
            f" ({odd})" if odd else ""
        )

    def decode(self, features: Floats) -> str:
        """What a cell was, for people: one of the categories, (other), or "" for a missing one.

        Args:
          features: (features,) of one record.
        """
        return (*self.values, "(other)", "")[int(np.argmax(features))]

    def encode(self, column: pa.Array) -> Floats:
        """Features of n cells, shape (n, features), one of them 1."""
        places = {value: place for place, value in enumerate(self.values)}
        other = len(self.values)
        # Models that learned from a missing `none` have no such category, and read it as they did.
        texts = cell_texts(column, ANSWERS & places.keys())
        hot = [other + 1 if t is None else places.get(t, other) for t in texts]
        return np.eye(other + 2)[np.array(hot, dtype=np.int64)]


Column = NumberColumn | CategoryColumn


@dataclass(frozen=True, kw_only=True)
class ReadCells:
    """How many cells of a column are what.

    Attributes:
      read: of numbers, those that are one.
      unread: of numbers, those that are given and none, which count as missing.
      imputed: those not given, where held-out records have all: they count as the mean, or as a
        category that no model learned from.
      clipped: of numbers, those beyond all that held-out records have.
      other: of categories, those without a feature of their own.
    """

    read: int = 0
    unread: int = 0
    imputed: int = 0
    clipped: int = 0
    other: int = 0


OnCells = Callable[[str, ReadCells], object]


@dataclass(frozen=True)
class TableEncoding:
    """How the columns of a table become the features of a record.

    Attributes:
      columns: in the order of the features.
    """

    columns: tuple[Column, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def always(self) -> tuple[str, ...]:
        """Columns in which every held-out record has a cell."""
        return tuple(
            column.name
            for column in self.columns
            if not (
                column.has_missing if isinstance(column, CategoryColumn) else column.marks_missing
            )
        )

    def encode(
        self, cells: pa.RecordBatch, on_cells: OnCells = lambda name, found: None
    ) -> NDArray[np.float32]:
        """Features of n rows, shape (n, features).

        Args:
          cells: the rows.
          on_cells: told of each column what its cells are.

        Raises:
          DataError: a column is not there.
        """
        there = set(cells.schema.names)  # made anew whenever it is asked for
        for column in self.columns:
            if column.name not in there:
                shown = (name for name in cells.schema.names if not name.startswith(" "))
                raise DataError(
                    f"the table has no column {column.name!r}, which the earlier one had; it has "
                    "{shown}",
                    shown=", ".join(shown),
                )
        parts = []
        for column in self.columns:
            own = cells.column(column.name)
            if isinstance(column, CategoryColumn):
                hot = column.encode(own)
                other, missing = hot[:, len(column.values) :].sum(axis=0)
                imputed = 0 if column.has_missing else int(missing)
                on_cells(column.name, ReadCells(other=int(other), imputed=imputed))
                parts.append(hot)
                continue
            values = column.read(own)
            on_cells(column.name, _read_cells(column, own, values))
            parts.append(column.encode(values))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def decode(self, features: Floats) -> dict[str, str]:
        """A record for people: what each column holds, see the columns' `decode`.

        Args:
          features: (features,) of the record.
        """
        cells: dict[str, str] = {}
        start = 0
        for column in self.columns:
            end = start + len(column.features)
            cells[column.name] = column.decode(features[start:end])
            start = end
        return cells

    def to_record(self) -> list[dict[str, Any]]:
        """The same as JSON."""
        kinds = {NumberColumn: "number", CategoryColumn: "category"}
        return [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]

    @classmethod
    def from_record(cls, record: Sequence[Mapping[str, Any]]) -> Self:
        """Reads what `to_record` wrote."""
        columns: list[Column] = []
        for each in record:
            values = {key: value for key, value in each.items() if key != "kind"}
            if each["kind"] == "number":
                columns.append(NumberColumn(**values))
            else:
                columns.append(
                    CategoryColumn(
                        name=values["name"],
                        values=tuple(values["values"]),
                        has_missing=values.get("has_missing", True),
                    )
                )
        return cls(tuple(columns))


def _read_cells(column: NumberColumn, cells: pa.Array, values: Floats) -> ReadCells:
    """What cells of a column of numbers are, of which `values` were read."""
    missing = np.isnan(values)
    count, unread = int(missing.sum()), given_among(cells, missing)
    return ReadCells(
        read=len(values) - count,
        unread=unread,
        imputed=0 if column.marks_missing else count - unread,
        clipped=int(((values < column.low) | (values > column.high)).sum()),
    )


@dataclass
class _Seen:
    """What held-out records have in one column."""

    there: int = 0
    rows: int = 0
    numbers: int = 0
    dates: int = 0
    is_boolean: bool = False
    texts: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    values: list[Floats] = field(default_factory=list)
    days: list[Floats] = field(default_factory=list)


class ColumnReader:
    """Learns of held-out records, batch by batch, how columns become numbers.

    Memory: eight bytes for each cell of each held-out record, sixteen where not all are numbers.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def read(self, cells: pa.RecordBatch) -> None:
        """Looks at some held-out records."""
        for name, column in zip(cells.schema.names, cells.columns, strict=True):
            seen = self._seen.setdefault(name, _Seen())
            texts = cell_texts(column, ANSWERS)
            seen.answers.update(text for text in texts if text in ANSWERS)
            given = [text for text in texts if text is not None and text not in ANSWERS]
            numbers = written_numbers(column)
            seen.rows += len(texts)
            seen.there += len(given)
            seen.is_boolean |= pt.is_boolean(column.type)
            seen.numbers += int((~np.isnan(numbers)).sum())
            seen.values.append(measurable(numbers))
            if seen.numbers < seen.there:
                seen.days.append(cell_days(column))
                seen.dates += int((~np.isnan(seen.days[-1])).sum())
            for text in given:
                if text in seen.texts or len(seen.texts) < _MOST_KEPT:
                    seen.texts[text] += 1

    def encoding(self) -> tuple[TableEncoding, dict[str, str]]:
        """How columns become numbers, and why some become none.

        Raises:
          DataError: no column is left.
        """
        columns: list[Column] = []
        left_out: dict[str, str] = {}
        for name, seen in self._seen.items():
            column = _column(name, seen)
            if isinstance(column, str):
                left_out[name] = column
            else:
                columns.append(column)
        texts = [name for name, why in left_out.items() if why == _TEXTS]
        if not columns and texts:
            raise DataError(
                "no column of the table is a number or a category; if {texts} hold texts, name one "
                "of them, or a pair, with --text A or --text A,B",
                texts=", ".join(texts),
            )
        odd = [name for name, why in left_out.items() if why in (COMMAS, DATES)]
        if not columns and odd:
            raise DataError(
                "no column of the table is a number or a category; write numbers as 27.3 and dates "
                "as 2024-12-31, which {odd} may hold in another form",
                odd=", ".join(odd),
            )
        if not columns:
            raise DataError(
                "no column of the table differs among held-out records; see its columns"
            )
        return TableEncoding(tuple(columns)), left_out

    def repeated(self, left_out: Collection[str]) -> tuple[str, ...]:
        """Columns of texts that are no features, and in which held-out records share one.

        Args:
          left_out: their names.
        """
        seen = {name: self._seen[name].texts for name in left_out if name in self._seen}
        return tuple(
            name
            for name, texts in seen.items()
            if len(texts) > 1 and max(texts.values()) > 1 and odd_form(texts) is None
        )


def _column(name: str, seen: _Seen) -> Column | str:
    """How one column becomes numbers, or why it becomes none."""
    enough = _NEARLY_ALL * seen.there  # one cell that is neither does not decide
    if not seen.is_boolean and len(seen.texts) > 2 and max(seen.numbers, seen.dates) >= enough:
        return _number(name, seen, dated=seen.numbers < seen.dates)
    texts, there = seen.texts + seen.answers, seen.there + seen.answers.total()
    if len(texts) < 2 and there in (0, seen.rows):
        return "is the same in all held-out records"
    if 2 * len(texts) > there and len(texts) > 2:
        return odd_form(texts) or _TEXTS
    frequent = texts.most_common(_MOST_VALUES)
    if len(texts) > _MOST_VALUES:
        frequent = [(text, count) for text, count in frequent if count >= _LEAST_SEEN]
        if sum(count for _, count in frequent) < _COVERED * there:
            return odd_form(texts) or _TEXTS
    values = tuple(sorted(text for text, _ in frequent))
    return CategoryColumn(name=name, values=values, has_missing=there < seen.rows)


def _number(name: str, seen: _Seen, *, dated: bool) -> NumberColumn | str:
    values = np.concatenate(seen.days if dated else seen.values)
    values = values[~np.isnan(values)]
    if not values.size:
        return _TOO_LARGE
    low, high = float(values.min()), float(values.max())
    logarithm = bool(high - values.mean() > _SKEWED * values.std())
    shown = np.log1p(values - low) if logarithm else values
    return NumberColumn(
        name=name,
        low=low,
        high=high,
        mean=float(shown.mean()),
        std=float(shown.std()) or 1.0,
        dated=dated,
        logarithm=logarithm,
        marks_missing=values.size < seen.rows,
    )
