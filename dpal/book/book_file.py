"""The file of a book: which runs fill which table, and what was printed elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from dpal.book.axes import Axis, require_axis, values_of
from dpal.config.section import Count, Fraction, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError

SET = "set"  # the axis of data sets
Settings = dict[str, Any]  # dotted keys, such as privacy.epsilon


class Pollution(Section):
    """Records among the public ones that are of something else, with labels that are wrong here."""

    file: str
    """Parquet file whose records (those with split train) they are."""
    share: Fraction
    """Of the public records."""


class BookSet(Section):
    """A public data set, and how it is divided: into a pool, records to choose by, and a test."""

    train: str
    """Parquet file whose records (those with split train) become pool and validation records."""
    test: str | None = None
    """Parquet file whose records (those with split test) judge; null is the same file."""
    pool: Count
    """Records of the pool, at most."""
    validation: Count
    """Records that a run may choose by; never those that judge."""
    judged: Count
    """Test records, at most."""
    public: int = Field(0, ge=0)
    """Records that nobody protects, for kinds of runs that label such."""
    side: Count | None = None
    """Pixels of a side to which pictures are resized; null leaves them."""
    features: Literal["none", "scattering", "coarse_scattering"] = "none"
    """Fixed public features that are made once of all pictures."""
    pollution: Pollution | None = None
    """Of the public records; the report counts how many of these are chosen. Null is none."""
    tail: Fraction | None = None
    """Keeps a record of class c in the pool with chance tail^c; null keeps all."""
    logit_noise: float | None = Field(None, gt=0)
    """Of a linear model: rate and clipping norm follow from the plan, so that noise moves a logit
    by about this much; null leaves them as settings have them."""
    settings: Settings = Field(default_factory=dict)
    """Settings of all runs on it."""
    is_what: str
    """What it is, in a sentence: what was left out, lost or made smaller."""
    stands_for: str = ""
    """The data set of the source that it stands in for; empty where it is that one."""

    @model_validator(mode="after")
    def _polluted(self) -> Self:
        if self.pollution is not None and not self.public:
            raise ValueError(
                "pollution is of public records, and the set has none; give it some with public, "
                "or leave pollution out"
            )
        return self

    @property
    def division(self) -> dict[str, Any]:
        """Whatever decides which record is in which part.

        Cells are known by it: what came later has a place in it only where a set has it.
        """
        words = {"is_what", "stands_for", "settings"}
        later = {"pollution"} if self.pollution is None else set()
        return self.model_dump(mode="json", exclude=words | later)


class Printed(Section):
    """A number that a source printed."""

    row: str
    column: str
    value: float
    """In the source's unit; shares in per cent."""
    sd: float | None = Field(None, ge=0)
    """Standard deviation that was printed with it."""
    runs: Count | None = None
    """Over how many runs."""
    at: str
    """Table, row and column, or the sentence, of the source."""
    under_noised: str = ""
    """What its claim of privacy truly is, where that is weaker than printed; empty where nothing
    is known against it."""


class BookClaim(Section):
    """A difference between two rows that a source states, in words and perhaps in points."""

    says: str
    """In words."""
    at: str
    """Where."""
    row: str
    """The row that is said to be better."""
    than: str
    """The row that it is compared with."""
    columns: list[str] = Field(default_factory=list)
    """Where it is tested; empty is everywhere."""
    points: float | None = None
    """The difference that was printed, in points."""
    within: float | None = Field(None, gt=0)
    """Of a claim that both are alike: by how many points they may differ."""
    under_noised: str = ""
    """As of a printed number."""


class BookTable(Section):
    """One table of a book: rows, columns, and runs that fill its cells."""

    name: Name
    title: str
    source: str = ""
    """Which table or figure of which source it is about; needed for printed numbers and claims."""
    settings: Settings = Field(default_factory=dict)
    """Of all its runs."""
    grid: dict[str, Axis]
    """Axes, each with its values."""
    columns: str
    """The axis that stands across; all others are rows."""
    seeds: list[int] | None = None
    """Null: those of the book."""
    figure: str | None = None
    """Which figure of the test records is shown; null is the headline."""
    unit: Literal["percent", "count"] = "percent"
    """Of the figure: a share, shown in per cent, or a number of something."""
    curves: bool = True
    """Whether learning curves are drawn."""
    drawn: list[str] = Field(default_factory=list)
    """Rows of the curves; empty is all of them, eight at most."""
    printed: list[Printed] = Field(default_factory=list)
    claims: list[BookClaim] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)
    """Rows and columns of the source that are not here, and why, a sentence each."""

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        if (self.printed or self.claims or self.missing) and not self.source.strip():
            raise ValueError(
                f"table {self.name} sets what a source says beside its own numbers; say in source "
                "which table or figure of which source that is"
            )
        return self

    @model_validator(mode="after")
    def _axes(self) -> Self:
        for axis, values in self.grid.items():
            require_axis(axis, values)
        if self.columns not in self.grid:
            raise ValueError(
                f"table {self.name} has no axis {self.columns!r} for its columns; use one of its "
                f"grid: {', '.join(self.grid)}"
            )
        rows = set(self.rows)
        columns = {name for name, _ in values_of(self.columns, self.grid[self.columns])}
        named = [(printed.row, rows, "row") for printed in self.printed]
        named += [(printed.column, columns, "column") for printed in self.printed]
        named += [(row, rows, "row") for row in self.drawn]
        for claim in self.claims:
            named += [(claim.row, rows, "row"), (claim.than, rows, "row")]
            named += [(column, columns, "column") for column in claim.columns]
        for name, known, what in named:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
                )
                raise ValueError(f"table {self.name} has no {what} {name!r}; {hint}")
        return self

    @property
    def rows(self) -> list[str]:
        """Names of its rows: values of all axes but that of the columns, in order."""
        axes = [list(values_of(axis, values)) for axis, values in self.grid.items()
                if axis != self.columns]  # fmt: skip
        return [", ".join(name for name, _ in chosen) for chosen in product(*axes)]


class Book(Section):
    """A book of results on public records."""

    name: Name
    title: str
    about: str
    """What it is, for a reader who knows the source."""
    public: bool = False
    """That every record of its sets is public. No book runs without it."""
    why: str = ""
    """What makes that true."""
    protocol: str
    """In a sentence: what chooses, and what judges."""
    settings: Settings = Field(default_factory=dict)
    """Of all runs."""
    sets: dict[str, BookSet]
    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2])
    """Each decides which public records are the pool, and initial weights. Never noise."""
    tables: list[BookTable]

    @model_validator(mode="after")
    def _declared(self) -> Self:
        if not self.public or not self.why.strip():
            raise ValueError(
                "a book runs on public records alone and shows every figure of them; declare "
                "public: true, and say in why what makes that true of its sets"
            )
        twice = [name for name, count in Counter(table.name for table in self.tables).items()
                 if count > 1]  # fmt: skip
        if twice:
            raise ValueError(f"two tables are named {twice[0]}; give each a name of its own")
        for seeds in (self.seeds, *(table.seeds for table in self.tables if table.seeds)):
            if len({*seeds}) < max(1, len(seeds)):
                raise ValueError(
                    f"a book runs each of its seeds once, and seeds is {seeds}; list at least one, "
                    "and none twice"
                )
        for table in self.tables:
            if SET not in table.grid:
                raise ValueError(f"table {table.name} names no set; add the axis set to its grid")
            if isinstance(table.grid[SET], dict):
                raise ValueError(f"the axis set of table {table.name} is a list of names")
            for named in table.grid[SET]:
                if named not in self.sets:
                    raise ValueError(
                        f"table {table.name} names the set {named!r}, which the book does not "
                        f"have; its sets are {', '.join(self.sets)}"
                    )
        return self

    def table(self, name: str) -> BookTable:
        """The table of a name.

        Raises:
          ConfigError: there is none.
        """
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in self.tables)
        raise ConfigError(f"the book {self.name} has no table {name!r}; it has {known}")


def parse_book(values: Mapping[str, Any]) -> Book:
    """Checks a book.

    Raises:
      ConfigError: it is not declared public, or a key, an axis or a set is not known.
    """
    try:
        return Book.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, Book) from error


def read_book(file: Path) -> Book:
    """Reads a book.

    Raises:
      ConfigError: as `parse_book`, or it cannot be read.
    """
    try:
        values = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the book {file} cannot be read; check the path") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the book {file} is not YAML that can be read") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no book; docs/books.md shows one")
    return parse_book(values)
