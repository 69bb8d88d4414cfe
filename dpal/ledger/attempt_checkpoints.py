"""Checkpoints of one attempt at a training: what is persisted, which steps may still be made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpal.canonical import canonical_json, file_digest
from dpal.errors import CampaignBusy, LedgerError
from dpal.files.atomic_writes import roll_forward, write_together
from dpal.ledger.attempt_names import checkpoint_name
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.recorded_files import digests, first_changed, forfeit, name_below
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.verified_entries import EntriesSoFar

RARELY = "a plan usually spends all of its promise, so that a second charge rarely fits"
_FORMAT = 1
_STATE, _ABOUT = ".safetensors", ".json"


class ReservedSteps:
    """What a training may do: go on from `state`, ask before every step, persist.

    Attributes:
      done: steps made so far, those along the persisted path included.
      persisted: steps of these that the newest checkpoint holds.
      state: file of the newest checkpoint; None at the start of the phase.
    """

    def __init__(
        self,
        ledger: CampaignLedger,
        attempt: str,
        folder: Path,
        *,
        reserved: int,
        newest: Entry,
    ) -> None:
        """Goes on from the newest entry of an attempt: its reservation or last checkpoint."""
        self._ledger, self._attempt, self._folder = ledger, attempt, folder
        self._reserved, self._newest = reserved, newest
        self.done = self.persisted = checkpoint_steps(newest)
        self.state = folder / f"{self.done}{_STATE}" if self.done else None

    def require(self, step: int) -> None:
        """Asks for a step, before anything of it is computed.

        Args:
          step: its number, counted from 1 over the whole phase.

        Raises:
          LedgerError: it is not the next one, or more than were reserved.
        """
        if step != self.done + 1 or not step <= self._reserved:
            raise LedgerError(
                f"step {step} of {self._attempt} was asked for after {self.done} of "
                f"{self._reserved} reserved steps; it was not made and nothing more was "
                "released, run the same command again to go on from the last checkpoint"
            )
        self.done = step

    def require_ours(self) -> None:
        """Requires that no other process has taken over since this one began.

        Raises:
          CampaignBusy: one has; what was made here and not persisted is not released.
        """
        self._ledger.store.require_fence(self._ledger.campaign)
        _require_newest(self._ledger.entries(), self._attempt, self._newest)

    def require_all_made(self) -> None:
        """Requires that a phase which ends has made all of its steps.

        Raises:
          LedgerError: some are missing; the model is not the planned one.
        """
        if self.done != self._reserved:
            raise LedgerError(
                f"{self._attempt} ended after {self.done} of {self._reserved} reserved steps; "
                "its model was not released, run the same command again to go on"
            )

    def persist(self, state: bytes, position: Mapping[str, int]) -> None:
        """Persists the state after the steps made so far, and records it.

        Args:
          state: tensors, as safetensors; never anything that noise could be drawn from.
          position: where in the phase the next step is.

        Raises:
          CampaignBusy: another process has taken over. Nothing was persisted.
        """
        if self.done == self.persisted:
            return
        self.require_ours()
        about = {
            "format": _FORMAT,
            "release": self._attempt,
            "steps": self.done,
            "position": dict(position),
            "follows": self._newest.digest,
            "state": sha256(state).hexdigest(),
        }
        write_together(
            self._folder,
            {
                f"{self.done}{_STATE}": state,
                f"{self.done}{_ABOUT}": (canonical_json(about) + "\n").encode(),
            },
        )
        self._newest = _record(
            self._ledger, self._attempt, self._folder, self.done, after=self._newest
        )
        self.persisted, self.state = self.done, self._folder / f"{self.done}{_STATE}"
        _sweep(self._folder, self.done)


def checkpoint_steps(entry: Entry) -> int:
    """Steps on disk when an entry was made."""
    return int(entry.body["steps"]) if entry.kind is EntryKind.CHECKPOINT else 0


def resume_attempt(
    ledger: CampaignLedger, attempt: str, folder: Path, *, reserved: int
) -> ReservedSteps:
    """Finds where an attempt stands, and records what a crash left unrecorded.

    Raises:
      LedgerError: the newest recorded checkpoint is missing or altered, or one that was not
        recorded is not a whole one of this attempt that follows from it.
    """
    newest = _newest(ledger.entries(), attempt)
    roll_forward(folder)
    beyond = [steps for steps in _on_disk(folder) if steps > checkpoint_steps(newest)]
    for steps in beyond:
        if len(beyond) > 1 or not _follows(folder, attempt, steps, newest, reserved):
            raise LedgerError(
                f"{folder / str(steps)}{_ABOUT} is no whole checkpoint that follows what the "
                f"ledger has of {attempt}; nothing more was released, "
                + _advice(attempt, "restore the files")
            )
        newest = _record(ledger, attempt, folder, steps, after=newest)
    _require_there(ledger, attempt, newest)
    _sweep(folder, checkpoint_steps(newest))
    return ReservedSteps(ledger, attempt, folder, reserved=reserved, newest=newest)


def _newest(entries: Iterable[Entry], attempt: str) -> Entry:
    """The attempt's reservation, or its last checkpoint."""
    return [
        entry
        for entry in entries
        if (entry.kind is EntryKind.RESERVE and entry.release == attempt)
        or (entry.kind is EntryKind.CHECKPOINT and entry.release.partition("@")[0] == attempt)
    ][-1]


def _on_disk(folder: Path) -> list[int]:
    """Steps of all checkpoints of which at least one file is there."""
    files = folder.iterdir() if folder.is_dir() else []
    return sorted({int(path.stem) for path in files if path.stem.isdecimal()})


def _follows(folder: Path, attempt: str, steps: int, newest: Entry, reserved: int) -> bool:
    """Whether an unrecorded checkpoint is whole and lies on the path that the ledger knows.

    An entry's digest is like no other, so a checkpoint that names the entry it follows was
    made by this campaign, under this reservation, from that very state.
    """
    state, description = folder / f"{steps}{_STATE}", folder / f"{steps}{_ABOUT}"
    try:
        about: Any = json.loads(description.read_text(encoding="utf-8"))
        wanted = {
            "format": _FORMAT,
            "release": attempt,
            "steps": steps,
            "follows": newest.digest,
            "state": file_digest(state),
        }
    except (OSError, ValueError):
        return False
    matches = isinstance(about, dict) and all(
        about.get(key) == value for key, value in wanted.items()
    )
    return matches and steps <= reserved


def _require_newest(entries: Iterable[Entry], attempt: str, expected: Entry) -> None:
    if _newest(entries, attempt).digest != expected.digest:
        raise CampaignBusy(
            f"another process has gone on with {attempt}; this one released nothing more, wait "
            "for that one to end and run the same command again"
        )


def _record(
    ledger: CampaignLedger, attempt: str, folder: Path, steps: int, *, after: Entry
) -> Entry:
    files = [folder / f"{steps}{ending}" for ending in (_STATE, _ABOUT)]
    ledger.carry(files)
    body = {"steps": steps, "artifacts": digests(ledger.folder, files)}

    def following(so_far: EntriesSoFar) -> dict[str, Any]:
        # In the transaction: whoever was given up for lost adds nothing to another's path.
        steps = so_far.newest_steps(ledger.campaign, attempt)
        reserved = so_far.of(ledger.campaign, EntryKind.RESERVE)
        _require_newest([steps] if steps else reserved, attempt, after)
        return body

    return ledger.store.append(
        campaign=ledger.campaign,
        kind=EntryKind.CHECKPOINT,
        release=checkpoint_name(attempt, steps),
        body=following,
    )


def _require_there(ledger: CampaignLedger, attempt: str, newest: Entry) -> None:
    stated: dict[str, str] = newest.body["artifacts"] if newest.kind is EntryKind.CHECKPOINT else {}
    if changed := first_changed(ledger.folder, [ledger.folder / name for name in stated], stated):
        path, reason = changed
        name = name_below(ledger.folder, path)
        forfeit(ledger.store, ledger.campaign, newest.release, name, reason)
        raise LedgerError(
            f"{path} is {reason} since {checkpoint_steps(newest)} steps of {attempt} were released "
            "with it; they stay spent, nothing more was released, " + _advice(attempt, "restore it")
        )


def _advice(attempt: str, restore: str) -> str:
    return (
        f"{restore}, or pay for the whole phase again with `dpal run FILE --redraw {attempt}` "
        f"({RARELY})"
    )


def _sweep(folder: Path, steps: int) -> None:
    """Removes checkpoints before the newest."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.stem.isdecimal() and int(path.stem) < steps:
            path.unlink(missing_ok=True)
