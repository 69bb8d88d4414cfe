"""Bringing back the files of a phase from DVC, exactly as they were, or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.canonical import file_digest
from dpal.errors import DataError, StorageError
from dpal.files.artifacts import CampaignFolder, PhaseFolder, damaged
from dpal.files.atomic_writes import atomic_write
from dpal.files.dvc_pointers import pointed_at
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from tasks.version_with_dvc import VersioningError, bring_back


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What came of a restoration.

    Attributes:
      files: written, by their names below the campaign's folder.
      there: already there, exactly so.
      missing: why the pool's state, the selection and the labels are not among them, if so.
      ledger: what they were compared with in the ledger, in words.
    """

    files: tuple[str, ...]
    there: tuple[str, ...]
    missing: str | None
    ledger: str


def restore_phase(
    folder: CampaignFolder,
    phase: int,
    *,
    md5: str | None,
    to: Path | None,
    remote: str | None,
    entries: Sequence[Entry] | None,
    unchecked: str,
    force: bool,
) -> Restored:
    """Brings back what a phase released, and what is confidential where its cache is.

    Everything is compared with the phase's manifest and with the ledger before the first file
    is put in its place; files that are there and differ are kept, unless `force` is set.

    Args:
      folder: of the campaign; its files may be gone.
      phase: which.
      md5: under which DVC keeps the released files; None takes the pointer beside them.
      to: folder to lay the files out in; None is the campaign's own.
      remote: where versioned files were pushed to; None is what DVC is set to there.
      entries: of the ledger; None leaves it unchecked.
      unchecked: why it is.
      force: overwrite files that differ.

    Raises:
      DataError: files are not what manifest or ledger say, or others are in their place.
      VersioningError: neither cache nor remote has them.
      CampaignBusy: the campaign is running.
    """
    files, target = folder.phase(phase), folder.root if to is None else to
    wanted = md5 or pointed_at(files.root)
    if wanted is None:
        raise DataError(
            f"DVC has no pointer to phase {phase} in {folder.root}; name the hash with --md5, it "
            "stands in the description of the phase's run in MLflow"
        )
    if not target.parent.is_dir():
        raise StorageError(str(target), "the folder above it does not exist")
    with _held(folder, to), _scratch(target) as scratch:
        bring_back(folder.root.parent, scratch, files.root.name, wanted, remote)
        manifest = _manifest(scratch / files.root.name, phase, wanted)
        missing = _confidential(folder, files, scratch, manifest, remote)
        names = [name for name in sorted(manifest["files"]) if (scratch / name).is_file()]
        _require_manifest(scratch, manifest, files.root.name)
        compared = _compared(entries, unchecked, folder.name, manifest)
        names.append(f"{files.root.name}/manifest.json")  # last: it closes the phase
        there = _there(names, scratch, target, force=force)
        written = [name for name in names if name not in there]
        for name in written:
            with atomic_write(target / name) as temporary:
                shutil.copyfile(scratch / name, temporary)
    return Restored(files=tuple(written), there=tuple(there), missing=missing, ledger=compared)


@contextmanager
def _held(folder: CampaignFolder, to: Path | None) -> Iterator[None]:
    """Nobody runs the campaign while its own files change."""
    if to is not None:
        yield
        return
    with lock_folder(folder.root):
        yield


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A folder beside the target, for its owner only, gone at the end."""
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=target.parent) as scratch:
        yield Path(scratch)


def _manifest(place: Path, phase: int, md5: str) -> dict[str, Any]:
    path = place / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stated = manifest["files"], manifest["phase"], manifest["ledger_head"]["sequence"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path) from error
    if stated[1] != phase:
        raise DataError(
            f"hash {md5} keeps phase {stated[1]} and not phase {phase}; nothing was written"
        )
    return manifest


def _confidential(
    folder: CampaignFolder,
    files: PhaseFolder,
    scratch: Path,
    manifest: Mapping[str, Any],
    remote: str | None,
) -> str | None:
    """Brings the pool's state, the selection and the labels to the scratch folder.

    Returns:
      Why they are not there; None if they are.
    """
    md5, name = pointed_at(files.confidential), files.name_of(files.confidential)
    if md5 is None:
        return "DVC has no pointer to them here"
    try:
        # From the cache only: they are never pushed.
        bring_back(folder.root.parent, scratch, name, md5, remote, pull=False)
    except VersioningError:
        return "they are in no cache here; it is where the campaign ran, and they are never pushed"
    digests = {
        file_name: digest
        for file_name, digest in manifest["files"].items()
        if file_name.startswith(name)
    }
    if any(_differs(scratch / file_name, digest) for file_name, digest in digests.items()):
        shutil.rmtree(scratch / name)
        return "the cache keeps those of another run of this phase"
    return None


def _require_manifest(scratch: Path, manifest: Mapping[str, Any], released: str) -> None:
    for name, digest in manifest["files"].items():
        path = scratch / name
        if (name.startswith(f"{released}/") or path.is_file()) and _differs(path, digest):
            raise DataError(
                f"{name} in DVC's cache or remote is not what the phase's manifest says; it was "
                "altered or damaged there, nothing was written"
            )


def _differs(path: Path, digest: str) -> bool:
    return not path.is_file() or file_digest(path) != digest


def _compared(
    entries: Sequence[Entry] | None, unchecked: str, campaign: str, manifest: Mapping[str, Any]
) -> str:
    """Compares digests with what the ledger committed; says in words what was compared."""
    if entries is None:
        return f"not checked: {unchecked}"
    verify_chain(entries)
    head, digests = manifest["ledger_head"], {entry.sequence: entry.digest for entry in entries}
    if digests.get(head["sequence"]) != head["digest"]:
        raise DataError(
            f"the phase was finished on another ledger entry {head['sequence']} than this ledger "
            "has; nothing was written, name the campaign's own ledger with --ledger"
        )
    committed: dict[str, str] = {}  # of a release that was drawn again, the last draw counts
    for entry in entries:
        seen = entry.campaign == campaign and entry.sequence <= head["sequence"]
        if seen and entry.kind is EntryKind.COMMIT:
            committed |= entry.body["artifacts"]
    both = committed.keys() & manifest["files"].keys()
    for name in sorted(both):
        if committed[name] != manifest["files"][name]:
            raise DataError(
                f"{name} is not the file that the ledger committed; nothing was written"
            )
    return f"{len(both)} of the files are those that it committed, entry {head['sequence']}"


def _there(names: Sequence[str], scratch: Path, target: Path, *, force: bool) -> list[str]:
    """Names whose files are already there, exactly so."""
    present = [name for name in names if (target / name).exists()]
    equal = [name for name in present if not _differs(target / name, file_digest(scratch / name))]
    if len(equal) < len(present) and not force:
        other = next(name for name in present if name not in equal)
        raise DataError(
            f"{target / other} is there and differs from what would be restored; nothing was "
            "written, choose another folder with --to, or overwrite it with --force"
        )
    return equal
