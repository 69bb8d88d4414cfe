"""The files that a ledger's entries speak of, by path below the campaign's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dpal.canonical import file_digest
from dpal.errors import LedgerError
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore


def name_below(folder: Path, path: Path) -> str:
    """A file's name in an entry."""
    return str(path.relative_to(folder))


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files that must be there, by name.

    Raises:
      LedgerError: one is missing. Nothing is released without it.
    """
    by_name = {}
    for path in files:
        if not path.exists():
            raise LedgerError.before_release(
                f"{path} is missing; what was reserved stays spent, restore the file (`dvc "
                f"checkout` or `dvc pull` in {folder.parent})"
            )
        by_name[name_below(folder, path)] = file_digest(path)
    return by_name


def first_changed(
    folder: Path, files: Iterable[Path], stated: Mapping[str, str]
) -> tuple[Path, str] | None:
    """The first file that is not as an entry says, and whether it is altered or missing."""
    for path in files:
        if not path.exists():
            return path, "missing"
        if file_digest(path) != stated.get(name_below(folder, path)):
            return path, "altered"
    return None


def forfeit(store: LedgerStore, campaign: str, release: str, name: str, reason: str) -> None:
    """Records, once, why a release can no longer be accounted for; it stays spent."""
    if not any(
        entry.kind is EntryKind.FORFEIT and entry.release == release
        for entry in store.entries(campaign)
    ):
        body = {"file": name, "reason": reason}
        store.append(campaign=campaign, kind=EntryKind.FORFEIT, release=release, body=body)
