"""Who is labeled: one row per record of the pool, in the order of the pool's file.

The state of a pool is a Parquet file of its own (`id`, `cohort`, `label`, `block` of the data
set, and `group` where groups are protected), written anew after each phase; the data file is
never changed. Of a group the first record is selected, and the others join its cohort with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.hash_runs import NARROW, SHARED, HashRuns, hashes_of_names
from dpal.data.label_columns import as_label, label_tensor, stored_type, task_of
from dpal.data.labeled_records import GROUP
from dpal.data.labeled_records import LabeledSet as LabeledSet
from dpal.data.labeled_records import load_labeled as load_labeled
from dpal.data.parquet import LARGE_ROWS
from dpal.data.readers import apply_extractor, raw_batches
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.atomic_writes import write_private_parquet
from dpal.labels import Label, Task

Number = TypeVar("Number", np.int16, np.int64)

UNLABELED = -1
RETIRED = -2  # answered yes beyond the label budget: neither labeled nor asked again
EXCLUDED = -3  # is never selected: too little budget left, or not the first of its owner or group
ASIDE = -4  # unlabeled, and no candidate of queries: secret coins decided so

_SELECTION = pa.schema([("id", pa.string()), ("retired", pa.bool_())])
_WITH_CANDIDATES = _SELECTION.append(pa.field("candidate", pa.bool_()))
_NOTED = b"dpal.noted"
_WANTED = np.dtype([*NARROW.descr, ("wanted", "?")])  # of an earlier state, or of the pool
_MERGED_ROWS = 2**18  # names are looked up in a table that Arrow makes anew for each batch


def _state(label: pa.DataType, *, grouped: bool) -> pa.Schema:
    columns = [("id", pa.string()), ("cohort", pa.int16()), ("label", label), ("block", pa.int32())]
    return pa.schema([*columns, *([(GROUP, pa.int64())] if grouped else [])])


def group_column(state: Path) -> NDArray[np.int64] | None:
    """Reads the group of each row, as `write_start` was given it; None where there are none."""
    if GROUP not in pq.read_schema(state).names:
        return None
    return _column(state, GROUP, np.int64)


def cohort_column(state: Path) -> NDArray[np.int16]:
    """Reads which cohort each row is in, or which of the codes above; two bytes a row."""
    return _column(state, "cohort", np.int16)


def _column(state: Path, name: str, dtype: type[Number]) -> NDArray[Number]:
    """Reads a column batch by batch, so that it is in memory once."""
    first = 0
    with pq.ParquetFile(state) as file:
        values = np.empty(file.metadata.num_rows, dtype)
        for batch in file.iter_batches(LARGE_ROWS, columns=[name]):
            values[first : first + batch.num_rows] = batch.column(0)
            first += batch.num_rows
    return values


def write_start(
    source: Source,
    state: Path,
    *,
    blocks: NDArray[np.int32] | None = None,
    takes_part: NDArray[np.bool_] | None = None,
    groups: NDArray[np.int64] | None = None,
) -> None:
    """Writes the state of a pool of which nothing is labeled.

    Args:
      source: the pool, n rows.
      state: where to write.
      blocks: (n,) of a registered data set; None puts all into block 0.
      takes_part: (n,); None is everyone. Where there are groups, the first of each does.
      groups: (n,) row of the first record of each row's group; `OUTSIDE` for a row that does not
        take part with its group. None where records are protected.
    """
    cohorts, schema = None, _state(stored_type(source.task), grouped=groups is not None)
    if groups is not None:
        takes_part = groups == np.arange(groups.size)
    if takes_part is not None:
        cohorts = np.where(takes_part, UNLABELED, EXCLUDED).astype(np.int16)
    unlabeled = np.full(LARGE_ROWS, UNLABELED, dtype=np.int16)
    zeros = np.zeros(LARGE_ROWS, dtype=np.int32)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in raw_batches(source, ["id"], large=True):
            count = batch.table.num_rows
            columns = [
                batch.table.column("id").cast(pa.string()),
                pa.array(cohorts[batch.rows] if cohorts is not None else unlabeled[:count]),
                pa.nulls(count, schema.field("label").type),
                pa.array(blocks[batch.rows] if blocks is not None else zeros[:count]),
            ]
            if groups is not None:
                columns.append(pa.array(groups[batch.rows]))
            yield pa.record_batch(columns, schema=schema)

    write_private_parquet(state, schema, batches, distinct=["id"])


def write_merged(
    before: Path,
    labels: Mapping[str, Label],
    cohort: int,
    after: Path,
    *,
    retired: Sequence[str] = (),
    selection: Path | None = None,
) -> None:
    """Writes the state in which the records named in `labels` form a new cohort.

    Args:
      before: the state so far.
      labels: ids and labels of the new cohort; of a group its first record, or that among
        `retired`, comes before the others.
      cohort: its number.
      after: where to write.
      retired: ids that leave the pool without a label.
      selection: file of the selection. Where it names candidates of later queries, all others
        that are unlabeled are put aside.

    Raises:
      DataError: a record is not in the pool or is labeled already; nothing was written.
    """
    matched, leaving, schema = 0, set(retired), pq.read_schema(before)
    stored = schema.field("label").type
    multi = task_of(stored) is Task.MULTI_LABEL
    if any(isinstance(label, int) is multi for label in labels.values()):
        raise DataError("labels are of another kind than the pool's; nothing was merged")
    names, answers = pa.array(labels, pa.string()), pa.array(list(labels.values()), stored)
    retiring = pa.array(leaving, pa.string())

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal matched
        candidates = None if selection is None else _candidates_in(selection)
        with pq.ParquetFile(before) as file:
            joined = _JoinedGroups(file)  # groups whose first record was selected
            for batch in file.iter_batches(_MERGED_ROWS):
                places = pc.index_in(batch.column("id"), value_set=names)
                new = np.asarray(places.is_valid())
                gone = _is_among(retiring, batch)
                cohorts = np.array(batch.column("cohort"), dtype=np.int16)
                allowed = cohorts == UNLABELED
                if GROUP in schema.names:
                    groups = np.asarray(batch.column(GROUP))
                    joined.add(groups[allowed & (new | gone)])
                    allowed |= (cohorts == EXCLUDED) & joined.among(groups)
                if not allowed[new].all():
                    raise DataError("a record was selected that is labeled already")
                matched += int(new.sum())
                cohorts[new] = cohort
                cohorts[gone] = RETIRED
                if candidates is not None:
                    among = candidates.among(batch.column("id").to_pylist())
                    cohorts[(cohorts == UNLABELED) & ~among] = ASIDE
                merged = batch.column("label")
                if new.any():
                    merged = pc.if_else(places.is_valid(), answers.take(places), merged)
                yield _with_columns(batch, pa.array(cohorts), merged)
        if matched != len(labels) or (candidates is not None and not candidates.all_met):
            # How many there are may be confidential, and errors reach the orchestrator.
            raise DataError("a labeled record is not in the pool; nothing was merged")

    write_private_parquet(after, schema, batches, distinct=["id"])


def write_pseudo_labeled(
    before: Path, labels: NDArray[np.integer[Any]], cohort: int, after: Path
) -> None:
    """Writes the state in which all that are left form a new cohort, labeled by a model.

    Args:
      before: the state so far.
      labels: (n,) or (n, labels) of all n rows; only those of the unlabeled are written.
      cohort: its number.
      after: where to write.
    """
    schema = pq.read_schema(before)
    stored = schema.field("label").type

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        with pq.ParquetFile(before) as file:
            joined = _JoinedGroups(file)
            for batch in file.iter_batches():
                cohorts = np.array(batch.column("cohort"), dtype=np.int16)
                guessed = labels[first : first + len(cohorts)]
                here = pa.array(guessed if guessed.ndim == 1 else guessed.tolist()).cast(stored)
                first += len(cohorts)
                left = np.isin(cohorts, [UNLABELED, ASIDE])
                if GROUP in schema.names:
                    groups = np.asarray(batch.column(GROUP))
                    joined.add(groups[left])
                    left |= (cohorts == EXCLUDED) & joined.among(groups)
                merged = pc.if_else(pa.array(left), here, batch.column("label"))
                together = pa.array(np.where(left, cohort, cohorts).astype(np.int16))
                yield _with_columns(batch, together, merged)

    write_private_parquet(after, schema, batches, distinct=["id"])


class _JoinedGroups:
    """Groups that take part from here on, by the row of their first record: a byte a row."""

    def __init__(self, state: pq.ParquetFile) -> None:
        self._joined = np.zeros(state.metadata.num_rows, dtype=bool)

    def add(self, groups: NDArray[np.int64]) -> None:
        self._joined[groups[groups >= 0]] = True

    def among(self, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether a row's group takes part; a row `OUTSIDE` of its group never does."""
        return (groups >= 0) & self._joined[groups]


def _with_columns(batch: pa.RecordBatch, cohorts: pa.Array, labels: pa.Array) -> pa.RecordBatch:
    """A batch of a pool's state with other cohorts and labels."""
    changed = {"cohort": cohorts, "label": labels}
    columns = [changed.get(name, batch.column(name)) for name in batch.schema.names]
    return pa.record_batch(columns, schema=batch.schema)


def write_selection(
    source: Source,
    rows: NDArray[np.int64],
    retired: NDArray[np.int64],
    path: Path,
    *,
    candidates: NDArray[np.int64] | None = None,
    noted: Mapping[str, Any] | None = None,
) -> None:
    """Writes the ids of selected and retired rows, in file order: who, never in which rank.

    Args:
      source: the pool.
      rows: the selected ones.
      retired: rows that leave the pool unlabeled.
      path: where to write.
      candidates: rows that later queries may select from; None for all others.
      noted: what the selection tells later ones, for `read_selection_notes`.
    """
    schema = _SELECTION if candidates is None else _WITH_CANDIDATES
    if noted is not None:
        schema = schema.with_metadata({_NOTED: json.dumps(noted, sort_keys=True).encode()})

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in raw_batches(source, ["id"], large=True):
            leaving = np.isin(batch.rows, retired, assume_unique=True)
            chosen = leaving | np.isin(batch.rows, rows, assume_unique=True)
            marks = [leaving]
            if candidates is not None:
                marks.append(np.isin(batch.rows, candidates, assume_unique=True))
                chosen |= marks[1]
            if chosen.any():
                ids = batch.table.column("id").cast(pa.string()).filter(pa.array(chosen))
                named = [pa.array(mark[chosen]) for mark in marks]
                yield pa.record_batch([ids, *named], schema=schema)

    write_private_parquet(path, schema, batches, distinct=["id"])


def read_selection_notes(path: Path) -> dict[str, Any]:
    """Reads what a selection tells later ones.

    Raises:
      DataError: it tells nothing.
    """
    metadata = pq.read_schema(path).metadata or {}
    if _NOTED not in metadata:
        raise DataError(f"{path} does not say what its query counted; restore it")
    notes: dict[str, Any] = json.loads(metadata[_NOTED])
    return notes


def read_selection(path: Path) -> list[str]:
    """Reads the ids that are to be labeled."""
    return _selected(path, retired=False)


def read_retired(path: Path) -> list[str]:
    """Reads the ids that leave the pool unlabeled."""
    return _selected(path, retired=True)


def _selected(path: Path, *, retired: bool) -> list[str]:
    table = pq.read_table(path)
    if "candidate" in table.column_names:
        table = table.filter(pc.invert(table.column("candidate")))
    wanted = np.asarray(table.column("retired").to_numpy(), dtype=bool) == retired
    return [str(name) for name in table.column("id").filter(pa.array(wanted)).to_pylist()]


class _Candidates:
    """The candidates that a selection names, met in the order of the pool's file."""

    def __init__(self, ids: Iterator[str]) -> None:
        self._ids = ids
        self._next = next(ids, None)

    def among(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the next ids of the pool are candidates, shape (n,)."""
        named = np.zeros(len(ids), dtype=np.bool_)
        for place, name in enumerate(ids):
            if name == self._next:
                named[place] = True
                self._next = next(self._ids, None)
        return named

    @property
    def all_met(self) -> bool:
        """Whether each of them was in the pool."""
        return self._next is None


def _candidates_in(selection: Path) -> _Candidates | None:
    """Streams the candidates of a selection; None where it names none and all are."""
    if "candidate" not in pq.read_schema(selection).names:
        return None

    def named() -> Iterator[str]:
        with pq.ParquetFile(selection) as file:
            for batch in file.iter_batches(columns=["id", "candidate"]):
                yield from batch.column("id").filter(batch.column("candidate")).to_pylist()

    return _Candidates(named())


def write_labels(labels: Mapping[str, Label], path: Path) -> None:
    """Writes the answers to one query, all of one kind."""
    several = any(not isinstance(label, int) for label in labels.values())
    kind = stored_type(Task.MULTI_LABEL if several else Task.SINGLE_LABEL)
    schema = pa.schema([("id", pa.string()), ("label", kind)])
    table = pa.record_batch(
        [pa.array(list(labels), pa.string()), pa.array(list(labels.values()), kind)],
        schema=schema,
    )
    write_private_parquet(path, schema, lambda: iter([table]))


def read_labels(path: Path) -> dict[str, Label]:
    """Reads the answers to one query."""
    return _labels_in(pq.read_table(path, columns=["id", "label"]))


def labels_of(state: Path) -> dict[str, Label]:
    """Ids and labels of all labeled records of a pool."""
    table = pq.read_table(state, columns=["id", "cohort", "label"])
    return _labels_in(table.filter(pc.greater_equal(table.column("cohort"), 0)))


def _labels_in(table: pa.Table) -> dict[str, Label]:
    ids, labels = (table.column(name).to_pylist() for name in ("id", "label"))
    return {name: as_label(label) for name, label in zip(ids, labels, strict=True)}


def holds_all(source: Source, state: Path) -> bool:
    """Whether every record of an earlier campaign's state is in a pool, by hashes of their ids."""
    hashes = HashRuns(SHARED, _WANTED)

    def add(names: pa.Array, *, wanted: bool) -> None:
        rows = np.empty(len(names), _WANTED)
        rows["high"], rows["wanted"] = hashes_of_names(names), wanted
        hashes.add(rows)

    for batch in raw_batches(source, ["id"], large=True):
        add(batch.table.column(0), wanted=False)
    with pq.ParquetFile(state) as file:
        for batch in file.iter_batches(columns=["id"]):
            add(batch.column("id"), wanted=True)
    for rows in hashes.in_order():
        here = rows["high"][~rows["wanted"]]
        wanted = rows["high"][rows["wanted"]]
        if not np.isin(wanted, here).all():
            return False
    return True


def write_carried(before: Path, state: Path, path: Path, *, ids_are_seen: bool = False) -> None:
    """Writes as a selection the records that an earlier campaign labeled and this one has.

    A group joins with those of its records that have labels; its first one leaves the pool where
    it has none, so that nothing of the group is selected later.

    Args:
      before: the earlier campaign's last state.
      state: this campaign's start.
      path: where to write.
      ids_are_seen: whether anybody may see who is selected. Whoever the earlier campaign asked
        about then leaves the pool, labeled or not: a record that is asked about again would be
        known as one that has no label, and a blank one has none.
    """
    labeled = pa.array(list(labels_of(before)), pa.string())
    retired = pa.array(_retired_in(before) if ids_are_seen else [], pa.string())
    whose = group_column(state)

    def batches() -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(state) as file:
            asked = pa.concat_arrays([labeled, retired])
            joined = None if whose is None else _groups_with(asked, whose, file)
            first = 0
            for batch in file.iter_batches(columns=["id", "cohort"]):
                rows = slice(first, first + batch.num_rows)
                first = rows.stop
                chosen = _is_among(labeled, batch)
                firsts = np.asarray(batch.column("cohort")) == UNLABELED
                if whose is None or joined is None:
                    unlabeled = firsts & _is_among(retired, batch)
                    chosen = (firsts & chosen) | unlabeled
                else:
                    joins = joined.among(whose[rows])
                    unlabeled = joins & firsts & ~chosen
                    chosen = (joins & chosen) | unlabeled
                if chosen.any():
                    ids = batch.column("id").filter(pa.array(chosen))
                    yield pa.record_batch([ids, pa.array(unlabeled[chosen])], schema=_SELECTION)

    write_private_parquet(path, _SELECTION, batches, distinct=["id"])


def _retired_in(state: Path) -> list[str]:
    """Ids of all records that left a pool without a label."""
    table = pq.read_table(state, columns=["id", "cohort"])
    left = table.filter(pc.equal(table.column("cohort"), RETIRED))
    return [str(name) for name in left.column("id").to_pylist()]


def _is_among(names: pa.Array, batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """(n,) which of a batch's records have one of these names."""
    found = pc.is_in(batch.column("id"), value_set=names)
    return np.array(found.to_numpy(zero_copy_only=False), dtype=bool)


def _groups_with(names: pa.Array, whose: NDArray[np.int64], state: pq.ParquetFile) -> _JoinedGroups:
    """The groups that one of these records belongs to, its first one or a later."""
    joined, first = _JoinedGroups(state), 0
    for batch in state.iter_batches(columns=["id"]):
        rows = slice(first, first + batch.num_rows)
        first = rows.stop
        joined.add(whose[rows][_is_among(names, batch)])
    return joined


def load_all(source: Source) -> tuple[Tensor, Tensor]:
    """Loads a labeled source whole: (n, *input_shape) inputs and labels as in `LabeledSet`.

    For validation sets, which are public and small.
    """
    if source.label_column is None:
        raise DataError(f"{source.name} has no labels to evaluate on")
    inputs, labels = [], []
    columns = [source.content.value, source.label_column]
    for batch, decoded in decoded_ahead(source, raw_batches(source, columns)):
        column = batch.table.column(1)
        if column.null_count:
            raise DataError(f"{source.name} has rows without a label; remove them")
        inputs.append(apply_extractor(source, decoded))
        labels.append(label_tensor(column, source.task))
    return torch.cat(inputs), torch.cat(labels)


def read_ids(source: Source) -> list[str]:
    """Names (n,) of a source's records, in the order of `load_all`."""
    return [
        name
        for batch in raw_batches(source, ["id"], large=True)
        for name in batch.table.column(0).cast(pa.string()).to_pylist()
    ]
