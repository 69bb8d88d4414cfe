"""A person answers: query.csv goes out, labels.csv comes in.

The column `label` takes a class number or name; a name alone where classes are called by numbers,
as ratings are. Where a record may have several labels it takes all that apply, separated by
semicolons ("3;7", "rain;dusk"), and `none` where none does: an empty cell is a record that nobody
has looked at yet, in either case. Ids and texts are written so that no spreadsheet computes them,
and ids are read back so.

Several people may label one record: with a column `annotator`, an id has a row of each. What they
said is merged before anything is trained, and a record has one label and one contribution.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path

from dpal.data.labeling_state import read_labels
from dpal.data.sources import Content, Source
from dpal.errors import LabelError, LabelsPending, ParameterError
from dpal.files.atomic_writes import atomic_write
from dpal.files.csv_injection import as_cell, by_cell
from dpal.labeling.label_aggregation import Opinion, UnlabeledReason, agree
from dpal.labeling.label_studio_questions import Question
from dpal.labeling.label_studio_rules import Agreement
from dpal.labeling.record_display import pictures_of, shown_cells, shown_columns, texts_of
from dpal.labeling.suggest_callback import Suggest, no_suggestions
from dpal.labels import Label, Task

QUERY = "query.csv"
_THUMBNAILS = "thumbnails"
_SHOWN = 5  # rows named in one message
_NONE = "none"
_ANSWERS = ("id", "label", "annotator")  # columns that are read back
_LONGEST_CELL = 2**24  # characters; a query has whole texts of records
_SUGGESTED = "suggested"  # not read back: whoever agrees says so


@dataclass(frozen=True)
class FileLabeler:
    """Writes a query and waits until its answers are delivered.

    Attributes:
      source: the pool.
      folder: where the query is written.
      delivered: where `accept_labels` puts valid answers.
      command: what the person runs with the answers, for the message.
      question: that is asked about each record; needed where anything is suggested.
      suggest: what people see beside the answer that they give, in the column `suggested`.
    """

    source: Source
    folder: Path
    delivered: Path
    command: str
    question: Question | None = None
    suggest: Suggest = no_suggestions

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        """Returns delivered answers, or writes the query and says what to do."""
        if self.delivered.exists():
            return read_labels(self.delivered)
        query = self.folder / QUERY
        if not query.exists():
            self._write(ids, query)
        raise LabelsPending(str(query), self.command)

    def _write(self, ids: Sequence[str], query: Path) -> None:
        columns, shown = self._shown(ids)
        suggested = {name: self._said(label) for name, label in self.suggest(ids).items()}
        if suggested:
            columns = [_SUGGESTED, *columns]
            shown = {name: [suggested.get(name, ""), *shown.get(name, ())] for name in ids}
        with (
            atomic_write(query) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as out,
        ):
            # Quoted, so that a separator of another country's spreadsheets opens no new cell.
            writer = csv.writer(out, quoting=csv.QUOTE_ALL)
            writer.writerow(["id", "label", *map(_header, columns)])
            for name in ids:
                writer.writerow([as_cell(name), "", *map(as_cell, shown.get(name, ()))])

    def _said(self, label: Label) -> str:
        """A label as the column `label` takes it."""
        if self.question is None:
            raise ParameterError("labels are suggested, and nothing says how they are called")
        names = self.question.choices
        if isinstance(label, int):
            return names[label]
        return ";".join(compress(names, label)) or _NONE

    def _shown(self, ids: Sequence[str]) -> tuple[Sequence[str], Mapping[str, Sequence[str]]]:
        """What a person sees of each record, and the names of its columns."""
        if self.source.content is Content.IMAGE:
            pictures = self._thumbnails(ids)
            return ["image"], {name: [picture] for name, picture in pictures.items()}
        if self.source.content is Content.TEXT:
            return self.source.texts, self._texts(ids)
        return shown_columns(self.source), shown_cells(self.source, ids)

    def _texts(self, ids: Sequence[str]) -> dict[str, list[str]]:
        return texts_of(self.source, ids)

    def _thumbnails(self, ids: Sequence[str]) -> dict[str, str]:
        """Writes one PNG a record and returns their names; numbered, as ids may hold anything."""
        pictures: dict[str, str] = {}
        for name, picture in pictures_of(self.source, ids):
            pictures[name] = f"{_THUMBNAILS}/{len(pictures) + 1:05d}.png"
            with atomic_write(self.folder / pictures[name]) as temporary:
                temporary.write_bytes(picture)
        return pictures


@dataclass(frozen=True, kw_only=True)
class AcceptedLabels:
    """Answers that fit a query.

    Attributes:
      labels: one for each id of the query.
      opinions: what people said of each record, before it was merged into one label.
    """

    labels: dict[str, Label]
    opinions: list[list[Opinion]]


def _header(name: str) -> str:
    """A column's name, none that answers have, and no formula."""
    return as_cell(f"{name} (of the record)" if name in _ANSWERS else name)


def accept_labels(
    path: Path,
    query: Sequence[str],
    *,
    classes: int,
    class_names: Sequence[str],
    task: Task = Task.SINGLE_LABEL,
) -> AcceptedLabels:
    """Reads a person's answers, whole or not at all.

    Args:
      path: CSV with the columns `id` and `label`, filled in as the module says. With a column
        `annotator` an id may have a row of each person, of which its label is the majority.
      query: the ids that were asked for.
      classes: number of classes or labels.
      class_names: their names, or nothing.
      task: what a label is.

    Returns:
      One class, or a 0 or 1 for each label, for each id of the query.

    Raises:
      LabelError: rows (numbered as in a spreadsheet, the header being row 1) are unknown,
        repeated, contradictory, missing, undecided or out of range. Nothing was merged.
    """
    by_name = {name: number for number, name in enumerate(class_names)}
    asked = by_cell(query)
    unknown: list[int] = []
    repeated: list[int] = []
    conflicting: list[int] = []
    invalid: list[int] = []
    opinions: dict[str, dict[str, Label]] = {}  # of each id, by person
    last: dict[str, int] = {}
    multi = task is Task.MULTI_LABEL
    read = partial(_some_labels, size=classes) if multi else _class_number
    # Where a class is called 1, nobody can tell its name from a number that counts from 0.
    numbers = 0 if any(name.strip().isdecimal() for name in class_names) else classes
    for number, written, text, annotator in _rows(path):
        name = asked.get(written, asked.get(written.strip()))
        label = read(text, by_name, numbers)
        if name is None:
            unknown.append(number)
        elif not text:
            continue  # not answered yet
        elif label is None:
            invalid.append(number)
        elif (said := opinions.setdefault(name, {})).get(annotator) is not None:
            (repeated if said[annotator] == label else conflicting).append(number)
        else:
            said[annotator], last[name] = label, number
    answers, undecided = _merged(opinions)
    counted = f"0 to {classes - 1}, or " if numbers else ""
    problems = [
        _describe(
            sorted(last[name] for name in undecided),
            "the last of several opinions of which no label has most; let one person decide",
        ),
        _describe(unknown, "an id that was not asked for"),
        _describe(conflicting, "another label for an id above"),
        _describe(repeated, "an id a second time"),
        _describe(
            invalid,
            f"what are no labels ({counted}names, with ; between them, or {_NONE})"
            if multi
            else f"a label that is no class ({counted}a name)",
        ),
    ]
    # The header of query.csv is row 1, its first id row 2.
    missing = [row for row, name in enumerate(query, start=2) if name not in opinions]
    if missing and not invalid:
        verb = "has" if len(missing) == 1 else "have"
        problems.append(
            f"{len(missing)} of {len(query)} ids {verb} no label, "
            f"{_rows_named(missing)} of query.csv"
        )
    mistakes = [problem for problem in problems if problem]
    if mistakes:
        raise LabelError(
            f"{path}: {{problems}}; correct the file, nothing was merged",
            problems="; ".join(mistakes),
        )
    return AcceptedLabels(
        labels={name: answers[name] for name in query},
        opinions=[
            [Opinion(said=label, annotator=who) for who, label in said.items()]
            for said in opinions.values()
        ],
    )


def _merged(opinions: Mapping[str, Mapping[str, Label]]) -> tuple[dict[str, Label], list[str]]:
    """One label of each id out of what people said of it alone; and the ids where none has most."""
    answers: dict[str, Label] = {}
    undecided: list[str] = []
    for name, said in opinions.items():
        merged = agree(list(said.values()), annotators=len(said), agreement=Agreement.MAJORITY)
        if isinstance(merged, UnlabeledReason):
            undecided.append(name)
        else:
            answers[name] = merged
    return answers, undecided


def _rows(path: Path) -> list[tuple[int, str, str, str]]:
    """Row number, id, label, and who gave it; nobody where the file has no such column."""
    if not path.is_file():
        raise LabelError(f"{path} does not exist; fill in query.csv and pass its path")
    rows: list[tuple[int, str, str, str]] = []
    longer: list[int] = []
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            places = _places(path, header)
            # A text may have several lines: rows are counted as a spreadsheet does.
            for number, cells in enumerate(reader, start=2):
                if any(cells[len(header) :]):
                    longer.append(number)
                elif cells:  # and no empty line
                    whole = [*cells, *[""] * len(header)]
                    name, label, who = (
                        whole[places[column]] if column in places else "" for column in _ANSWERS
                    )
                    rows.append((number, name, label.strip(), who.strip()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabelError(
            f"{path} is not a CSV file in UTF-8 (a spreadsheet offers to save as one); nothing was "
            "merged"
        ) from error
    finally:
        csv.field_size_limit(before)
    if longer:
        raise LabelError(
            f"{path}: {{rows}} more cells than the first row; put quotes around a cell with "
            "commas, and ; between several labels, nothing was merged",
            rows=f"{_rows_named(longer)} {'has' if len(longer) == 1 else 'have'}",
        )
    return rows


def _places(path: Path, header: Sequence[str]) -> dict[str, int]:
    """Where the columns are that are read.

    Raises:
      LabelError: one is missing, or is there more than once.
    """
    twice = [name for name in _ANSWERS if header.count(name) > 1]
    if twice or not {"id", "label"} <= set(header):
        raise LabelError(
            f"{path} needs the columns id and label once each in its first row, separated by "
            "commas, and has {found}; nothing was merged",
            found=", ".join(header) or "nothing",
        )
    return {name: header.index(name) for name in _ANSWERS if name in header}


def _class_number(text: str, by_name: Mapping[str, int], classes: int) -> int | None:
    """A class by its name, or by its number if that is below `classes`."""
    if text in by_name:
        return by_name[text]
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    # A number of thousands of digits is none that Python would convert.
    return int(digits) if len(digits) <= len(str(classes)) and int(digits) < classes else None


def _some_labels(text: str, by_name: Mapping[str, int], classes: int, *, size: int) -> Label | None:
    """Zeros and ones; a name goes before the word for none of them."""
    if text not in by_name and text.lower() == _NONE:
        return (0,) * size
    parts = [text] if text in by_name else text.split(";")
    numbers = [_class_number(part.strip(), by_name, classes) for part in parts]
    # A label written twice was probably meant to be another one.
    if None in numbers or len(set(numbers)) < len(numbers):
        return None
    return tuple(int(number in numbers) for number in range(size))


def _describe(rows: Sequence[int], what: str) -> str:
    if not rows:
        return ""
    return f"{_rows_named(rows)} {'gives' if len(rows) == 1 else 'give'} {what}"


def _rows_named(rows: Sequence[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"
