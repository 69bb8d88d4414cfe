"""Votes on ballots that lie in files: an account is held, and a block of it released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditFinding
from dpal.audit.votes import TRANSCRIPTS, vote_findings
from dpal.config.vote import VoteConfig
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import CampaignFolder
from dpal.labeling import Labeler
from dpal.ledger.folder_lock import only_vote
from dpal.planning.voting_plan import block_name
from dpal.randomness import secure
from dpal.reports.report import Report
from dpal.reports.vote_report import ReleasedBlock, account_report, vote_cost_table
from dpal.runs.ballot_and_label_tables import (
    FROM_FILES,
    ballots_table,
    is_same_query,
    read_released,
    told_of,
)
from dpal.runs.progress_logging import notify
from dpal.runs.promised_and_spent import Shown
from dpal.runs.run_facts import facts_of
from dpal.runs.tracked_facts import Tracked
from dpal.runs.use_cases import UseCases
from dpal.runs.vote_account import Account, certify_votes
from dpal.runs.vote_release import certified_vote_account, release_block
from dpal.runs.vote_request import VoteRequest


@dataclass(frozen=True, kw_only=True)
class Voted(Account):
    """An account, and the ballots that it is asked about now.

    Attributes:
      config: what the person wrote.
      request: the same, with the ballots read.
    """

    config: VoteConfig
    request: VoteRequest


class VoteRuns(UseCases[VoteConfig, Voted]):
    """What votes on files do."""

    has_model = False

    def plan(self, config: VoteConfig) -> Voted:
        """Reads the ballots and certifies what they may tell. Releases nothing, writes nothing."""
        request = VoteRequest.of(config)
        account = certified_vote_account(request)
        return Voted(
            certified=account.certified, runtime=account.runtime, config=config, request=request
        )

    def prepare(self, config: VoteConfig) -> Voted:
        """The same, and says what was certified."""
        voted = self.plan(config)
        notify(
            f"plan certified: {voted.certified.epsilon:.4f} of epsilon "
            f"{voted.plan.target.epsilon:g} for {sum(voted.plan.spec.blocks):,} queries"
        )
        return voted

    def advance(self, run: Voted, labeler: Labeler | None = None) -> Voted:
        """Holds the account and releases a block; the same ballots again change nothing."""
        del labeler  # the teachers are
        with only_vote(run.runtime.artifacts):
            release_block(run, run.request)
        return run

    def certify(self, run: Voted) -> None:
        """Writes certificate.json from what the ledger holds."""
        certify_votes(run)

    def certify_again(self, folder: CampaignFolder) -> None:
        """Leaves the certificate as it is: it told of all blocks before the end."""
        del folder

    def tracked(self, run: Voted) -> Tracked:
        """What a tracking server is told of released votes; there is no model."""
        spec = run.plan.spec
        with run.ledger() as ledger:
            released = sum(
                ledger.committed(block_name(block)) is not None
                for block in range(1, len(spec.blocks) + 1)
            )
        return Tracked(
            parameters={
                **{f"voting.{key}": value for key, value in vars(spec.rule).items()},
                "voting.queries": sum(spec.blocks),
            },
            figures={"blocks": len(spec.blocks), "released_blocks": released},
        )

    def progress(self, folder: CampaignFolder) -> tuple[int, int]:
        """Blocks of queries that were answered, and those that may be asked."""
        answered = len(list(folder.root.glob("votes-*/released.parquet")))
        return answered, len(folder.read_record()["plan"]["blocks"])

    def attacks(self, run: Voted, effort: Effort) -> Sequence[AuditFinding]:
        """Lets made-up teachers vote, and asks the answers whose ballot it was."""
        return vote_findings(run.plan, transcripts=TRANSCRIPTS, draws=effort.draws, fresh=secure)

    def results(self, folder: CampaignFolder) -> Shown:
        """What votes cost, and where the released labels are."""
        released = sorted(folder.root.glob("votes-*/released.parquet"))
        return [
            vote_cost_table(folder.read_record()["plan"]),
            *(f"released labels: {path}" for path in released),
        ]

    def report(self, folder: CampaignFolder) -> Report:
        """From what an account released alone; reads no ballot."""
        released = sorted(folder.root.glob("votes-*/released.parquet"), key=_block)
        has_summary = (folder.root / "votes-summary" / "summary.json").is_file()
        if not folder.certificate.is_file() or not (released or has_summary):
            raise DataError(
                f"the account {folder.name} has not released anything to the end, so there is "
                "nothing to report; run the same `dpal vote` again to complete it"
            )
        record, blocks = folder.read_record(), []
        for path in released:
            queries, labels = read_released(path)
            file = str(path.relative_to(folder.root))
            blocks.append(
                ReleasedBlock(file=file, queries=len(queries), labels=labels, note=told_of(path))
            )
        return account_report(
            facts_of(folder, record["plan"]["epsilon"]),
            blocks,
            names=record.get("class_names") or (),
            has_summary=has_summary,
            other_teachers=record.get("other_teachers") or {},
        )

    def sweep_member(self, values: dict[str, Any]) -> dict[str, Any]:
        """Refuses: the same teachers have one account, so that a second run is none of its own.

        Raises:
          ConfigError: always.
        """
        raise ConfigError.before_release(
            f"the teachers of {values['name']} have one account, which runs over values would "
            "spend several times; use dpal plan --sweep, which releases nothing"
        )


def released_labels(config: VoteConfig) -> Path:
    """The file of labels that such ballots were released as.

    Raises:
      DataError: they were not released yet.
    """
    voted = VoteRuns().plan(config)
    asked = ballots_table(voted.request.cast.queries, voted.request.ballots, FROM_FILES)
    for block in range(1, len(voted.plan.spec.blocks) + 1):
        kept, released = voted.ballots_file(block), voted.released_file(block)
        if kept.is_file() and released.is_file() and is_same_query(pq.read_table(kept), asked):
            return released
    raise DataError(f"these ballots are not released under {config.name}; run it first")


def _block(released: Path) -> int:
    return int(released.parent.name.removeprefix("votes-"))
