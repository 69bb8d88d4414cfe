"""Releases ballots that lie in files, under an account in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpal.canonical import digest
from dpal.errors import ParameterError
from dpal.files.artifacts import RECORD
from dpal.ledger.folder_lock import lock_folder, only_vote
from dpal.planning.voting_plan import VotingSpec, certify_voting
from dpal.runs.kinds import VOTES, holds_ballots
from dpal.runs.one_account_per_ensemble import require_one_account
from dpal.runs.store_sync import bring_files, keep_files
from dpal.runs.vote_account import (
    Account,
    certify_votes,
    hold_votes,
    release_ballot_block,
    released_summary,
)
from dpal.runs.vote_request import VoteRequest
from dpal.voting.mechanism_advice import LabelStatistics


def certified_vote_account(request: VoteRequest, spec: VotingSpec | None = None) -> Account:
    """Where an account is kept; of this request, or of a summary alone."""
    return Account(certified=certify_voting(spec or request.spec), runtime=request.runtime)


def release_ballots(request: VoteRequest) -> tuple[Account, Path]:
    """Holds the account, releases a block of it, certifies; again, it changes nothing."""
    if request.name is not None and request.runtime.store is not None:
        # What the account holds decides the plan: how many blocks it has.
        with lock_folder(request.runtime.artifacts / request.name):
            bring_files(request.name, request.runtime)
    account = certified_vote_account(request)
    with lock_folder(account.folder.root), only_vote(account.runtime.artifacts):
        released = release_block(account, request)
        certify_votes(account)
        keep_files(account)
    return account, released


def release_block(account: Account, request: VoteRequest) -> Path:
    """Holds an account and releases a block of it. Needs the folder's claim, and to vote alone.

    Returns:
      The file of released labels.
    """
    _hold(account, request)
    return release_ballot_block(account, request.cast.queries, request.ballots)


def release_summary(
    request: VoteRequest, spec: VotingSpec
) -> tuple[Account, LabelStatistics | tuple[float, ...]]:
    """Holds an account of a summary alone, and releases it; again, it changes nothing."""
    account = certified_vote_account(request, spec)
    with lock_folder(account.folder.root), only_vote(account.runtime.artifacts):
        bring_files(account.name, account.runtime)
        _hold(account, request)
        summary = released_summary(account, request.cast.queries, request.ballots)
        certify_votes(account)
        keep_files(account)
    return account, summary


def _hold(account: Account, request: VoteRequest) -> None:
    """Requires teachers that have no other promise, and holds theirs. Needs the folder's claim."""
    _require_same_teachers(account, request)
    other_teachers = require_one_account(account, request)
    hold_votes(account, _made_of(request))
    write_account(account, request, other_teachers)


def write_account(
    account: Account, request: VoteRequest, other_teachers: Mapping[str, str]
) -> None:
    """Writes what later commands need to know of an account.

    Args:
      account: that is held.
      request: it was held for.
      other_teachers: why the teachers are not those of accounts that they might be mistaken for.
    """
    runtime = account.runtime.model_dump(mode="json")
    account.folder.write_record(
        {
            "kind": VOTES.recorded,
            "name": account.name,
            "plan": {**account.certified.summary(), "phases": []},
            "teachers": list(request.cast.teachers),
            "class_names": list(request.cast.names),
            "after": request.after,
            "other_teachers": dict(other_teachers),
            "config": {"name": account.name, "runtime": runtime},
        }
    )


def _require_same_teachers(account: Account, request: VoteRequest) -> None:
    """An account is about teachers; those of others are not protected by it."""
    if not (account.folder.root / RECORD).is_file():
        return
    record = account.folder.read_record()
    if not holds_ballots(account.folder):
        raise ParameterError.before_release(
            f"{account.name} is a campaign and no account of teachers; choose another "
            f"{request.written('name')}"
        )
    if record["teachers"] != list(request.cast.teachers):
        raise ParameterError.before_release(
            f"the account {account.name} is about other teachers; choose another "
            f"{request.written('name')}"
        )


def _made_of(request: VoteRequest) -> str:
    return digest([list(request.cast.teachers), list(request.cast.names)])
