"""Releases ballots that lie in files, under an account in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dpal.canonical import digest
from dpal.errors import ParameterError
from dpal.files.artifacts import RECORD, VOTE_ACCOUNT
from dpal.ledger.campaign_lock import claim, only_vote
from dpal.planning.voting import VotingSpec, certify_voting
from dpal.runs.known_teachers import require_one_account
from dpal.runs.vote_account import (
    Account,
    ask,
    certify_votes,
    hold_votes,
    released_summary,
)
from dpal.runs.vote_request import Wishes
from dpal.voting.advice import LabelStatistics
from dpal.voting.ballots import Ballots


def account_of(wishes: Wishes, spec: VotingSpec | None = None) -> Account:
    """Where an account is kept; of these wishes, or of a summary alone."""
    return Account(certified=certify_voting(spec or wishes.spec), runtime=wishes.runtime)


def release_ballots(wishes: Wishes) -> tuple[Account, Path]:
    """Holds the account, releases a block of it, certifies; again, it changes nothing."""
    account = account_of(wishes)
    with claim(account.folder.root), only_vote(account.runtime.artifacts):
        _hold(account, wishes)
        released = ask(account, wishes.cast.queries, wishes.ballots)
        certify_votes(account)
    return account, released


def release_summary(
    wishes: Wishes, spec: VotingSpec, ballots: Ballots
) -> tuple[Account, LabelStatistics]:
    """Holds an account of a summary alone, and releases it; again, it changes nothing."""
    account = account_of(wishes, spec)
    with claim(account.folder.root), only_vote(account.runtime.artifacts):
        _hold(account, wishes)
        known = released_summary(account, wishes.cast.queries, ballots)
        certify_votes(account)
    return account, known


def _hold(account: Account, wishes: Wishes) -> None:
    """Requires teachers that have no other promise, and holds theirs. Needs the folder's claim."""
    _require_same_teachers(account, wishes.cast.teachers)
    other_teachers = require_one_account(account, wishes)
    hold_votes(account, _made_of(wishes))
    write_account(account, wishes, other_teachers)


def write_account(account: Account, wishes: Wishes, other_teachers: Mapping[str, str]) -> None:
    """Writes what later commands need to know of an account.

    Args:
      account: that is held.
      wishes: it was held for.
      other_teachers: why the teachers are not those of accounts that they might be mistaken for.
    """
    runtime = account.runtime.model_dump(mode="json")
    account.folder.write_record(
        {
            "kind": VOTE_ACCOUNT,
            "name": account.name,
            "plan": {**account.certified.summary(), "phases": []},
            "teachers": list(wishes.cast.teachers),
            "class_names": list(wishes.cast.names),
            "after": wishes.after,
            "other_teachers": dict(other_teachers),
            "config": {"name": account.name, "runtime": runtime},
        }
    )


def _require_same_teachers(account: Account, teachers: Sequence[str]) -> None:
    """An account is about teachers; those of others are not protected by it."""
    if not (account.folder.root / RECORD).is_file():
        return
    record = account.folder.read_record()
    if record.get("kind") != VOTE_ACCOUNT:
        raise ParameterError.before_release(
            f"{account.name} is a campaign and no account of teachers; choose another --name"
        )
    if record["teachers"] != list(teachers):
        raise ParameterError.before_release(
            f"the account {account.name} is about other teachers; choose another --name"
        )


def _made_of(wishes: Wishes) -> str:
    return digest([list(wishes.cast.teachers), list(wishes.cast.names)])
