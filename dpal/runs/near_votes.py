"""Private records vote near public ones, in place of teachers: cast once, released once.

The votes of a round are counted and kept before they are charged; they are private. Each round
begins with all votes of every record, and is charged for them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpal.data.labeling_state import load_all, write_selection
from dpal.errors import LedgerError, ParameterError
from dpal.files.atomic_writes import atomic_write, write_private_parquet
from dpal.labels import UNKNOWN
from dpal.ledger.entries import EntryKind
from dpal.planning.voting_plan import block_name
from dpal.randomness import secure
from dpal.runs.asked_queries import Floats, Rows, asked_in, asked_rows
from dpal.runs.ballot_tables import released_labels_table
from dpal.runs.ensemble import Ensemble
from dpal.runs.notify import notify
from dpal.runs.teachers import load_inputs
from dpal.voting.neighbour_votes import NeighbourVotes, VotingRecords, near_answers, radii_for

_COUNTS = pa.schema([("id", pa.string()), ("votes", pa.list_(pa.float64()))])


def release_near(ensemble: Ensemble, number: int) -> None:
    """Lets private records vote near the queries of a round, and releases the answers, once.

    Raises:
      LedgerError: the round is reserved and its votes are lost. Nothing was released.
      BudgetExceeded: the promise does not cover it. Nothing was released.
    """
    account, plan, name = ensemble.account, ensemble.plan, block_name(number)
    counted, released = account.ballots_file(number), account.released_file(number)
    if number == ensemble.rounds[-1] and not ensemble.files.selection.exists():
        rows = asked_rows(ensemble)
        write_selection(ensemble.public, rows, np.empty(0, np.int64), ensemble.files.selection)
    rule = near_rule(ensemble)
    with account.ledger() as ledger:
        reserved = any(
            entry.kind is EntryKind.RESERVE and entry.release == name for entry in ledger.entries()
        )
        if reserved and not counted.is_file():
            raise LedgerError.before_release(
                f"{counted} is missing and its round is reserved; restore it"
            )
        if not reserved:
            # What was reserved is never cast anew: another machine may round otherwise.
            table = count_near(ensemble, number, rule)
            write_private_parquet(counted, table.schema, lambda: iter(table.to_batches()))

        def draw() -> None:
            # From the file, not from memory: what was reserved is what is counted.
            kept = pq.read_table(counted)
            counts = np.array(kept.column("votes").to_pylist(), dtype=np.float64)
            labels = near_answers(rule, counts, rng=secure()).labels
            table = released_labels_table(kept.column("id").to_pylist(), labels)
            with atomic_write(released) as temporary:
                pq.write_table(table, temporary)

        ledger.release_once(plan.release(name), draw, inputs=[counted], artifacts=[released])
    notify(f"{ensemble.spec.blocks[number - 1]:,} queries released in round {number}")


def near_rule(ensemble: Ensemble) -> NeighbourVotes:
    """How records vote in a round.

    Raises:
      ParameterError: teachers vote in this run.
    """
    near, rule = ensemble.spec.near, ensemble.spec.rule
    if near is None:
        raise ParameterError("teachers vote in this run, and no records")
    bar = near.bar * rule.sigma
    return NeighbourVotes(classes=rule.labels, votes=near.votes, sigma=rule.sigma, bar=bar)


def count_near(ensemble: Ensemble, number: int, rule: NeighbourVotes) -> pa.Table:
    """Votes on every query of a round, by class. Private, and charged by whoever releases them."""
    asked = asked_in(ensemble, number)
    ids, queries = _places(ensemble, asked)
    radii = _radii(ensemble, asked, queries)
    inputs, labels = load_all(ensemble.pool)
    # A record without a class never votes.
    own = np.where(labels.numpy() < 0, UNKNOWN, labels.numpy()).astype(np.int64)
    records = VotingRecords(rule, _flat(inputs.numpy()), own)
    counts = records.cast(queries, radii)
    return pa.table([pa.array(ids, pa.string()), pa.array(list(counts))], schema=_COUNTS)


def _radii(ensemble: Ensemble, asked: Rows, queries: Floats) -> Floats:
    """Distances within which records vote: by public records that this round does not ask.

    Raises:
      DataError: there is no other public record.
    """
    others = np.setdiff1d(np.arange(ensemble.public_rows), asked)
    _, public = _places(ensemble, others)
    neighbours = float(ensemble.spec.near.neighbours) if ensemble.spec.near else 0.0
    return radii_for(queries, public, records=ensemble.rows, neighbours=neighbours)


def _places(ensemble: Ensemble, rows: Rows) -> tuple[list[str], Floats]:
    ids, inputs = load_inputs(ensemble.public, rows)
    return ids, _flat(inputs.numpy())


def _flat(inputs: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Floats:
    return inputs.reshape(len(inputs), -1).astype(np.float64)
