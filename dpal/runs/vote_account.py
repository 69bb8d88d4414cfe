"""An account of teachers: held once, asked block by block, whoever asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.accounting.votes.adaptive_budget import VotingFilter
from dpal.canonical import canonical_json, file_digest, plain
from dpal.certificate.kinds.voting import voting_certificate
from dpal.config.runtime import RuntimeConfig
from dpal.errors import LedgerError, ParameterError
from dpal.files.artifacts import CONFIDENTIAL
from dpal.files.atomic_writes import atomic_write, write_private_parquet, write_text
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import EntryKind
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.voting_plan import SUMMARY, CertifiedVoting, VotingPlan, block_name
from dpal.randomness import secure
from dpal.reports.report import Table
from dpal.reports.vote_report import rule_words, vote_cost_table
from dpal.runs.ballot_and_label_tables import (
    FROM_FILES,
    ballots_digest,
    ballots_table,
    is_same_query,
    read_public_answers,
    told_of,
)
from dpal.runs.ballot_and_label_tables import read_ballots_file as read_ballots_file
from dpal.runs.ballot_and_label_tables import read_released as read_released
from dpal.runs.ballot_and_label_tables import released_labels_table as released_labels_table
from dpal.runs.progress_logging import notify
from dpal.runs.run import Run, hold
from dpal.runs.write_certificate import keep_certificate, program_versions
from dpal.voting.agreement_quantiles import noisy_quantiles
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.charged_by_outcome import release_charged_by_outcome
from dpal.voting.check_cost_then_release import release_within
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, release
from dpal.voting.gate_label_first import Dependencies, release_with_gate
from dpal.voting.individual_budgets import release_by_budgets
from dpal.voting.mechanism_advice import LabelStatistics, noisy_summary
from dpal.voting.public_consensus import release_by_consensus


@dataclass(frozen=True, kw_only=True)
class Account(Run[VotingPlan]):
    """What teachers may tell, and where it is kept.

    Attributes:
      certified: the plan and its proof.
      runtime: where ledger and files are.
    """

    kind, noun = "vote", "account"

    certified: CertifiedVoting
    runtime: RuntimeConfig

    @property
    def name(self) -> str:
        """Of the account, in ledger and artifacts."""
        return self.certified.plan.spec.name

    def plan_tables(self) -> Sequence[Table]:
        """What votes cost."""
        return [vote_cost_table(self.certified.summary())]

    def plan_words(self) -> Sequence[str]:
        """How votes are counted."""
        return [rule_words(self.certified.summary())]

    def released(self) -> list[Path]:
        """A folder for each block that was released."""
        blocks = range(1, len(self.plan.spec.blocks) + 1)
        return [path.parent for path in map(self.released_file, blocks) if path.is_file()]

    def ballots_file(self, block: int) -> Path:
        """What teachers said in a block. Private."""
        return self.folder.root / CONFIDENTIAL / f"votes-{block}" / "ballots.parquet"

    def released_file(self, block: int) -> Path:
        """What a block released: ids of queries and their labels."""
        return self.folder.root / f"votes-{block}" / "released.parquet"


def hold_votes(
    account: Account, made_of: str, *, data: DataHold | None = None, compared: int | None = None
) -> None:
    """Sets everything aside that the teachers may ever be asked. Needs the folder's claim.

    Args:
      account: whose plan is held; doing it again changes nothing.
      made_of: digest of the private files or ballots that it is about; it is kept under salt.
      data: what it takes of a registered data set.
      compared: as in `CampaignLedger.hold`.

    Raises:
      LedgerError: the account holds another plan, or its files are gone.
      DataBudgetExceeded: the data set has not that much left. Nothing was held.
    """
    with account.ledger() as ledger:
        hold(
            account,
            ledger,
            made_of,
            data=ledger.data() or data,
            compared=compared,
            changes="its rule, its promise or its number of queries",
        )


def release_ballot_block(
    account: Account,
    queries: Sequence[str],
    ballots: Ballots | Choices,
    *,
    purpose: str = FROM_FILES,
    confidential: bool = False,
    public: NDArray[np.int64] | None = None,
) -> Path:
    """Releases a block of votes, once: the same ballots again give the same released labels.

    Args:
      account: that pays; held, and its folder claimed.
      queries: ids.
      ballots: of every teacher on every query.
      purpose: of the block; the same ballots for another purpose are another block.
      confidential: whether the queries are private records, whose ids and labels stay inside.
      public: (queries,) what a public model answers, where the account has one.

    Returns:
      The file of released labels.

    Raises:
      ParameterError: no block is left, or it is too small for so many queries.
      BudgetExceeded: the promise does not cover it. Nothing was released.
    """
    table = ballots_table(queries, ballots, purpose, public)

    def answers(path: Path, block: int) -> pa.Table:
        ids, kept = read_ballots_file(path)
        if account.plan.spec.consensus is not None:
            return released_labels_table(ids, *_by_consensus(account, kept, path))
        return released_labels_table(ids, *_drawn(account, kept, block))

    return release_kept_block(account, table, answers, confidential=confidential)


def release_kept_block(
    account: Account,
    table: pa.Table,
    answers: Callable[[Path, int], pa.Table],
    *,
    confidential: bool = False,
) -> Path:
    """Keeps what was cast on a block, and releases what follows from it, once.

    Args:
      account: that pays; held, and its folder claimed.
      table: what was cast, by `id`; its metadata says for which purpose.
      answers: draws released labels from the file that was kept, and the number of its block.
      confidential: as in `release_ballot_block`.

    Returns:
      The file of released labels.
    """
    plan = account.certified.plan
    with account.ledger() as ledger:
        block = _block_for(account, ledger, table)
        path, released = account.ballots_file(block), account.released_file(block)
        if confidential:
            released = path.with_name(released.name)
        if ledger.committed(block_name(block)) is None:
            _keep(path, table, ledger, block)

        def draw() -> None:
            # From the file, not from memory: what was reserved is what is counted.
            label_table = answers(path, block)
            if confidential:
                # Under salt: the ledger shows its digest, which tells of no record, nor of none.
                write_private_parquet(
                    released, label_table.schema, lambda: iter(label_table.to_batches())
                )
                return
            with atomic_write(released) as temporary:
                pq.write_table(label_table, temporary)

        ledger.release_once(
            plan.release(block_name(block)), draw, inputs=[path], artifacts=[released]
        )
    # How many private records were selected may be confidential.
    asked = "queries" if confidential else f"{len(table):,} queries"
    notify(f"{asked} released in block {block} of {len(plan.spec.blocks)}")
    if not confidential and (told := told_of(released)) is not None:
        notify(told)
    return released


def released_summary(
    account: Account, queries: Sequence[str], ballots: Ballots | Choices
) -> LabelStatistics | tuple[float, ...]:
    """Releases a noisy summary of ballots, once; afterwards the same one again.

    Returns:
      Sizes of label sets and agreement; of ballots that name one class each quantiles of how far
      teachers agree, as shares.
    """
    plan = account.certified.plan
    sigma = plan.spec.summary_sigma
    if sigma is None:
        raise ParameterError.before_release(f"the account {account.name} has no summary")
    table, path = ballots_table(queries, ballots, "summary"), account.ballots_file(0)
    released = account.folder.root / "votes-summary" / "summary.json"
    with account.ledger() as ledger:
        if not path.exists():
            write_private_parquet(path, table.schema, lambda: iter(table.to_batches()))
        elif ballots_digest(pq.read_table(path)) != ballots_digest(table):
            raise ParameterError.before_release(
                f"the account {account.name} is about other ballots; choose another --name"
            )

        def draw() -> None:
            _, kept = read_ballots_file(path)
            if isinstance(kept, Ballots):
                summary: object = noisy_summary(kept, sigma, rng=secure())
            else:
                summary = {"quantiles": list(noisy_quantiles(kept, sigma, rng=secure()))}
            write_text(released, canonical_json(summary))

        ledger.release_once(plan.release(SUMMARY), draw, inputs=[path], artifacts=[released])
    summary = json.loads(released.read_text(encoding="utf-8"))
    if "quantiles" in summary:
        return tuple(map(float, summary["quantiles"]))
    return LabelStatistics(**{**summary, "sizes": tuple(summary["sizes"])})


def certify_votes(account: Account, *, model: Path | None = None) -> Path:
    """Writes certificate.json from what the ledger holds of the account."""
    with account.ledger() as ledger:
        entries = ledger.store.verified()
    student = None
    if model is not None:
        below = str(model.relative_to(account.folder.root))
        student = {"file": below, "sha256": file_digest(model)}
    plan, versions = plain(account.certified.plan), program_versions()

    def certified(form: int) -> dict[str, Any]:
        return voting_certificate(
            entries, account.name, plan, model=student, versions=versions, form=form
        )

    return keep_certificate(account.folder, certified, account.runtime)


def _drawn(
    account: Account, ballots: Ballots | Choices, block: int
) -> tuple[Released, Mapping[str, str]]:
    """What a block releases: answers, and what else is told.

    With a gate, as many answers as without one, for more queries. With a bound, what is told
    of their cost is part of the release.
    """
    spec = account.certified.plan.spec
    if spec.bound is not None:
        bounded = release_within(spec.rule, ballots, spec.bound, rng=secure())
        told = {"told_cost": repr(bounded.told), "within_limit": str(bounded.within)}
        if not bounded.within and spec.bound.fallback_sigma is not None:
            told["fallback_sigma"] = repr(spec.bound.fallback_sigma)
        return bounded.released, told
    if spec.charges is not None:
        charged = release_charged_by_outcome(spec.rule, ballots, spec.charges, rng=secure())
        return charged.released, {"asked": str(charged.asked)}
    if spec.budgets:
        size = spec.blocks[block - 1]
        released = release_by_budgets(
            spec.rule, ballots, spec.budgets, number=block, size=size, rng=secure()
        )
        return released, {}
    if spec.gate is None or not isinstance(ballots, Ballots):
        if ballots.queries > spec.blocks[block - 1]:
            raise LedgerError.before_release(f"block {block} holds more queries than were charged")
        return release(spec.rule, ballots, rng=secure()), {}
    dependencies = Dependencies(gate=spec.gate, dependents=spec.dependents)
    answers = spec.blocks[block - 1] * spec.rule.labels
    budget = VotingFilter.of_answers(replace(spec.rule, labels=1), answers)
    gated = release_with_gate(spec.rule, ballots, dependencies, budget, rng=secure())
    asked = int((gated.labels[:, spec.gate] != UNANSWERED).sum())
    return gated, {"asked": str(asked)}


def _by_consensus(
    account: Account, ballots: Ballots | Choices, path: Path
) -> tuple[Released, Mapping[str, str]]:
    """Answers of a public model, and of teachers where they object: how often, and until where."""
    spec, public = account.plan.spec, read_public_answers(path)
    if spec.consensus is None or public is None or not isinstance(ballots, Choices):
        raise LedgerError.before_release(f"{path} has no answers of a public model; restore it")
    told = release_by_consensus(spec.rule, ballots, public, spec.consensus, rng=secure())
    facts = {"reached": str(told.reached), "objections": str(told.objections)}
    return told.released, facts


def _block_for(account: Account, ledger: CampaignLedger, table: pa.Table) -> int:
    """The block that these queries have already, or the next free one.

    Ballots that were computed again may differ in their last bits, so that queries for a
    purpose of their own are known by it; those of files by their very content.
    """
    blocks = account.certified.plan.spec.blocks
    reserved = {entry.release for entry in ledger.entries() if entry.kind is EntryKind.RESERVE}
    free = None
    for number in range(1, len(blocks) + 1):
        path, is_reserved = account.ballots_file(number), block_name(number) in reserved
        if path.is_file() and is_same_query(pq.read_table(path), table):
            return number
        if is_reserved and not path.is_file():
            raise LedgerError.before_release(
                f"{path} is missing and its block is reserved; restore it"
            )
        if free is None and not is_reserved:
            free = number
    if free is None:
        raise ParameterError.before_release(
            f"all {len(blocks)} blocks of the account {account.name} are released, and its promise "
            f"covers no more; use the labels in {account.released_file(len(blocks)).parent.parent}"
        )
    gated = account.certified.plan.spec.gate is not None
    if len(table) > blocks[free - 1] and not gated:
        raise ParameterError.before_release(
            f"{len(table):,} queries do not fit block {free} of {blocks[free - 1]:,}; ask fewer at "
            "a time"
        )
    return free


def _keep(path: Path, table: pa.Table, ledger: CampaignLedger, block: int) -> None:
    """Persists ballots before they are charged; what was reserved is never replaced."""
    reserved = any(
        entry.kind is EntryKind.RESERVE and entry.release == block_name(block)
        for entry in ledger.entries()
    )
    if reserved:
        return
    # Under salt: the ledger shows the digest of this file.
    write_private_parquet(path, table.schema, lambda: iter(table.to_batches()))
