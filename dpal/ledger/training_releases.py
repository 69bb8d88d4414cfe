"""Training releases, persisted on their way: what is on disk counts as released.

    reserve all steps -> make steps -> persist -> record -> make steps -> ... -> commit

A checkpoint is persisted whole and then recorded. Resuming goes on from the newest one, so
that the steps along the persisted path are made, and paid, once; what came after it never
left the process and is made anew, with fresh noise. Throwing a checkpoint away is another
attempt at the release, and charged as one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpal.accounting.events import TRAINING, TRIAL, Release
from dpal.errors import BudgetExceeded, LedgerError
from dpal.files.atomic_writes import move_aside, roll_forward, write_together
from dpal.ledger.attempt_checkpoints import RARELY, ReservedSteps, resume_attempt
from dpal.ledger.attempt_names import attempt_name, attempt_number, checkpoint_name, planned_name
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import require_claim
from dpal.ledger.recorded_files import digests, first_changed
from dpal.ledger.release_protocol import CampaignLedger


@dataclass(frozen=True, kw_only=True)
class TrainingRelease:
    """One training phase's release, and where its files are.

    Attributes:
      ledger: of the campaign, whose folder is claimed.
      release: as in the held plan.
      inputs: private files that decide whose records are trained on.
      artifacts: the files that a finished phase leaves, all in one folder.
      checkpoints: folder of its own for what is persisted on the way; gone when committed.
    """

    ledger: CampaignLedger
    release: Release
    inputs: Sequence[Path]
    artifacts: Sequence[Path]
    checkpoints: Path

    def release_once(self, train: Callable[[ReservedSteps], Mapping[str, bytes]]) -> None:
        """Makes sure that every reserved step was made exactly once, and commits the result.

        Args:
          train: goes on from the persisted state that it is given, asks before every step,
            persists on its way as it likes, and returns the artifacts by file name.

        Raises:
          BudgetExceeded: a record could pass the promise. Nothing was drawn.
          LedgerError: as for `CampaignLedger.release_once`; or a recorded checkpoint is missing or
            altered, or more steps, fewer or others were to be made than were reserved.
          LedgerTampered: the ledger is not what once was written.
        """
        attempt = max(1, self._attempts())
        if attempt > 1:
            self._begin(attempt)
        name = attempt_name(self.release.name, attempt)

        def draw() -> None:
            steps = resume_attempt(self.ledger, name, self._folder(attempt), reserved=self._steps())
            contents = train(steps)
            steps.require_all_made()
            steps.require_ours()
            write_together(self.artifacts[0].parent, contents)

        self.ledger.release_once(
            replace(self.release, name=name), draw, inputs=self.inputs, artifacts=self.artifacts
        )
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def start_over(self, name: str) -> None:
        """Throws what an attempt persisted away, and charges another attempt at the release.

        The charge comes first, then the files are moved aside. Asking again for the same
        attempt to be thrown away changes nothing.

        Args:
          name: the attempt, such as "phase-2/training", or "phase-2/training#2".

        Raises:
          BudgetExceeded: the promise has no room for another attempt. Nothing was lost.
          LedgerError: the attempt was never begun, is committed, or persisted nothing.
        """
        require_claim(self.ledger.folder)
        attempts, number = self._attempts(), attempt_number(name)
        if 0 < number < attempts:
            return
        if not attempts or number != attempts:
            raise LedgerError(
                f"{name} was never begun, so there is nothing to throw away; nothing was "
                "charged, run the same command without --redraw"
            )
        if self.ledger.committed(self.release.name) is not None:
            raise LedgerError(
                f"{name} is committed, and a finished release is never drawn again; nothing was "
                "charged, run the same command without --redraw or choose another campaign name"
            )
        self._require_something_persisted(name)
        self._require_same_inputs(name)
        try:
            self._begin(number + 1)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                error.release,
                error.requested,
                error.limit,
                f"nothing was charged or thrown away; {RARELY}, restore the checkpoint or choose "
                "another campaign name",
            ) from error

    def _attempts(self) -> int:
        """How often the release was reserved."""
        return sum(
            entry.kind is EntryKind.RESERVE and planned_name(entry.release) == self.release.name
            for entry in self.ledger.entries()
        )

    def _folder(self, attempt: int) -> Path:
        return self.checkpoints / str(attempt)

    def _steps(self) -> int:
        """Steps of the phase: those of its own cohort, which takes part in all of them."""
        if self.release.kind not in (TRAINING, TRIAL):
            raise LedgerError.before_release(f"{self.release.name} is no training release")
        return sum(
            charge.event.training_steps or 0
            for charge in self.release.charges
            if str(self.release.phase) in charge.cohorts
        )

    def _persisted(self, attempt: int) -> list[Path]:
        folder = self._folder(attempt)
        roll_forward(folder)
        roll_forward(self.artifacts[0].parent)
        kept = sorted(folder.iterdir()) if folder.is_dir() else []
        return [*(path for path in self.artifacts if path.exists()), *kept]

    def _require_something_persisted(self, name: str) -> None:
        recorded = any(
            entry.kind is EntryKind.CHECKPOINT
            and entry.body["steps"] > 0
            and entry.release == checkpoint_name(name, entry.body["steps"])
            for entry in self.ledger.entries()
        )
        if not recorded and not self._persisted(attempt_number(name)):
            raise LedgerError(
                f"{name} persisted nothing, so drawing it costs no second charge; nothing was "
                "charged, run the same command without --redraw"
            )

    def _require_same_inputs(self, name: str) -> None:
        """A second attempt is about the records of the first, or both charges prove nothing."""
        reserved_inputs = self._entry(EntryKind.RESERVE, name).body["inputs"]
        if changed := first_changed(self.ledger.folder, self.inputs, reserved_inputs):
            raise LedgerError(
                f"{changed[0]} is not as it was when {name} was reserved; nothing was charged, "
                f"restore the file (`dvc checkout` or `dvc pull` in {self.ledger.folder.parent})"
            )

    def _begin(self, attempt: int) -> None:
        """Charges another attempt, then moves aside what the one before persisted; once."""
        name = attempt_name(self.release.name, attempt)
        self.ledger.reserve(replace(self.release, name=name), inputs=self.inputs)
        begun = checkpoint_name(name, 0)
        if any(
            entry.kind is EntryKind.CHECKPOINT and entry.release == begun
            for entry in self.ledger.entries()
        ):
            return
        before = self.release.name.replace("/", "-")
        aside = self.ledger.folder / "discarded" / f"{before}-{attempt - 1}"
        move_aside(self._persisted(attempt - 1), aside)
        thrown = sorted(aside.iterdir()) if aside.is_dir() else []
        self.ledger.store.append(
            campaign=self.ledger.campaign,
            kind=EntryKind.CHECKPOINT,
            release=begun,
            body={
                "steps": 0,
                "artifacts": {},
                "discarded": digests(self.ledger.folder, thrown),
            },
        )

    def _entry(self, kind: EntryKind, name: str) -> Entry:
        return next(
            entry for entry in self.ledger.entries() if entry.kind is kind and entry.release == name
        )
