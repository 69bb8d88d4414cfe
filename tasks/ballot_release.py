"""Releases ballots that lie in files, under an account in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpal.artifacts import RECORD, VOTE_ACCOUNT, CampaignFolder, campaigns_of
from dpal.canonical import digest
from dpal.errors import ParameterError
from dpal.ledger.claim import claim
from dpal.planning.voting import VotingSpec, certify_voting
from dpal.voting.advice import LabelStatistics
from dpal.voting.ballots import Ballots
from tasks.ballots import Wishes
from tasks.voting import Account, ask, certify_votes, hold_votes, released_summary


def account_of(wishes: Wishes, spec: VotingSpec | None = None) -> Account:
    """Where an account is kept; of these wishes, or of a summary alone."""
    return Account(certified=certify_voting(spec or wishes.spec), runtime=wishes.runtime)


def release_ballots(wishes: Wishes) -> tuple[Account, Path]:
    """Holds the account, releases a block of it, certifies; again, it changes nothing."""
    account = account_of(wishes)
    with claim(account.folder.root):
        _require_same_teachers(account, wishes.cast.teachers)
        _require_one_account(account, wishes)
        hold_votes(account, _made_of(wishes))
        write_account(account, wishes)
        released = ask(account, wishes.cast.queries, wishes.ballots)
        certify_votes(account)
    return account, released


def release_summary(
    wishes: Wishes, spec: VotingSpec, ballots: Ballots
) -> tuple[Account, LabelStatistics]:
    """Holds an account of a summary alone, and releases it; again, it changes nothing."""
    account = account_of(wishes, spec)
    with claim(account.folder.root):
        _require_same_teachers(account, wishes.cast.teachers)
        _require_one_account(account, wishes)
        hold_votes(account, _made_of(wishes))
        write_account(account, wishes)
        known = released_summary(account, wishes.cast.queries, ballots)
        certify_votes(account)
    return account, known


def write_account(account: Account, wishes: Wishes) -> None:
    """Writes what later commands need to know of an account."""
    runtime = account.runtime.model_dump(mode="json")
    account.folder.write_record(
        {
            "kind": VOTE_ACCOUNT,
            "name": account.name,
            "plan": {**account.certified.summary(), "phases": []},
            "teachers": list(wishes.cast.teachers),
            "class_names": list(wishes.cast.names),
            "after": wishes.after,
            "config": {"name": account.name, "runtime": runtime},
        }
    )


def _require_same_teachers(account: Account, teachers: Sequence[str]) -> None:
    """An account is about teachers; those of others are not protected by it."""
    if not (account.folder.root / RECORD).is_file():
        return
    record = account.folder.read_record()
    if record.get("kind") != "voting":
        raise ParameterError(
            f"{account.name} is a campaign and no account of teachers; choose another --name, "
            "nothing was released"
        )
    if record["teachers"] != list(teachers):
        raise ParameterError(
            f"the account {account.name} is about other teachers; choose another --name, nothing "
            "was released"
        )


def _require_one_account(account: Account, wishes: Wishes) -> None:
    """Teachers with two accounts would give their records two promises."""
    artifacts = wishes.runtime.artifacts
    mine = {account.name, *_counted(artifacts, wishes.after)}
    for folder in campaigns_of(artifacts):
        record = folder.read_record()
        same = record.get("teachers") == list(wishes.cast.teachers)
        counts_mine = account.name in _counted(artifacts, record.get("after"))
        if record.get("kind") == "voting" and same and folder.name not in mine and not counts_mine:
            raise ParameterError(
                f"these teachers have the account {folder.name} already, and two promises add up; "
                f"nothing was released, ask with --name {folder.name}, or count it in this promise "
                f"with --after {folder.name}"
            )


def _counted(artifacts: Path, after: str | None) -> set[str]:
    """The account that --after names, and those that it counts itself."""
    found: set[str] = set()
    while after is not None and after not in found:
        found.add(after)
        folder = CampaignFolder(artifacts / after)
        known = (folder.root / RECORD).is_file()
        after = folder.read_record().get("after") if known else None
    return found


def _made_of(wishes: Wishes) -> str:
    return digest([list(wishes.cast.teachers), list(wishes.cast.names)])
