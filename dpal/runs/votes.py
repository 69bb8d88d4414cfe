"""Votes on ballots that lie in files: an account is held, and a block of it released."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpal.config.votes import VoteConfig
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import CampaignFolder
from dpal.labelers import Labeler
from dpal.ledger.campaign_lock import only_vote
from dpal.planning.voting import block_name
from dpal.reports.vote_tables import cost_table
from dpal.runs.ballot_tables import FROM_FILES, ballots_table, is_same_query
from dpal.runs.notify import notify
from dpal.runs.results import Shown
from dpal.runs.sweeps import write_sweep
from dpal.runs.tracked import Tracked
from dpal.runs.vote_account import Account, certify_votes
from dpal.runs.vote_release import account_of, release_block
from dpal.runs.vote_request import VoteRequest

__all__ = [
    "advance", "certify", "plan", "prepare", "results", "sweep_member", "tracked_of", "write_sweep",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Voted(Account):
    """An account, and the ballots that it is asked about now.

    Attributes:
      config: what the person wrote.
      request: the same, with the ballots read.
    """

    config: VoteConfig
    request: VoteRequest


def plan(config: VoteConfig) -> Voted:
    """Reads the ballots and certifies what they may tell. Releases nothing, writes nothing."""
    request = VoteRequest.of(config)
    account = account_of(request)
    return Voted(
        certified=account.certified, runtime=account.runtime, config=config, request=request
    )


def prepare(config: VoteConfig) -> Voted:
    """The same, and says what was certified."""
    voted = plan(config)
    notify(
        f"plan certified: {voted.certified.epsilon:.4f} of epsilon {voted.plan.target.epsilon:g} "
        f"for {sum(voted.plan.spec.blocks):,} queries"
    )
    return voted


def advance(voted: Voted, labeler: Labeler | None = None) -> Voted:
    """Holds the account and releases a block; the same ballots again change nothing."""
    del labeler  # the teachers are
    with only_vote(voted.runtime.artifacts):
        release_block(voted, voted.request)
    return voted


def released_labels(config: VoteConfig) -> Path:
    """The file of labels that such ballots were released as.

    Raises:
      DataError: they were not released yet.
    """
    voted = plan(config)
    asked = ballots_table(voted.request.cast.queries, voted.request.ballots, FROM_FILES)
    for block in range(1, len(voted.plan.spec.blocks) + 1):
        kept, released = voted.ballots_file(block), voted.released_file(block)
        if kept.is_file() and released.is_file() and is_same_query(pq.read_table(kept), asked):
            return released
    raise DataError(f"these ballots are not released under {config.name}; run it first")


def certify(voted: Voted) -> None:
    """Writes certificate.json from what the ledger holds."""
    certify_votes(voted)


def tracked_of(voted: Voted) -> Tracked:
    """What a tracking server is told of released votes; there is no model."""
    spec = voted.plan.spec
    with voted.ledger() as ledger:
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


def sweep_member(values: dict[str, Any]) -> dict[str, Any]:
    """Refuses: the same teachers have one account, so that a second run is none of its own.

    Raises:
      ConfigError: always.
    """
    raise ConfigError.before_release(
        f"the teachers of {values['name']} have one account, which runs over values would spend "
        "several times; use dpal plan --sweep, which releases nothing"
    )


def results(folder: CampaignFolder) -> Shown:
    """What votes cost, and where the released labels are."""
    released = sorted(folder.root.glob("votes-*/released.parquet"))
    return [
        cost_table(folder.read_record()["plan"]),
        *(f"released labels: {path}" for path in released),
    ]
