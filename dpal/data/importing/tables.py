"""Tables: CSV, Parquet and JSON lines, whose rows are features, texts, or name pictures."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.types as pt

from dpal.data.class_names import class_names_in
from dpal.data.importing.cells import cell_names, cell_text, cell_texts, is_missing, name_text
from dpal.data.importing.importers import PART, TEST, OpenedSource, Part, RawLabel, Several
from dpal.data.importing.known_tables import KNOWN_TABLES, KnownTable
from dpal.data.importing.parts import drawn_part, part_of
from dpal.data.importing.picture_files import ENDINGS, NamedPicture, is_picture, picture_parts
from dpal.data.importing.settings import ImportSettings, Unsure
from dpal.data.parquet import read_batches, reading, schema_of
from dpal.data.pool_files import visible
from dpal.data.sources import Content
from dpal.data.texts import TEXT_COLUMNS
from dpal.errors import DataError

_LABELS = ("label", "labels", "class", "classes", "target", "targets", "category", "y", "income")
_PICTURES = ("image", "path", "file", "filename", "file_name", "image_path", "img")
_TEXTS = (
    ("text_a", "text_b"), ("sentence1", "sentence2"), ("premise", "hypothesis"),
    ("question1", "question2"), ("text",), ("text_a",), ("sentence",), ("review",),
)  # fmt: skip
_INDEX = ("", "unnamed: 0", "index", "__index_level_0__")  # what pandas writes beside a table
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")  # of a list as Python prints it
_ANSWERS = {"0": False, "0.0": False, "no": False, "false": False,
            "1": True, "1.0": True, "yes": True, "true": True}  # fmt: skip
_UNCERTAIN = ("-1", "-1.0")
_ODD_ROWS = "rows with more or fewer fields than the header"
_MOST_FIELDS = 4096  # of JSON lines together
LINE_BREAKS = "line breaks inside quotes, which may be rows that a stray quote swallowed"
NO_TEXT = "rows without a text"
_BLOCK = 2**22  # bytes of a file of texts that are read at a time


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
      cells: their columns.
      odd: how many rows were left out so far, as they could not be read, and not told of yet.
      breaks: how many line breaks those rows have.
      numbers: which rows of the table they are, from 1 on; None: those that come next.
      split: part of the source that their file is, where its name says so.
    """

    cells: pa.RecordBatch
    odd: int = 0
    breaks: int = 0
    numbers: Sequence[int] | None = None
    split: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table before its columns have a meaning.

    Attributes:
      place: its file, or the folder of its files.
      columns: their names, in order.
      rows: reads it once.
      schema: types of its columns; None: all are texts.
      classes: names of classes that its metadata declares.
      has_parts: whether its files say which part of the source they are.
    """

    place: Path
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Rows]]
    schema: pa.Schema | None = None
    classes: tuple[str, ...] = ()
    has_parts: bool = False


def open_csv(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a CSV or TSV file; fields may be quoted, and it may be compressed by gzip.

    Raises:
      DataError: it is empty, names a column twice, or a column that is asked for is not there.
    """
    with reading(place, "write it as CSV in UTF-8"):
        with _stream(place) as stream:
            start = stream.read(2**16).decode("utf-8-sig", errors="replace")
        line = start.partition("\n")[0].rstrip("\r")
        counts = {mark: line.count(mark) for mark in (",", "\t", ";", "|")}
        mark = max(counts, key=lambda each: counts[each])
        lines = csv.reader(io.StringIO(start, newline=""), delimiter=mark)
        first = [name.strip() for name in next(lines, [])]
    if "\ufffd" in line:
        raise DataError(f"{place} begins with what is no text; write it as CSV in UTF-8")
    if not any(first):
        raise DataError(f"{place} begins with an empty line; its first one names the columns")
    header = settings.header
    if header is None and (place.suffix.lower() == ".data" or _is_a_record(first)):
        raise DataError(
            f"{place} seems to begin with a record and no names of columns, which would be shown "
            "with every model; say which it is: --no-header (columns are column1, column2 and so "
            "on then) or --header"
        )
    names = first if header is not False else [f"column{k}" for k in range(1, len(first) + 1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{place} has two columns {{twice}}; give each a name of its own",
                        twice=repr(twice))  # fmt: skip
    before = 0 if header is False else lines.line_num
    return _opened(
        SourceTable(
            place=place,
            columns=tuple(names),
            rows=lambda: _csv_rows(place, names, mark, before),
        ),
        settings,
    )


def _is_a_record(first: Sequence[str]) -> bool:
    """Whether some names of columns are numbers, and do not just count the columns."""
    numbers = [name for name in first if _NUMBER.fullmatch(name)]
    counted = [[str(k + start) for k in range(len(numbers))] for start in (0, 1)]
    return bool(numbers) and numbers not in counted


def _stream(place: Path) -> Any:
    return pa.input_stream(str(place), compression="detect")


def _csv_rows(place: Path, names: Sequence[str], mark: str, before: int) -> Iterator[Rows]:
    """Rows after the lines that name the columns."""
    odd = deque[int]()  # numbers of rows that are left out and still ahead, in order
    told = found = breaks = done = 0

    def leave_out(row: Any) -> str:
        nonlocal found, breaks
        found += 1
        breaks += row.text.count("\n")
        odd.append(row.number - before)
        return "skip"

    with (
        reading(place, "write it as CSV in UTF-8"),
        pv.open_csv(
            _stream(place),
            read_options=pv.ReadOptions(
                column_names=list(names),
                skip_rows=before,
                block_size=_BLOCK,
                use_threads=False,  # else no row has a number
            ),
            parse_options=pv.ParseOptions(
                delimiter=mark, invalid_row_handler=leave_out, newlines_in_values=True
            ),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        ) as reader,
    ):
        for batch in reader:
            numbers = _numbers(done, batch.num_rows, set(odd))
            done = numbers[-1] if numbers else done
            while odd and odd[0] < done:
                odd.popleft()
            rows = Rows(batch, found - told, breaks, numbers)
            told, breaks = found, 0
            yield rows
        if found > told:  # after the last one that could be read
            none = [pa.array([], pa.string()) for _ in names]
            yield Rows(pa.record_batch(none, list(names)), found - told, breaks)


def _numbers(done: int, count: int, odd: Collection[int]) -> Sequence[int]:
    """Numbers of the next rows, where some are left out."""
    if not odd:
        return range(done + 1, done + count + 1)
    readable = (number for number in itertools.count(done + 1) if number not in odd)
    return list(islice(readable, count))


def open_jsonl(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a file of JSON objects, one a line; its held-out lines name the fields.

    Which fields there are goes with every model; so one that only private records have is none.

    Raises:
      DataError: a line is no object, or a field that is asked for is not there.
    """
    names, others = _fields(place, settings)
    table = SourceTable(place=place, columns=names, rows=lambda: _json_rows(place, names))
    opened = _opened(table, settings)
    unknown = dict.fromkeys(others, "no held-out record has")
    return replace(opened, left_out={**opened.left_out, **unknown})


def _fields(place: Path, settings: ImportSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of fields that held-out lines have, or all where nothing is held out; and others."""
    theirs, every, number = dict.fromkeys(settings.columns), dict[str, None](), 0
    for number, (_, value) in enumerate(_objects(place), start=1):
        every.update(dict.fromkeys(value))
        if _is_held_out(place, number, value, settings):
            theirs.update(dict.fromkeys(value))
        if len(every) > _MOST_FIELDS:
            raise DataError(
                f"the lines of {place} have more than {_MOST_FIELDS:,} fields together; give each "
                "record the same ones"
            )
    if not number:
        raise DataError(f"{place} is empty; it needs one JSON object a line")
    if len(theirs) == len(settings.columns):
        theirs.update(every)
    return tuple(theirs), tuple(name for name in every if name not in theirs)


def _is_held_out(place: Path, number: int, value: Mapping[str, Any], of: ImportSettings) -> bool:
    """Whether a line is held out, by what will decide that of its record."""

    def said(wanted: str | None, usual: str = "") -> str | None:
        name = wanted or next((key for key in value if key.lower() == usual), "")
        return _as_text(value.get(name))

    if of.held_out is None:
        return part_of(said(of.split, "split")) == TEST
    group = cell_text(said(of.group)) if of.group else None
    owner = group or name_text(said(of.id, "id")) or _made(place, number)
    return drawn_part(owner, of.held_out) == TEST


def _objects(place: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with reading(place), place.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if "\\u" in line:  # half of a pair of surrogates is no text
                    json.dumps(value, ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                raise DataError(
                    f"line {{line}} of {place} is no JSON object; correct it", line=number
                )
            yield number, value


def _json_rows(place: Path, names: Sequence[str]) -> Iterator[Rows]:
    held: list[dict[str, Any]] = []

    def batch() -> Rows:
        columns = [[_as_text(each.get(name)) for each in held] for name in names]
        return Rows(pa.record_batch([pa.array(c, pa.string()) for c in columns], list(names)))

    for _, value in _objects(place):
        held.append(value)
        if len(held) == 4 * PART:
            yield batch()
            held.clear()
    if held:
        yield batch()


def _as_text(value: Any) -> str | None:
    """A field of JSON as the cell of a table: lists stay JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


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

    def rows() -> Iterator[Rows]:
        for path, part in zip(files, parts, strict=True):
            for _, batch in read_batches(path, schema.names):
                yield Rows(batch, split=part)

    return _opened(
        SourceTable(
            place=place,
            columns=tuple(schema.names),
            rows=rows,
            schema=schema,
            classes=own or _hugging_face_names(schema),
            has_parts=len(set(parts)) > 1 and None not in parts,
        ),
        settings,
    )


def _part_in_name(path: Path) -> str | None:
    """The part that a file of Hugging Face says it is: train-00000-of-00002.parquet."""
    found = re.match(r"(train|test|validation|valid|val|dev)\b", path.name)
    return found.group(1) if found else None


def _hugging_face_names(schema: pa.Schema) -> tuple[str, ...]:
    """Names of classes in what the library `datasets` writes beside a schema."""
    try:
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = about["info"]["features"]
        for name in _LABELS:
            kind = features.get(name, {})
            names = kind.get("names") or kind.get("feature", {}).get("names")
            if names:
                return tuple(map(str, names))
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    return ()


@dataclass(frozen=True, kw_only=True)
class _Roles:
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


def _opened(table: SourceTable, settings: ImportSettings) -> OpenedSource:
    known = next((each for each in KNOWN_TABLES if each.columns <= set(table.columns)), None)
    roles = _roles(table, settings, known)
    labels = _LabelReader(table, settings, roles.labels, known)
    classes = settings.classes or labels.declared
    has_splits = roles.split is not None or table.has_parts
    named = roles.id is not None
    if roles.picture is not None or (known is not None and known.folder is not None):
        return OpenedSource(
            content=Content.IMAGE,
            parts=lambda: picture_parts(
                _pictures(table, settings, roles, labels, known),
                settings.picture_rule,
                settings.value_range,
            ),
            about=f"pictures named by {known.name if known else table.place.name}",
            classes=classes,
            has_splits=has_splits,
            named=named,
        )
    content = Content.TEXT if roles.texts else None
    if roles.features == ("features",) and _is_list(table, "features"):
        content = Content.FEATURES
    return OpenedSource(
        content=content,
        parts=lambda: _parts(table, settings, roles, labels, content),
        about="texts" if content is Content.TEXT else f"a table of {len(roles.features)} columns",
        classes=classes,
        has_splits=has_splits,
        named=named,
        left_out={} if roles.texts else _no_features(table, roles),
    )


def _no_features(table: SourceTable, roles: _Roles) -> dict[str, str]:
    """Columns that nobody asked to leave out, and that are no features for what they are."""
    if roles.features == ("features",):
        return {}
    taken = {*roles.labels, roles.id, roles.split, roles.group, *roles.features}
    left = [name for name in table.columns if name not in taken]
    return {name: "holds lists or bytes" for name in left if _is_nested(table, name)} | {
        name: "numbers the rows by its name" for name in left if name.lower() in _INDEX
    }


def _is_list(table: SourceTable, name: str) -> bool:
    if table.schema is None or name not in table.schema.names:
        return False
    return _is_list_type(table.schema.field(name).type)


def _is_list_type(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _roles(table: SourceTable, settings: ImportSettings, known: KnownTable | None) -> _Roles:
    by_name = {name.lower(): name for name in table.columns}

    def named(wanted: str | None, option: str) -> str | None:
        if wanted is not None and wanted not in table.columns:
            shown = ", ".join(table.columns[:30])
            raise DataError(f"{table.place} has no column {wanted!r}, which {option} names; it has "
                            "{shown}", shown=shown)  # fmt: skip
        return wanted

    def usual(names: Sequence[str]) -> str | None:
        return next((by_name[name] for name in names if name in by_name), None)

    labels = tuple(str(named(name, "--label")) for name in settings.labels)
    if not labels and known is not None:
        labels = known.labels
    if not labels and (found := usual(_LABELS)) is not None:
        labels = (found,)
    texts = tuple(str(named(name, "--text")) for name in settings.texts)
    picture = named(settings.picture, "--picture") or (known.picture if known else None)
    if picture is None and not texts:
        found = usual(_PICTURES)
        if found is not None and _names_pictures(table, found):
            picture = found
    if not texts and picture is None and settings.picture is None:
        for names in _TEXTS:
            if all(name in by_name and _holds_texts(table, by_name[name]) for name in names):
                texts = tuple(by_name[name] for name in names)
                break
    row_id = named(settings.id, "--id") or usual(("id",))
    split = named(settings.split, "--split") or usual(("split",))
    group = named(settings.group, "--group")
    taken = {*labels, row_id, split, group, picture, *texts, *settings.left_out}
    for name in settings.left_out:
        named(name, "--leave-out")
    if "features" in table.columns and _is_list(table, "features"):
        features: tuple[str, ...] = ("features",)
    elif settings.columns:
        lost = next((name for name in settings.columns if name not in table.columns), None)
        if lost is not None:
            raise DataError(f"{table.place} has no column {lost!r}, which the earlier table had; "
                            "it has {shown}", shown=", ".join(table.columns[:30]))  # fmt: skip
        features = settings.columns
    else:
        features = tuple(
            name for name in table.columns
            if name not in taken and name.lower() not in _INDEX and not _is_nested(table, name)
        )  # fmt: skip
    if not (features or texts or picture or (known and known.folder)):
        raise DataError(f"{table.place} has no column left to be a record; name one with --text or "
                        "--picture")  # fmt: skip
    return _Roles(labels=labels, id=row_id, group=group, split=split, texts=texts,
                  picture=picture, features=features)  # fmt: skip


def _is_nested(table: SourceTable, name: str) -> bool:
    return table.schema is not None and bool(
        pt.is_nested(kind := table.schema.field(name).type)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_fixed_size_binary(kind)
    )


def _holds_texts(table: SourceTable, name: str) -> bool:
    if table.schema is None:
        return True
    kind = table.schema.field(name).type
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _names_pictures(table: SourceTable, name: str) -> bool:
    """Whether a column holds pictures, or the first cell that is not missing is one's name."""
    if table.schema is not None:
        kind = table.schema.field(name).type
        if pt.is_binary(kind) or pt.is_large_binary(kind):
            return True
        if pt.is_struct(kind):
            return "bytes" in [kind.field(i).name for i in range(kind.num_fields)]
    if not _holds_texts(table, name):
        return False
    first = next((rows for rows in table.rows() if rows.cells.num_rows), None)
    names = [] if first is None else cell_texts(first.cells.column(name))
    given = next((each for each in names if each is not None), "")
    return given.lower().endswith(ENDINGS)


@dataclass(frozen=True)
class _LabelReader:
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
        return self.settings.separator or (self.known.separator if self.known else None)

    def read(self, cells: pa.RecordBatch) -> list[RawLabel]:
        """The label of each row.

        Raises:
          DataError: one of several labels is neither 0, 1, -1 nor blank.
        """
        if not self.columns or self.settings.whole:
            return [None] * cells.num_rows
        declared = frozenset(self.settings.classes or self.table.classes)
        if len(self.columns) > 1:
            texts = [cell_texts(cells.column(name)) for name in self.columns]
            return [self._of_columns(row) for row in zip(*texts, strict=True)]
        column = cells.column(self.columns[0])
        if _is_list_type(column.type):
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
        if text is None:
            return None
        separator = self.separator
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
        return [one or other for one, other in _QUOTED.findall(text)]
    return [str(each) for each in value] if isinstance(value, list) else []


def _parts(
    table: SourceTable,
    settings: ImportSettings,
    roles: _Roles,
    labels: _LabelReader,
    content: Content | None,
) -> Iterator[Part]:
    """Rows whose records are texts, lists of features, or cells."""
    done, columns = 0, roles.texts if roles.texts else roles.features
    for rows in table.rows():
        cells, dropped, noted = rows.cells, {_ODD_ROWS: rows.odd}, {LINE_BREAKS: rows.breaks}
        numbers = rows.numbers or range(done + 1, done + cells.num_rows + 1)
        done += cells.num_rows
        ids = _ids(table, cells, roles.id, numbers)
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
            splits=_splits(cells, roles.split, rows.split),
            groups=_column(cells, roles.group),
            records=records,
            dropped=dropped,
            noted=noted,
        )


def _line_breaks(cells: pa.RecordBatch) -> int:
    """How many there are in cells: a quote that nobody closed swallows the rows after it."""
    columns = [each for each in cells.columns if pt.is_string(each.type)]
    return sum(pc.sum(pc.count_substring(each, "\n")).as_py() or 0 for each in columns)


def _ids(
    table: SourceTable, cells: pa.RecordBatch, column: str | None, numbers: Sequence[int]
) -> list[str]:
    """Names of rows: their own, or those of their file and number."""
    made = [_made(table.place, number) for number in numbers]
    if column is None:
        return made
    own = cell_names(cells.column(column))
    return [given or other for given, other in zip(own, made, strict=True)]


def _made(place: Path, number: int) -> str:
    """The name of a row that has none."""
    return f"{place.name.partition('.')[0]}-{number}"


def _column(cells: pa.RecordBatch, name: str | None) -> list[str | None]:
    return [None] * cells.num_rows if name is None else cell_texts(cells.column(name))


def _splits(cells: pa.RecordBatch, name: str | None, of_file: str | None) -> list[str | None]:
    return [of_file] * cells.num_rows if name is None else cell_texts(cells.column(name))


def _pictures(
    table: SourceTable,
    settings: ImportSettings,
    roles: _Roles,
    labels: _LabelReader,
    known: KnownTable | None,
) -> Iterator[NamedPicture]:
    """Pictures that the rows of a table name or hold."""
    base = settings.pictures or (table.place if table.place.is_dir() else table.place.parent)
    finder, done = _PictureFinder(base), 0
    for rows in table.rows():
        cells = rows.cells
        made = _ids(
            table, cells, roles.id, rows.numbers or range(done + 1, done + cells.num_rows + 1)
        )
        done += cells.num_rows
        said, splits = labels.read(cells), _splits(cells, roles.split, rows.split)
        groups = _column(cells, roles.group)
        if known is not None and roles.group is None:
            described = cells.select(list(known.columns)).to_pylist()
            groups = [known.group({k: str(v) for k, v in row.items()}) for row in described]
        if known is not None and known.folder is not None:
            for position, row in enumerate(cells.select(list(known.columns)).to_pylist()):
                folder = known.folder({key: str(value) for key, value in row.items()})
                for path in finder.all_in(folder):
                    yield NamedPicture(
                        id=str(path.relative_to(base)),
                        place=path,
                        label=said[position],
                        split=splits[position],
                        group=groups[position],
                    )
            continue
        if roles.picture is None:
            continue
        for position, value in enumerate(cells.column(roles.picture).to_pylist()):
            place, name = finder.find(value), made[position]
            if isinstance(value, str) and roles.id is None:
                name = value
            yield NamedPicture(
                id=name,
                place=place,
                label=said[position],
                split=splits[position],
                group=groups[position],
            )


class _PictureFinder:
    """Finds pictures by what a table calls them: by their path, or by their name alone."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._by_name: dict[str, Path | None] | None = None

    def find(self, value: Any) -> Path | bytes | None:
        """The file of a picture, or its bytes where the table holds them."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, Mapping):
            return value.get("bytes") or self.find(value.get("path"))
        if is_missing(value):
            return None
        named = Path(str(value).strip())
        parts = [part for part in named.parts if part != named.anchor]
        # A table may say from where its publisher had the folder: CheXpert-v1.0/train/...
        for start in range(len(parts)):
            path = self._base.joinpath(*parts[start:])
            if ".." not in parts and path.is_file():
                return path
        if self._by_name is None:
            self._by_name = {}
            for place in filter(is_picture, self._base.rglob("*")):
                # None: two have that name, and nobody knows which one is meant.
                self._by_name[place.name] = None if place.name in self._by_name else place
        return self._by_name.get(named.name)

    def all_in(self, folder: str) -> list[Path]:
        """All pictures of a folder, wherever below the base its path begins."""
        for above in (self._base, self._base / "files"):
            if (above / folder).is_dir():
                return sorted(path for path in (above / folder).iterdir() if is_picture(path))
        return []
