"""What must hold of campaigns and their ledger at every moment, dead or alive."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.canonical import file_digest
from dpal.errors import DataError
from dpal.files.artifacts import LEDGER
from dpal.files.dvc_pointers import pointed_at
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_of
from dpal.privacy import Adjacency, PrivacyTarget, Unit

# Written again by every run, or until their phase is finished; no release is among them.
_MAY_CHANGE = {
    "campaign.json",
    "waiting.json",
    "certificate.dsse.json",
    "certificate.json",
    "report.dsse.json",
    "report.html",
    "report.md",
    "ledger.dsse.json",
    "ledger.html",
    "metrics.json",
    "ledger.parquet",
}
_STAGED, _JOURNAL = ".staged-", ".journal.json"


class Witness:
    """Looks at campaigns after each command and compares with what it saw before."""

    def __init__(self, artifacts: Path, *campaigns: str) -> None:
        self.artifacts, self.campaigns = artifacts, campaigns
        self.entries: list[Entry] = []
        self._spent = dict.fromkeys(campaigns, 0.0)
        self._files: dict[str, str] = {}

    def look(self) -> None:
        """Requires all that must hold, and remembers.

        Nothing is lost or rewritten in the ledger, its chain is whole, no release is
        reserved or committed twice, the spent epsilon did not fall, committed files are as
        committed, and no file that was persisted is another one now: it was never drawn again.
        """
        entries = read_entries(self.artifacts / LEDGER)
        verify_chain(entries)
        assert entries[: len(self.entries)] == self.entries, "the ledger lost or changed an entry"
        once = [(entry.campaign, entry.kind, entry.release) for entry in entries]
        assert len(once) == len(set(once)), "a release stands twice in the ledger"
        grown = {entry.campaign for entry in entries[len(self.entries) :]}
        self.entries = entries
        for campaign in grown & set(self.campaigns):
            self._require_growth(campaign)

        files = persisted(self.artifacts, self.campaigns)
        for name, digest in self._files.items():
            # Checkpoints are swept away and pointers are written over, but none of them may ever
            # come back as another one.
            passing = _is_checkpoint(name) or _is_pointer(name)
            found = files.get(name, digest if passing else None)
            assert found == digest, f"{name} was persisted and is another file now"
        for name, digest in self._recorded(EntryKind.COMMIT):
            assert files.get(name) == digest, f"{name} is not what was committed"
        self._files |= files

    def end(self) -> None:
        """Requires what must hold once the campaigns are through.

        Every checkpoint that was once whole on disk stands in the ledger: what was persisted
        counted, and its steps were not drawn again. Nothing half-written is left.
        """
        seen = {one for one in self._files.items() if _is_checkpoint(one[0])}
        lost = seen - self._recorded(EntryKind.CHECKPOINT)
        assert not lost, f"{lost} was persisted and is not in the ledger"
        gone = {one for one in self._files if _is_pointer(one)} - set(
            persisted(self.artifacts, self.campaigns)
        )
        assert not gone, f"{gone} was written and is gone or torn"
        for campaign in self.campaigns:
            left = [str(path) for path in (self.artifacts / campaign).rglob(f"{_STAGED}*")]
            assert not left, f"{left} were never swept away"

    def _recorded(self, kind: EntryKind) -> set[tuple[str, str]]:
        return {
            (f"{entry.campaign}/{name}", digest)
            for entry in self.entries
            if entry.kind is kind and entry.campaign in self.campaigns
            for name, digest in entry.body["artifacts"].items()
        }

    def _require_growth(self, campaign: str) -> None:
        ours = [entry for entry in self.entries if entry.campaign == campaign]
        held = next(entry.body for entry in ours if entry.kind is EntryKind.HOLD)
        target = PrivacyTarget(
            epsilon=held["epsilon"],
            delta=held["delta"],
            adjacency=Adjacency(held["adjacency"]),
            unit=Unit(held["unit"]),
        )
        releases = [release_of(entry) for entry in ours if entry.kind is EntryKind.RESERVE]
        spent = campaign_epsilon(releases, target, accountant=Accountant.RDP)
        assert spent >= self._spent[campaign], "the spent epsilon fell"
        self._spent[campaign] = spent


def read_entries(ledger: Path) -> list[Entry]:
    """The ledger's entries, read from a copy: looking must not tidy up after the dead."""
    if not ledger.is_file():
        return []
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / ledger.name
        for suffix in ("", "-wal"):
            part = ledger.with_name(ledger.name + suffix)
            if part.exists():
                shutil.copy(part, copy.with_name(part.name))
        raw = sqlite3.connect(copy)
        tables = raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'entries'")
        made = tables.fetchone()[0]
        raw.close()
        if not made:
            return []
        store = LedgerStore(copy, create=False)
        try:
            return store.entries()
        finally:
            store.close()


def persisted(artifacts: Path, campaigns: tuple[str, ...]) -> dict[str, str]:
    """Digest of every file of campaigns that counts as written, by its path in `artifacts`.

    A journal makes the staged files of its folder count, as `dpal.files.atomic_writes` says. A
    pointer counts once it is whole: DVC opens it, and writes it a moment later.
    """
    files: dict[str, str] = {}
    for path in (path for name in campaigns for path in (artifacts / name).rglob("*")):
        name = str(path.relative_to(artifacts))
        hidden = path.name.startswith(".") or "/figures/" in name
        counts = path.name not in _MAY_CHANGE and not hidden
        if path.is_file() and counts and not (_is_pointer(name) and _is_torn(path)):
            files[name] = file_digest(path)
    for journal in (path for name in campaigns for path in (artifacts / name).rglob(_JOURNAL)):
        for name in json.loads(journal.read_text(encoding="utf-8")):
            staged = journal.with_name(f"{_STAGED}{name}")
            if staged.exists() and name not in _MAY_CHANGE:
                files[str(journal.with_name(name).relative_to(artifacts))] = file_digest(staged)
    return files


def told(entries: list[Entry]) -> list[tuple[str, str, str, Any]]:
    """What the ledger says, without times and the digests of random files.

    Checkpoints are left out: how many there are depends on where a run was interrupted.
    """
    return [
        (one.campaign, one.kind.value, one.release, one.body.get("charges"))
        for one in entries
        if one.kind is not EntryKind.CHECKPOINT
    ]


def _is_pointer(name: str) -> bool:
    return name.endswith(".dvc")


def _is_torn(pointer: Path) -> bool:
    try:
        return pointed_at(pointer.with_suffix("")) is None
    except (DataError, FileNotFoundError):  # a command that goes on removes a torn one
        return True


def _is_checkpoint(name: str) -> bool:
    return "/checkpoints/" in name
