"""The life of a release: hold, reserve, draw, persist, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.cohorts import history_of
from dpal.accounting.events import Charge, Release, from_record, to_record
from dpal.canonical import file_digest
from dpal.errors import BudgetExceeded, LedgerError
from dpal.ledger.claim import require_claim
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.store import LedgerStore
from dpal.privacy import Adjacency, PrivacyTarget, Unit


@dataclass(frozen=True)
class CampaignLedger:
    """One campaign's view of a ledger.

    Attributes:
      store: where the entries are.
      campaign: the campaign's name.
      folder: its folder, claimed by whoever writes.
    """

    store: LedgerStore
    campaign: str
    folder: Path

    def entries(self) -> list[Entry]:
        """All entries of the campaign."""
        return self.store.entries(self.campaign)

    def hold(
        self,
        target: PrivacyTarget,
        plan_digest: str,
        pool_commitment: str,
        releases: Iterable[Release],
    ) -> None:
        """Sets a whole plan aside before the first record is touched.

        Doing it again for the same plan and pool changes nothing.

        Args:
          target: the promise.
          plan_digest: commits to the plan.
          pool_commitment: salted digest of the pool's file; says nothing about its records.
          releases: all releases of the plan.

        Raises:
          LedgerError: the campaign holds another plan, or was started on another pool.
        """
        require_claim(self.folder)
        held = self._held()
        if held is None:
            body = {
                "plan": plan_digest,
                "pool": pool_commitment,
                "epsilon": target.epsilon,
                "delta": target.delta,
                "adjacency": target.adjacency.value,
                "unit": target.unit.value,
                "releases": [_release_record(release) for release in releases],
            }
            self.store.append(campaign=self.campaign, kind=Kind.HOLD, release="", body=body)
        elif held["plan"] != plan_digest:
            raise LedgerError(
                f"campaign {self.campaign} was started with another plan (digest "
                f"{held['plan'][:12]}, now {plan_digest[:12]}); restore its configuration to "
                "continue it, or choose another name for a new campaign"
            )
        elif held["pool"] != pool_commitment:
            raise LedgerError(
                f"the pool's file is not the one that campaign {self.campaign} was started on; "
                "restore that file to continue it, or choose another name for a new campaign"
            )

    def settle(self, release: Release, artifacts: Sequence[Path], draw: Callable[[], None]) -> None:
        """Makes sure that a release was drawn exactly once and is committed.

        Reserves, draws, commits. After a crash: what was persisted is committed as it is
        and never drawn again; what was not is drawn under the same reservation.

        Args:
          release: as in the held plan.
          artifacts: the files that `draw` persists, in the order in which it writes them;
            the last one in place means that all are.
          draw: draws the release and persists the artifacts, each in one step.

        Raises:
          BudgetExceeded: a cohort would pass the promise. Nothing was drawn.
          LedgerError: the release is not part of the held plan, or a committed artifact
            is missing or altered; it stays spent.
        """
        require_claim(self.folder)
        committed = self._find(Kind.COMMIT, release.name)
        if committed is not None:
            self._require_unaltered(release, artifacts, committed)
            return
        if self._find(Kind.RESERVE, release.name) is None:
            self._reserve(release)
        if not artifacts[-1].exists():
            for partial in artifacts:
                partial.unlink(missing_ok=True)
            draw()
        body = {"artifacts": {path.name: file_digest(path) for path in artifacts}}
        self.store.append(campaign=self.campaign, kind=Kind.COMMIT, release=release.name, body=body)

    @property
    def identity(self) -> str | None:
        """Digest of the campaign's hold: no other run has it, whatever its name. None before."""
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.digest

    def committed(self, release: str) -> dict[str, str] | None:
        """Digests of a committed release's artifacts by file name, or None."""
        entry = self._find(Kind.COMMIT, release)
        return None if entry is None else dict(entry.body["artifacts"])

    def spent(self) -> list[Charge]:
        """Charges of everything reserved: what may have left the process counts as spent."""
        return [
            charge
            for entry in self.entries()
            if entry.kind is Kind.RESERVE
            for charge in charges_of(entry)
        ]

    def target(self) -> PrivacyTarget:
        """The promise that the campaign was started with.

        Raises:
          LedgerError: the campaign never held a plan.
        """
        held = self._held()
        if held is None:
            raise LedgerError(f"campaign {self.campaign} has no entries in {self.store.path}")
        return PrivacyTarget(
            epsilon=held["epsilon"],
            delta=held["delta"],
            adjacency=Adjacency(held["adjacency"]),
            unit=Unit(held["unit"]),
        )

    def _reserve(self, release: Release) -> None:
        target, record = self.target(), _release_record(release)
        held = self._held() or {}
        if record not in held["releases"]:
            raise LedgerError(
                f"{release.name} is not part of the plan that campaign {self.campaign} holds; "
                "nothing was released"
            )
        charges = [*self.spent(), *release.charges]
        for cohort in sorted({name for charge in charges for name in charge.cohorts}):
            epsilon = history_of(cohort, charges).epsilon_rdp(
                delta=target.delta, adjacency=target.adjacency
            )
            if not epsilon <= target.epsilon:
                raise BudgetExceeded(cohort, epsilon, target.epsilon)
        self.store.append(
            campaign=self.campaign, kind=Kind.RESERVE, release=release.name, body=record
        )

    def _require_unaltered(
        self, release: Release, artifacts: Sequence[Path], committed: Entry
    ) -> None:
        for path in artifacts:
            known = committed.body["artifacts"].get(path.name)
            if path.exists() and file_digest(path) == known:
                continue
            reason = "altered" if path.exists() else "missing"
            if self._find(Kind.FORFEIT, release.name) is None:
                self.store.append(
                    campaign=self.campaign,
                    kind=Kind.FORFEIT,
                    release=release.name,
                    body={"artifact": path.name, "reason": reason},
                )
            raise LedgerError(
                f"{path} is {reason} since {release.name} was committed; the release stays "
                "spent; restore the file (dvc pull) to continue, or choose another campaign name"
            )

    def _held(self) -> dict[str, Any] | None:
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.body

    def _find(self, kind: Kind, release: str) -> Entry | None:
        for entry in self.entries():
            if entry.kind is kind and entry.release == release:
                return entry
        return None


def charges_of(entry: Entry) -> list[Charge]:
    """Reads the charges of a reservation."""
    return [
        Charge(cohorts=tuple(charge["cohorts"]), event=from_record(charge["event"]))
        for charge in entry.body["charges"]
    ]


def _release_record(release: Release) -> dict[str, Any]:
    return {
        "release": release.name,
        "kind": release.kind,
        "charges": [
            {"cohorts": list(charge.cohorts), "event": to_record(charge.event)}
            for charge in release.charges
        ],
    }
