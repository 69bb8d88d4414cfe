"""Is a ledger whole and the newest, and who says so if nobody can tell?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dpal.canonical import file_digest
from dpal.config.runtime import RuntimeConfig
from dpal.errors import LedgerMissing, LedgerTampered
from dpal.files.artifacts import NO_HEAD, CampaignFolder, campaigns_of
from dpal.ledger.campaign_view import CampaignView
from dpal.ledger.chain import verify_chain
from dpal.ledger.data_set_accounts import lost_entries
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.open_ledger import (
    ledger_of_all,
    open_ledger,
    recorded_ledger,
    was_written_here,
)

_ON_DISK = (EntryKind.CHECKPOINT, EntryKind.COMMIT)  # entries that say what is in a file


@dataclass(frozen=True, kw_only=True)
class SoundLedger:
    """What a sound ledger was found to be.

    Attributes:
      entries: how many it has.
      head: digest of the last one.
      absent: committed files that are not here, so that they were not compared.
    """

    entries: int
    head: str
    absent: int


def verify_ledger(place: CampaignFolder | Path, ledger: str | None = None) -> SoundLedger:
    """Checks the file, chain, topics and anchor, what finished phases saw, committed files.

    Args:
      place: a campaign's folder, or a folder of campaigns, of which all are checked.
      ledger: its URL, where no campaign there says so.

    Raises:
      LedgerTampered: names the first bad entry.
      AnchorError: the chain is sound, in a copy that is not the newest known here.
    """
    with closing(_opened(place, ledger)) as store:
        entries = store.entries()
        head = verify_chain(entries)
        store.require_sound_file()
        store.verified()  # first: an old copy lacks what finished phases saw
        store.require_topics()
        folders = [place] if isinstance(place, CampaignFolder) else campaigns_of(place)
        absent = sum(_require_files(folder, entries) for folder in folders)
    return SoundLedger(entries=len(entries), head=head, absent=absent)


def _opened(place: CampaignFolder | Path, ledger: str | None) -> LedgerStore:
    if isinstance(place, CampaignFolder):
        return recorded_ledger(place)
    if ledger is not None:
        return open_ledger(RuntimeConfig(artifacts=place, ledger=ledger), create=False)
    return ledger_of_all(place)


def _opened_or_lost(place: CampaignFolder | Path, ledger: str | None) -> LedgerStore:
    """The same; an empty one where it is gone, for whoever vouches for a new one."""
    try:
        return _opened(place, ledger)
    except LedgerMissing:
        if isinstance(place, CampaignFolder):
            return recorded_ledger(place, create=True)
        runtime = RuntimeConfig(artifacts=place, ledger=ledger)
        if not was_written_here(runtime):
            raise  # a new one in place of none would be a file, and perhaps a folder, for nothing
        return open_ledger(runtime)


def adopt(
    place: CampaignFolder | Path, ledger: str | None, *, reason: str, despite: str | None
) -> str:
    """Vouches for this copy of a ledger, and says so in words.

    Raises:
      LedgerError: nothing is wrong with it, or more than a reason can mend.
    """
    with closing(_opened_or_lost(place, ledger)) as store:
        taken_over = (
            isinstance(place, CampaignFolder)
            and CampaignView(store, place.name, place.root).begun_elsewhere()
        )
        entry = store.adopt(reason=reason, despite=despite, begun_elsewhere=taken_over)
        said = f"{store.name} is adopted; entry {entry.sequence} says so, with the reason"
        if despite is not None:
            said += (
                "; what the lost entries spent is not known, so all blocks of data sets that were "
                "there count as spent, and no campaign that had begun can be continued"
            )
        return said


def _require_files(folder: CampaignFolder, entries: Sequence[Entry]) -> int:
    """Requires that finished phases saw these entries, and that committed files are theirs.

    Returns:
      How many committed files are not here; a checkpoint goes when the next one is recorded.
    """
    absent = 0
    gap = lost_entries(entries)
    digests = {entry.sequence: entry.digest for entry in entries}
    for phase in range(len(folder.finished_phases())):
        seen = folder.phase(phase).ledger_head()
        if seen == NO_HEAD:
            continue  # an improvement of a declared start, before there was a ledger
        if digests.get(seen["sequence"]) != seen["digest"] and gap is None:
            raise LedgerTampered(
                seen["sequence"], f"phase {phase} was finished on another entry of this number"
            )
    for entry in entries:
        if entry.campaign == folder.name and entry.kind in _ON_DISK:
            for name, digest in entry.body["artifacts"].items():
                path = folder.root / name
                if not path.exists():
                    absent += entry.kind is EntryKind.COMMIT
                elif file_digest(path) != digest:
                    raise LedgerTampered(entry.sequence, f"{path} is not the file it committed")
    return absent
