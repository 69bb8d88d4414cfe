"""Recognises teachers that have an account already: two promises to their records would add up.

They are recognised by their names, and by their ballots on queries of the same ids, whatever they
are called. Where either may mislead, somebody says why they are others, and that is on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpal.data.parquet import reading
from dpal.errors import DataError, ParameterError
from dpal.files.artifacts import (
    CONFIDENTIAL,
    RECORD,
    CampaignFolder,
    campaigns_of,
)
from dpal.runs.ballot_and_label_tables import read_ballots_file
from dpal.runs.kinds import holds_ballots
from dpal.runs.vote_account import Account
from dpal.runs.vote_request import VoteRequest
from dpal.voting.same_ensemble import Recognition, Said, recognised


def require_one_account(account: Account, request: VoteRequest) -> dict[str, str]:
    """Requires teachers whom no other voting account of the artifacts folder is about.

    Returns:
      Why they are not those of accounts that they might be mistaken for, by name of the account.

    Raises:
      ParameterError: they are asked under another account, or may be. Nothing was released.
      DataError: ballots of another account are damaged.
    """
    artifacts = request.runtime.artifacts
    counted = {account.name, *_counted(artifacts, request.after)}
    reasons = _reasons(account.folder)
    for folder in campaigns_of(artifacts):
        record = folder.read_record()
        if (
            not holds_ballots(folder)
            or folder.name in counted
            or account.name in _counted(artifacts, record.get("after"))
        ):
            continue
        # What promises some records less counts in no other promise, and no other in it.
        may_be_counted = request.budgets is None and not record["plan"].get("budgets")
        counting = request.written("after", folder.name) if may_be_counted else ""
        recognition = recognised((request.cast.queries, request.ballots), _blocks_of(folder))
        if recognition is Recognition.SAME:
            raise ParameterError.before_release(
                f"these teachers have the account {folder.name} already, and two promises add up; "
                f"ask with {request.written('name', folder.name)} and the names that they have "
                f"there{counting and f', or count it in this promise with {counting}'}"
            )
        doubt = ""
        if not set(record.get("teachers", ())).isdisjoint(request.cast.teachers):
            doubt = "a teacher of each has the same name"
        elif recognition is Recognition.ALIKE:
            doubt = "most answered alike"
        elif _lost(folder):
            doubt = "ballots that it released are missing here"
        if not doubt or account.name in _reasons(folder) or folder.name in reasons:
            continue
        if request.other_teachers is None:
            reason = request.written("other_teachers", "REASON")
            raise ParameterError.before_release(
                f"these teachers may be those of the account {folder.name} ({{doubt}}), and two "
                f"promises would add up; ask with {request.written('name', folder.name)}"
                f"{counting and f', count it in this promise with {counting}'}, or if no private "
                f"record is behind both, say why with {reason}",
                doubt=doubt,
            )
        reasons[folder.name] = request.other_teachers
    return reasons


def _counted(artifacts: Path, after: str | None) -> set[str]:
    """The account that `after` names, and those that it counts itself."""
    counted: set[str] = set()
    while after is not None and after not in counted:
        counted.add(after)
        folder = CampaignFolder(artifacts / after)
        recorded = (folder.root / RECORD).is_file()
        after = folder.read_record().get("after") if recorded else None
    return counted


def _reasons(folder: CampaignFolder) -> dict[str, str]:
    """What an account has on record of other teachers; nothing before it is held."""
    if not (folder.root / RECORD).is_file():
        return {}
    return dict(folder.read_record().get("other_teachers", {}))


def _blocks_of(folder: CampaignFolder) -> Iterator[Said]:
    """Ballots that an account keeps, a block at a time."""
    for path in sorted((folder.root / CONFIDENTIAL).glob("votes-*/ballots.parquet")):
        with reading(path, "restore it", DataError.before_release):
            block = read_ballots_file(path)
        yield block


def _lost(folder: CampaignFolder) -> bool:
    """Whether ballots of a released block are not there, so that nothing can be said of them."""
    kept = folder.root / CONFIDENTIAL
    released = [path.parent.name for path in folder.root.glob("votes-*/released.parquet")]
    return not all((kept / block / "ballots.parquet").is_file() for block in released)
