"""Ballots and released labels as Parquet tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import Released

FROM_FILES = "files"  # ballots that came with their queries, and are known by what they say
COUNTS = "votes"  # column of noisy counts
PUBLIC_ANSWERS = "public"  # column of a public model's classes
_FACTS = ("teachers", "labels", "single_label")

Labels = NDArray[np.int8] | NDArray[np.int64]


def read_released(path: Path) -> tuple[list[str], Labels]:
    """Ids of queries and their labels, -1 where none was given."""
    table = pq.read_table(path)
    column = table.column("label")
    if pa.types.is_list(column.type):
        labels = np.array(column.to_pylist(), dtype=np.int8)
        return table.column("id").to_pylist(), labels if len(table) else labels.reshape(0, 0)
    return table.column("id").to_pylist(), np.asarray(column.to_numpy(), dtype=np.int64)


def read_released_counts(path: Path) -> NDArray[np.float64] | None:
    """(queries, labels or classes) noisy votes; None where answers alone were released."""
    if COUNTS not in pq.read_schema(path).names:
        return None
    return np.array(pq.read_table(path, columns=[COUNTS])[COUNTS].to_pylist(), dtype=np.float64)


def released_labels_table(
    ids: Sequence[str], released: Released, told: Mapping[str, str] | None = None
) -> pa.Table:
    """What was released as a table: `id`, `label` as pools have it, and noisy `votes` if they were.

    Whatever else was told stands in the metadata.
    """
    labels = released.labels
    kind = pa.list_(pa.int8()) if labels.ndim == 2 else pa.int64()
    values = list(labels) if labels.ndim == 2 else labels
    columns = {"id": pa.array(ids, pa.string()), "label": pa.array(values, kind)}
    if released.counts is not None:
        columns[COUNTS] = pa.array(list(released.counts), pa.list_(pa.float64()))
    table = pa.table(columns)
    return table.replace_schema_metadata(dict(told)) if told else table


def told_of(released: Path) -> str | None:
    """What was told of the cost of released labels, in a sentence; None for nothing."""
    metadata = pq.read_schema(released).metadata or {}
    if b"objections" in metadata:
        objections, reached = (int(metadata[key]) for key in (b"objections", b"reached"))
        return (
            f"teachers objected to the public model on {objections:,} of {reached:,} queries that "
            "were reached"
        )
    if b"asked" in metadata:
        return f"the promise paid for {int(metadata[b'asked']):,} queries, answered or not"
    if b"told_cost" not in metadata:
        return None
    left = metadata[b"within_limit"] == b"True"
    noisier = metadata.get(b"fallback_sigma")
    above = (
        "above the limit, so that no answer left"
        if noisier is None
        else f"above the limit, so that answers left with noise {float(noisier):g}"
    )
    verdict = "answers left" if left else above
    return f"their cost was told as {float(metadata[b'told_cost']):.4f}: {verdict}"


def read_ballots_file(path: Path) -> tuple[list[str], Ballots | Choices]:
    """Reads what `release_ballot_block` kept of a block."""
    table = pq.read_table(path)
    facts = {key: int(table.schema.metadata[key.encode()]) for key in _FACTS}
    rows, teachers, labels = len(table), facts["teachers"], facts["labels"]
    content = b"".join(table.column("ballots").to_pylist())
    ids = table.column("id").to_pylist()
    if facts["single_label"]:
        chosen = np.frombuffer(content, dtype=np.int64).reshape(rows, teachers)
        return ids, Choices(chosen, labels)
    packed = np.frombuffer(content, dtype=np.uint8).reshape(rows, teachers, -(-labels // 8))
    return ids, Ballots(packed, labels)


def read_public_answers(path: Path) -> NDArray[np.int64] | None:
    """(queries,) classes that a public model named; None where teachers answer every query."""
    if PUBLIC_ANSWERS not in pq.read_schema(path).names:
        return None
    column = pq.read_table(path, columns=[PUBLIC_ANSWERS])[PUBLIC_ANSWERS]
    return np.asarray(column.to_numpy(), dtype=np.int64)


def ballots_table(
    queries: Sequence[str],
    ballots: Ballots | Choices,
    purpose: str,
    public: NDArray[np.int64] | None = None,
) -> pa.Table:
    """Ballots as they are kept, with what they are for. Private.

    Args:
      queries: ids.
      ballots: of every teacher on every query.
      purpose: of the block.
      public: (queries,) what a public model answers; None where there is none.
    """
    single = isinstance(ballots, Choices)
    content = ballots.chosen if isinstance(ballots, Choices) else ballots.packed
    rows = [row.tobytes() for row in np.ascontiguousarray(content)]
    facts = {
        "teachers": str(ballots.teachers),
        "labels": str(ballots.labels),
        "single_label": str(int(single)),
        "purpose": purpose,
    }
    columns = {"id": pa.array(queries, pa.string()), "ballots": pa.array(rows, pa.binary())}
    if public is not None:
        columns[PUBLIC_ANSWERS] = pa.array(public, pa.int64())
    table = pa.table(columns)
    return table.replace_schema_metadata(facts)


def is_same_query(kept: pa.Table, table: pa.Table) -> bool:
    """Whether ballots that were kept answer the same query. Private."""
    purpose = table.schema.metadata[b"purpose"]
    if purpose == FROM_FILES.encode():
        return ballots_digest(kept) == ballots_digest(table)
    return bool(
        kept.schema.metadata[b"purpose"] == purpose and kept.column("id") == table.column("id")
    )


def ballots_digest(table: pa.Table) -> str:
    """By which the same ballots for the same purpose are known again. Private."""
    facts = [table.schema.metadata[key.encode()] for key in (*_FACTS, "purpose")]
    hasher = hashlib.sha256(b"/".join(facts))
    for name in ("id", "ballots"):
        for value in table.column(name).to_pylist():
            content = value.encode() if isinstance(value, str) else value
            hasher.update(len(content).to_bytes(8, "little") + content)
    return hasher.hexdigest()
