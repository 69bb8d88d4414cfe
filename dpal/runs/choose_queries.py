"""Which public records teachers are asked about: by chance, or written down round by round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.data.readers import raw_batches
from dpal.files.atomic_writes import atomic_write
from dpal.randomness import seeded
from dpal.runs.ballot_and_label_tables import read_released_counts
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.vote_account import read_released
from dpal.voting.draw_noisy_outcomes import UNANSWERED

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

_SCHEMA = pa.schema([("id", pa.string()), ("row", pa.int64()), ("unsure", pa.float64())])
_LEFT = b"unsure_of_others"  # mean over all that could have been asked


def asked_rows(ensemble: Ensemble) -> Rows:
    """Rows of the public pool that the teachers are asked about, of all rounds; public."""
    return np.sort(np.concatenate([asked_in(ensemble, number) for number in ensemble.rounds]))


def asked_in(ensemble: Ensemble, number: int) -> Rows:
    """Those of a round, ascending. Of several rounds they are chosen and written down first."""
    if len(ensemble.rounds) > 1:
        rows = pq.read_table(ensemble.asked_file(number)).column("row")
        return np.asarray(rows.to_numpy(), dtype=np.int64)
    return np.sort(shuffled_rows(ensemble)[: ensemble.offered])


def shuffled_rows(ensemble: Ensemble) -> Rows:
    """All rows of the public pool, in an order by chance that settings give."""
    draw = seeded(ensemble.config.voting.seed, "asked public records")
    return draw.permutation(ensemble.public_rows).astype(np.int64)


def answers_until(ensemble: Ensemble, number: int) -> tuple[Rows, NDArray[np.integer]]:
    """Rows that were asked in the rounds up to this one, ascending, and their released labels."""
    numbers = range(1, number + 1)
    rows = np.concatenate([asked_in(ensemble, earlier) for earlier in numbers])
    files = [ensemble.account.released_file(earlier) for earlier in numbers]
    labels = np.concatenate([read_released(file)[1] for file in files])
    order = np.argsort(rows, kind="stable")
    return rows[order], labels[order]


def shares_until(ensemble: Ensemble, number: int) -> Floats | None:
    """Released shares of votes on the same rows, in the same order; None where answers leave.

    They are noisy, and may lie outside [0, 1].
    """
    if not ensemble.spec.rule.counts:
        return None
    numbers = range(1, number + 1)
    rows = np.concatenate([asked_in(ensemble, earlier) for earlier in numbers])
    files = [ensemble.account.released_file(earlier) for earlier in numbers]
    counts = np.concatenate([read_released_counts(file) for file in files])
    return counts[np.argsort(rows, kind="stable")] / ensemble.spec.rule.teachers


def write_asked(
    ensemble: Ensemble,
    number: int,
    rows: Rows,
    unsure: Floats | None,
    left: Rows | None = None,
) -> None:
    """Writes which public records a round asks.

    Args:
      ensemble: that asks.
      number: of the round.
      rows: (n,) of the public pool, ascending.
      unsure: (public rows,) score of each; None where they were drawn by chance.
      left: rows that could have been asked.
    """
    ids: list[str] = []
    for batch in raw_batches(ensemble.public, ["id"]):
        mine = np.isin(batch.rows, rows, assume_unique=True)
        ids += [str(one) for one in batch.table.column(0).filter(pa.array(mine)).to_pylist()]
    values = pa.nulls(len(rows), pa.float64()) if unsure is None else pa.array(unsure[rows])
    table = pa.table([pa.array(ids, pa.string()), pa.array(rows), values], schema=_SCHEMA)
    if unsure is not None and left is not None:
        table = table.replace_schema_metadata({_LEFT: repr(float(unsure[left].mean()))})
    with atomic_write(ensemble.asked_file(number)) as temporary:
        pq.write_table(table, temporary)


def rounds_told(ensemble: Ensemble) -> list[dict[str, Any]]:
    """What every round asked, why, and how much of it was answered; none where there is one.

    `unsure` is the mean score of those that were asked, `unsure_of_others` of all that could have
    been; None where they were drawn by chance.
    """
    told = []
    for number in ensemble.rounds if len(ensemble.rounds) > 1 else ():
        table = pq.read_table(ensemble.asked_file(number))
        left = (table.schema.metadata or {}).get(_LEFT)
        _, labels = read_released(ensemble.account.released_file(number))
        answered = (labels != UNANSWERED).reshape(len(labels), -1).any(axis=1)
        told.append(
            {
                "round": number,
                "asked": len(table),
                "answered": float(answered.mean()) if len(answered) else 0.0,
                "unsure": None if left is None else float(np.mean(table["unsure"].to_numpy())),
                "unsure_of_others": None if left is None else float(left),
            }
        )
    return told
