"""What a ledger says of one campaign. Reads, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import Release
from dpal.errors import LedgerError
from dpal.ledger.attempts import planned_name
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.limits import DataHold
from dpal.ledger.releases import release_of
from dpal.ledger.store import LedgerStore
from dpal.privacy import Adjacency, PrivacyTarget, Unit


@dataclass(frozen=True)
class CampaignView:
    """One campaign's entries, and what they amount to.

    Attributes:
      store: where the entries are.
      campaign: the campaign's name.
      folder: its folder.
    """

    store: LedgerStore
    campaign: str
    folder: Path

    def entries(self) -> list[Entry]:
        """All entries of the campaign."""
        return self.store.entries(self.campaign)

    @property
    def identity(self) -> str | None:
        """Digest of the campaign's hold: no other run has it, whatever its name. None before."""
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.digest

    def committed(self, release: str) -> dict[str, str] | None:
        """Digests by path of a committed release's artifacts, whichever attempt, or None."""
        for entry in self.entries():
            if entry.kind is Kind.COMMIT and planned_name(entry.release) == release:
                return dict(entry.body["artifacts"])
        return None

    def spent(self) -> list[Release]:
        """Everything reserved, in order: what may have left the process counts as spent."""
        return [release_of(entry) for entry in self.entries() if entry.kind is Kind.RESERVE]

    def data(self) -> DataHold | None:
        """What the campaign holds of a data set; None where none is registered."""
        return DataHold.of_entry(self._find(Kind.HOLD, ""))

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

    def _held(self) -> dict[str, Any] | None:
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.body

    def _find(self, kind: Kind, release: str) -> Entry | None:
        for entry in self.entries():
            if entry.kind is kind and entry.release == release:
                return entry
        return None
