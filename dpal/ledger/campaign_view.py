"""What a ledger says of one campaign. Reads, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.events import Release
from dpal.canonical import digest
from dpal.errors import LedgerError
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.model_choice_and_stopping import is_stopped
from dpal.ledger.release_json import release_from, release_of, release_record
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit


@dataclass(frozen=True)
class CampaignView:
    """One campaign's entries, and what they amount to.

    Attributes:
      store: where the entries are.
      campaign: the campaign's name.
      folder: its folder.
      acting_for: who draws, where a worker acts for the process that leads the campaign; None
        is this process itself.
    """

    store: LedgerStore
    campaign: str
    folder: Path
    acting_for: str | None = None

    def entries(self) -> list[Entry]:
        """All entries of the campaign."""
        return self.store.entries(self.campaign)

    @property
    def identity(self) -> str | None:
        """Digest of the campaign's hold: no other run has it, whatever its name. None before."""
        entry = self._find(EntryKind.HOLD, "")
        return None if entry is None else entry.digest

    @property
    def held_plan(self) -> str | None:
        """Digest of the plan that is held; None where nothing is."""
        held = self._held()
        return None if held is None else str(held["plan"])

    def holds(self, plan_digest: str, pool_commitment: str, releases: Iterable[Release]) -> bool:
        """Whether exactly this plan is held, of exactly this pool; see `CampaignLedger.hold`."""
        held = self._held()
        return (
            held is not None
            and held["plan"] == plan_digest
            and held["pool"] == pool_commitment
            and held["releases"] == [release_record(release) for release in releases]
        )

    def committed(self, release: str) -> dict[str, str] | None:
        """Digests by path of a committed release's artifacts, whichever attempt, or None."""
        for entry in self.entries():
            if entry.kind is EntryKind.COMMIT and planned_name(entry.release) == release:
                return dict(entry.body["artifacts"])
        return None

    @property
    def has_stopped(self) -> bool:
        """Whether the campaign ended early by its own rule, so that nothing is missing."""
        end = self._find(EntryKind.END, "")
        return end is not None and is_stopped(end.body)

    @property
    def was_ended(self) -> bool:
        """Whether somebody ended the campaign before its plan was done. Its own rule did not."""
        held, end = self._held(), self._find(EntryKind.END, "")
        if held is None or end is None:
            return False
        return not is_stopped(end.body) and not self._has_all(held)

    @property
    def models(self) -> int:
        """How many models are committed."""
        names = (release.name for release in self.planned() if release.trains)
        return sum(self.committed(name) is not None for name in names)

    def persisted_steps(self, release: str) -> int:
        """Steps of an unfinished training that are persisted, in its newest attempt."""
        steps = 0
        for entry in self.entries():
            if planned_name(entry.release) == release:
                steps = int(entry.body["steps"]) if entry.kind is EntryKind.CHECKPOINT else 0
        return steps

    def spent(self) -> list[Release]:
        """Everything reserved, in order: what may have left the process counts as spent."""
        return [release_of(entry) for entry in self.entries() if entry.kind is EntryKind.RESERVE]

    def planned(self) -> list[Release]:
        """All releases of the held plan, in order; none where nothing is held."""
        held = self._held()
        return [] if held is None else [release_from(record) for record in held["releases"]]

    def data(self) -> DataHold | None:
        """What the campaign holds of a data set; None where none is registered."""
        return DataHold.of_entry(self._find(EntryKind.HOLD, ""))

    def target(self) -> PrivacyTarget:
        """The promise that the campaign was started with.

        Raises:
          LedgerError: the campaign never held a plan.
        """
        held = self._held()
        if held is None:
            raise LedgerError(f"campaign {self.campaign} has no entries in {self.store.name}")
        return PrivacyTarget(
            epsilon=held["epsilon"],
            delta=held["delta"],
            adjacency=Adjacency(held["adjacency"]),
            unit=Unit(held["unit"]),
        )

    def accountant(self) -> Accountant:
        """The accountant by which the campaign's limit is enforced.

        Raises:
          LedgerError: the campaign never held a plan.
        """
        self.target()
        return Accountant((self._held() or {})["accountant"])

    @property
    def drawer(self) -> str:
        """Who draws under a reservation: this person, on this machine, in this very folder.

        A copy of the folder is another one, and moving it keeps it the same. A worker draws
        for whoever ordered it to.
        """
        return self.acting_for or digest([self.store.keeper, self.folder.stat().st_ino])

    def is_ours(self, reserved: Entry) -> bool:
        """Whether a reservation was made here, or a person here vouched for it since."""
        return reserved.body.get("drawer") == self.drawer or any(
            entry.sequence > reserved.sequence and entry.body["key"] == self.store.keeper
            for entry in self.store.entries("", EntryKind.ADOPT)
        )

    def begun_elsewhere(self) -> bool:
        """Whether a release waits to be drawn or committed by whoever began it elsewhere."""
        entries = self.entries()
        committed = {entry.release for entry in entries if entry.kind is EntryKind.COMMIT}
        return any(
            entry.kind is EntryKind.RESERVE
            and entry.release not in committed
            and not self.is_ours(entry)
            for entry in entries
        )

    def _has_all(self, held: dict[str, Any]) -> bool:
        """Whether every planned release is committed."""
        return all(self.committed(record["release"]) is not None for record in held["releases"])

    def _held(self) -> dict[str, Any] | None:
        entry = self._find(EntryKind.HOLD, "")
        return None if entry is None else entry.body

    def _find(self, kind: EntryKind, release: str) -> Entry | None:
        for entry in self.store.entries(self.campaign, kind):
            if entry.release == release:
                return entry
        return None
