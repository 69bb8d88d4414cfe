"""Ballots of an ensemble that somebody else trained, from Parquet files.

Either one file with a row for each teacher and query (`id`, `teacher`), or a file for each
teacher (`id`; its name is the teacher's). A ballot is a column `ballot` (a list with a 0 or 1
for each label), `scores` (a list of probabilities, cut at a public threshold) or `class` (a
class number, for single-label data). `class_names` in the metadata name the labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from dpal import check
from dpal.data.class_names import class_names_in
from dpal.data.label_columns import MOST_CLASSES
from dpal.data.parquet import read_batches, reading, schema_of
from dpal.data.pool_files import files_of
from dpal.errors import DataError
from dpal.labels import UNKNOWN

_KINDS = ("ballot", "scores", "class")
_refuse = DataError.before_release  # ballots are read before anything is asked of them
_ROOM = 16  # ballots that a table of all queries and teachers may be larger than those given


@dataclass(frozen=True, eq=False, kw_only=True)
class CastBallots:
    """What every teacher said on every query. Private.

    Attributes:
      queries: (q,) ids of the queries, in the order of the file.
      teachers: (n,) names.
      names: of labels or classes; empty where the file has none.
      votes: (q, n, k) zeros and ones; or (q, n) class numbers.
    """

    queries: tuple[str, ...]
    teachers: tuple[str, ...]
    names: tuple[str, ...]
    votes: NDArray[np.uint8] | NDArray[np.int64]

    @property
    def single_label(self) -> bool:
        """Whether teachers name one class each."""
        return self.votes.ndim == 2


def read_ballots(places: Sequence[Path], *, cut: float = 0.5) -> CastBallots:
    """Reads ballots and requires one of every teacher on every query.

    Args:
      places: one file, several, or a folder of them.
      cut: scores above it are a vote for yes; public.

    Raises:
      DataError: a file is no such file, ballots are missing, empty, said twice or are not of
        one set of labels. Nothing was released.
    """
    check.within(0, 1, cut=cut)
    files = [file for place in places for file in files_of(place)]
    opened = [_Opened.of(file) for file in files]
    kind, names = opened[0].kind, opened[0].names
    for other in opened[1:]:
        if other.kind != kind or other.names != names:
            raise _refuse(
                f"{other.path.name} and {opened[0].path.name} are of other labels: {other.labels} "
                f"and {opened[0].labels}; all teachers vote on the same ones"
            )
    queries, teachers, positions = _index([pair for file in opened for pair in file.voted()])
    votes = _votes(opened, kind, positions, (len(queries), len(teachers)), cut)
    if names and votes.ndim == 3 and len(names) != votes.shape[2]:
        raise _refuse(
            f"{opened[0].path} names {len(names)} labels and its ballots have {votes.shape[2]}; "
            "correct class_names"
        )
    return CastBallots(queries=queries, teachers=teachers, names=names, votes=votes)


def read_budgets(file: Path, teachers: Sequence[str]) -> dict[float, list[int]]:
    """Reads which teachers promise their records less than others do; public.

    Args:
      file: Parquet with `teacher` and `epsilon`; teachers that are not in it have no budget of
        their own.
      teachers: that voted.

    Returns:
      Numbers of teachers, by the epsilon that they promise.

    Raises:
      DataError: it is no such file, or names a teacher twice or one that did not vote.
    """
    schema = ballots_schema(file)
    if not {"teacher", "epsilon"} <= set(schema.names):
        raise _refuse(f"{file} needs the columns 'teacher' and 'epsilon' of budgets")
    table = read_columns(file, ["teacher", "epsilon"])
    named = [str(name) for name in table.column("teacher").to_pylist()]
    places = {name: at for at, name in enumerate(teachers)}
    if len(set(named)) < len(named):
        raise _refuse(f"{file} has a teacher twice; give each one budget")
    unknown = [name for name in named if name not in places]
    if unknown:
        raise _refuse(
            f"{file} has a budget of {unknown[0]!r}, and no teacher of that name voted; correct it"
        )
    found: dict[float, list[int]] = {}
    for name, value in zip(named, table.column("epsilon").to_pylist(), strict=True):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < math.inf
        ):
            raise _refuse(f"{file} gives {name!r} an epsilon that is no number above 0; correct it")
        found.setdefault(float(value), []).append(places[name])
    return found


def public_labels(file: Path, column: str = "label") -> NDArray[np.uint8]:
    """Lists of labels of public records, (records, labels) zeros and ones.

    Raises:
      DataError: the file has none.
    """
    schema = ballots_schema(file)
    kind = schema.field(column).type if column in schema.names else None
    if kind is None or not _is_list(kind):
        raise _refuse(f"{file} has no column {column!r} with lists of labels")
    values = read_columns(file, [column]).column(0).combine_chunks()
    if not len(values):
        raise _refuse(f"{file} has no rows")
    return np.asarray(_numbers(values, "ballot", file, 0.5), dtype=np.uint8)


def true_labels(file: Path, cast: CastBallots) -> NDArray[np.int64]:
    """True labels of the queries that were voted on, for judging answers.

    Args:
      file: Parquet with `id` and `label`: a class number, or a list of zeros and ones; -1 where not
        known. Other ids are left out.
      cast: the ballots.

    Returns:
      (q,) classes or (q, k) labels, in the order of the queries.

    Raises:
      DataError: it is no such file, or a query is missing, or there twice.
    """
    schema = ballots_schema(file)
    if not {"id", "label"} <= set(schema.names):
        raise _refuse(f"{file} needs the columns 'id' and 'label' of true labels")
    table = read_columns(file, ["id", "label"])
    ids = [str(one) for one in table.column("id").to_pylist()]
    places = {one: at for at, one in enumerate(ids)}
    if len(places) < len(ids):
        raise _refuse(f"{file} has an id twice")
    missing = sum(query not in places for query in cast.queries)
    if missing:
        raise _refuse(f"{file} lacks {missing} of the queries that teachers voted on")
    said = [table.column("label")[places[query]].as_py() for query in cast.queries]
    width = () if cast.single_label else cast.votes.shape[2:]
    highest = max(1, len(cast.names) - 1) if cast.single_label else 1
    try:
        labels = np.array(said)
        sound = labels.dtype.kind == "i" and labels.shape == (len(said), *width)
    except ValueError:  # lists of several lengths
        sound = False
    if not sound or ((labels < UNKNOWN) | (labels > highest)).any():
        wanted = "a class number" if cast.single_label else f"a list of {width[0]} zeros and ones"
        raise _refuse(f"a true label in {file} is not {wanted}, or -1 where it is not known")
    return labels.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class _Opened:
    path: Path
    kind: str
    names: tuple[str, ...]
    teacher: str | None  # None where the file has a column of them

    @classmethod
    def of(cls, path: Path) -> _Opened:
        schema = ballots_schema(path)
        kinds = [name for name in _KINDS if name in schema.names]
        if "id" not in schema.names or len(kinds) != 1:
            raise _refuse(
                f"{path} needs the columns 'id' (of the query) and one of 'ballot', 'scores' and "
                f"'class', and has {', '.join(schema.names)}"
            )
        require_texts(schema, [name for name in ("id", "teacher") if name in schema.names], path)
        column = schema.field(kinds[0]).type
        listed = _is_list(column)
        if listed is (kinds[0] == "class"):
            wanted = "a class number" if kinds[0] == "class" else "a list with one number a label"
            raise _refuse(f"column {kinds[0]!r} of {path} is {column}, not {wanted}")
        return cls(
            path=path,
            kind=kinds[0],
            names=class_names_in(schema, str(path)),
            teacher=None if "teacher" in schema.names else path.stem,
        )

    @property
    def labels(self) -> str:
        """How to call what it votes on."""
        return f"{self.kind} of {', '.join(self.names) or 'unnamed labels'}"

    def voted(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Query and teacher of all rows."""
        columns = ["id"] if self.teacher else ["id", "teacher"]
        for _, batch in read_batches(self.path, columns, refuse=_refuse):
            queries = batch.column("id").cast(pa.string())
            if self.teacher:
                teachers = pa.array([self.teacher] * len(queries), pa.string())
            else:
                teachers = batch.column("teacher").cast(pa.string())
            unnamed = (pc.any(pc.equal(side, "")).as_py() for side in (queries, teachers))
            if queries.null_count or teachers.null_count or any(unnamed):
                raise _refuse(f"{self.path} has a row without id or teacher")
            yield queries, teachers

    def said(self) -> Iterator[pa.Array]:
        """What was said in all rows."""
        for _, batch in read_batches(self.path, [self.kind], refuse=_refuse):
            yield batch.column(0)


def ballots_schema(path: Path) -> pa.Schema:
    """Columns of a Parquet file.

    Raises:
      DataError: it is missing or none. Nothing was released.
    """
    if not path.is_file():
        raise _refuse(f"{path} does not exist")
    return schema_of(path, _refuse)


def read_columns(file: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a file, whole."""
    batches = [batch for _, batch in read_batches(file, columns, refuse=_refuse)]
    with reading(file, refuse=_refuse):
        kinds = schema_of(file)
        schema = pa.schema([kinds.field(name) for name in columns])
        table = pa.Table.from_batches(batches, schema=None if batches else schema)
        for index, name in enumerate(columns):
            if pt.is_dictionary(table.schema.field(name).type):
                table = table.set_column(index, name, table.column(name).cast(pa.string()))
        return table


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def require_texts(schema: pa.Schema, columns: Sequence[str], path: Path) -> None:
    """Requires names, or numbers that are as good: 5 and 5.0 would be two."""
    for name in columns:
        kind = schema.field(name).type
        kind = kind.value_type if pt.is_dictionary(kind) else kind
        if not (pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind)):
            raise _refuse(
                f"column {name!r} of {path} holds {kind}, where texts or whole numbers are needed"
            )


def _index(
    keys: Sequence[tuple[pa.Array, pa.Array]],
) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.int64]]:
    """Queries, teachers, and for each row its place in a table of both."""
    if not keys:
        raise _refuse("there are no ballots")
    queries, teachers = (
        pa.chunked_array(side).combine_chunks().dictionary_encode()
        for side in zip(*keys, strict=True)
    )
    names = sorted(teachers.dictionary.to_pylist())
    place = {name: position for position, name in enumerate(names)}
    order = np.array([place[name] for name in teachers.dictionary.to_pylist()], dtype=np.int64)
    ids = tuple(queries.dictionary.to_pylist())
    if len(ids) * len(names) > _ROOM * len(queries):
        raise _refuse(
            f"there are {len(queries):,} ballots of {len(names):,} teachers on {len(ids):,} "
            "queries; every teacher votes once on every query"
        )
    teacher = order[np.asarray(teachers.indices)]
    positions = np.asarray(queries.indices).astype(np.int64) * len(names) + teacher
    count = np.bincount(positions, minlength=len(ids) * len(names))
    for wrong, said in ((count > 1, "voted twice on"), (count == 0, "did not vote on")):
        if wrong.any():
            query, who = divmod(int(np.argmax(wrong)), len(names))
            raise _refuse(
                f"teacher {{teacher}} {said} query {{query}}; every teacher votes once on every "
                "query",
                teacher=names[who],
                query=ids[query],
            )
    return ids, tuple(names), positions


def _votes(
    opened: Sequence[_Opened],
    kind: str,
    positions: NDArray[np.int64],
    shape: tuple[int, int],
    cut: float,
) -> NDArray[np.uint8] | NDArray[np.int64]:
    done, votes = 0, None
    for file in opened:
        for column in file.said():
            values = _numbers(column, kind, file.path, cut)
            if votes is None:
                votes = np.zeros((shape[0] * shape[1], *values.shape[1:]), dtype=values.dtype)
            if values.shape[1:] != votes.shape[1:]:
                raise _refuse(
                    f"{file.path.name} votes on {values.shape[1]} labels where others vote on "
                    f"{votes.shape[1]}; all teachers vote on the same ones"
                )
            votes[positions[done : done + len(values)]] = values
            done += len(values)
    if votes is None:
        raise _refuse("there are no ballots")
    return votes.reshape(*shape, *votes.shape[1:])


def _numbers(
    column: pa.Array, kind: str, path: Path, cut: float
) -> NDArray[np.uint8] | NDArray[np.int64]:
    """(rows,) class numbers or (rows, labels) zeros and ones."""
    if column.null_count:
        raise _refuse(f"{path} has a row without a {kind}")
    if kind == "class":
        if not pt.is_integer(column.type):
            raise _refuse(f"classes of {path} are {column.type}, not whole numbers")
        bounds = pc.min_max(column)
        if not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < MOST_CLASSES:
            wrong = bounds["min"] if bounds["min"].as_py() < 0 else bounds["max"]
            raise _refuse(
                f"{path}: teachers named class {{number}}, and classes are numbered from 0 without "
                "gaps",
                number=f"{wrong.as_py():,}",
            )
        return np.asarray(column.cast(pa.int64()))
    lengths = np.asarray(pc.list_value_length(column))
    if lengths.size and (lengths != lengths[0]).any():
        raise _refuse(
            f"{path.name} votes on {{count}} labels in one row and on {{other}} in another",
            count=lengths[0],
            other=lengths[lengths != lengths[0]][0],
        )
    if lengths.size and not lengths[0]:
        raise _refuse(f"{path} has an empty {kind}, which votes on no label")
    flat = pc.list_flatten(column)
    if pt.is_boolean(flat.type):
        flat = flat.cast(pa.uint8())
    if flat.null_count or not (pt.is_integer(flat.type) or pt.is_floating(flat.type)):
        raise _refuse(f"{path} has a {kind} with a missing number or none at all")
    values = np.asarray(flat).astype(np.float64)
    if np.isnan(values).any():
        raise _refuse(f"{path} has a {kind} with NaN, which is no vote")
    if kind == "scores":
        if ((values < 0) | (values > 1)).any():
            raise _refuse(f"{path} has scores outside of 0 to 1")
        votes = values > cut
    else:
        if not np.isin(values, (0.0, 1.0)).all():
            wrong = values[~np.isin(values, (0.0, 1.0))][0]
            raise _refuse(
                f"{path} has a ballot with {{number}}; votes are 0 or 1, name the column 'scores' "
                "if these are probabilities",
                number=f"{wrong:g}",
            )
        votes = values == 1
    return np.asarray(votes.astype(np.uint8).reshape(len(column), -1))
