"""Private records vote near public ones, in place of teachers: cast once, released once.

The votes of a round are counted and kept before they are charged; they are private. Each round
begins with all votes of every record, and is charged for them. Of a campaign's records everybody
votes on each, so that how one is answered depends on no other one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from dpal.accounting.votes.near_records import labels_of_votes
from dpal.data.groups import read_groups
from dpal.data.labeling_state import load_all, write_selection
from dpal.errors import LedgerError, ParameterError
from dpal.files.atomic_writes import atomic_write, write_private_parquet
from dpal.labels import UNKNOWN
from dpal.ledger.entries import EntryKind
from dpal.planning.voting_plan import block_name
from dpal.randomness import secure
from dpal.runs.ballot_and_label_tables import released_labels_table
from dpal.runs.choose_queries import Floats, Rows, asked_in, asked_rows
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.progress_logging import notify
from dpal.runs.teachers import load_inputs
from dpal.runs.vote_account import release_kept_block
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
            with atomic_write(released) as temporary:
                pq.write_table(_answered(counted, rule), temporary)

        ledger.release_once(plan.release(name), draw, inputs=[counted], artifacts=[released])
    notify(f"{ensemble.spec.blocks[number - 1]:,} queries released in round {number}")


def release_near_campaign(
    ensemble: Ensemble, ids: list[str], inputs: Tensor, *, purpose: str
) -> Path:
    """Lets private records vote on a campaign's, in a block that is paid for in full, once.

    Args:
      ensemble: whose records vote; held, and its folder claimed.
      ids: of the campaign's records; none where none was selected, which takes a block as well.
      inputs: (n, *input_shape), those records.
      purpose: of the block.

    Returns:
      The file of released labels, which are private.

    Raises:
      LedgerError: the next block is one of a round. Nothing was released.
    """
    near, blocks = ensemble.spec.near, ensemble.spec.blocks
    rule = near_rule(ensemble)
    counts = campaign_counts(ensemble, rule, inputs)
    table = _counts_table(ids, counts, purpose)

    def answers(path: Path, number: int) -> pa.Table:
        if near is None or near.votes_in(number, blocks) < len(ids) or number in ensemble.rounds:
            raise LedgerError.before_release(f"block {number} is charged for fewer votes")
        return _answered(path, rule)

    return release_kept_block(ensemble.account, table, answers, confidential=True)


def near_rule(ensemble: Ensemble) -> NeighbourVotes:
    """How records vote in a round.

    Raises:
      ParameterError: teachers vote in this run.
    """
    near, rule = ensemble.spec.near, ensemble.spec.rule
    if near is None:
        raise ParameterError("teachers vote in this run, and no records")
    several = labels_of_votes(rule) is not None
    spread = math.sqrt(2) * rule.sigma if several else rule.sigma
    return NeighbourVotes(
        classes=rule.labels,
        votes=near.votes,
        sigma=rule.sigma,
        bar=near.bar * spread,
        several=several,
    )


def count_near(ensemble: Ensemble, number: int, rule: NeighbourVotes) -> pa.Table:
    """Votes on every query of a round, by class. Private, and charged by whoever releases them."""
    asked = asked_in(ensemble, number)
    ids, queries = _places(ensemble, asked)
    others = np.setdiff1d(np.arange(ensemble.public_rows), asked)
    radii = _radii(ensemble, _places(ensemble, others)[1], queries)
    return _counts_table(ids, _voters(ensemble, rule).cast(queries, radii), "student")


def campaign_counts(ensemble: Ensemble, rule: NeighbourVotes, inputs: Tensor) -> Floats:
    """Votes on each of a campaign's records, (n, classes), as if it were the only one. Private."""
    queries = _flat(inputs.numpy())
    _, public = _places(ensemble, np.arange(ensemble.public_rows))
    # Nobody falls silent: each may vote on all of them.
    voters = _voters(ensemble, replace(rule, votes=max(1, len(queries))))
    counts = np.zeros((len(queries), rule.classes))
    # One at a time: the last bits of a product may depend on how many rows it has.
    for row, query in enumerate(queries):
        radius = _radii(ensemble, public, query[None])
        counts[row] = voters.cast(query[None], radius)[0]
    return counts


def _voters(ensemble: Ensemble, rule: NeighbourVotes) -> VotingRecords:
    """The private records, with all their votes."""
    inputs, labels = load_all(ensemble.pool)
    # What is not known votes for nothing.
    own = np.where(labels.numpy() < 0, UNKNOWN, labels.numpy()).astype(np.int64)
    return VotingRecords(rule, _flat(inputs.numpy()), own, groups=_groups(ensemble))


def _groups(ensemble: Ensemble) -> NDArray[np.int64] | None:
    """(n,) whose each private record is; None where records are protected."""
    column = ensemble.config.teachers.group_column
    return None if column is None else read_groups(ensemble.pool, column)


def _counts_table(ids: list[str], counts: Floats, purpose: str) -> pa.Table:
    """Votes as they are kept, with what they are for. Private."""
    table = pa.table([pa.array(ids, pa.string()), pa.array(list(counts))], schema=_COUNTS)
    return table.replace_schema_metadata({"purpose": purpose})


def _answered(counted: Path, rule: NeighbourVotes) -> pa.Table:
    """Noisy answers by votes that were kept."""
    kept = pq.read_table(counted)
    votes = kept.column("votes").to_pylist()
    counts = np.array(votes, dtype=np.float64).reshape(len(votes), rule.classes)
    released = near_answers(rule, counts, rng=secure())
    return released_labels_table(kept.column("id").to_pylist(), released)


def _radii(ensemble: Ensemble, public: Floats, queries: Floats) -> Floats:
    """Distances within which records vote: by public records that are not asked."""
    neighbours = float(ensemble.spec.near.neighbours) if ensemble.spec.near else 0.0
    return radii_for(queries, public, records=ensemble.rows, neighbours=neighbours)


def _places(ensemble: Ensemble, rows: Rows) -> tuple[list[str], Floats]:
    ids, inputs = load_inputs(ensemble.public, rows)
    return ids, _flat(inputs.numpy())


def _flat(inputs: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Floats:
    return inputs.reshape(len(inputs), -1).astype(np.float64)
