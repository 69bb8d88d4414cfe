"""The life of a release: hold, reserve, draw, persist, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.cohorts import Accountant, campaign_epsilon
from dpal.accounting.events import Charge, Release, from_record, to_record
from dpal.canonical import file_digest
from dpal.errors import BudgetExceeded, LedgerError
from dpal.ledger.chain import verify_chain
from dpal.ledger.claim import require_claim
from dpal.ledger.entries import Entry, Kind
from dpal.ledger.store import LedgerStore
from dpal.persist import roll_forward
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
        *,
        accountant: Accountant = Accountant.PLD,
        changes: str = "",
    ) -> None:
        """Sets a whole plan aside before the first record is touched.

        Doing it again for the same plan and pool changes nothing.

        Args:
          target: the promise.
          plan_digest: commits to the plan.
          pool_commitment: salted digest of the pool's file; says nothing about its records.
          releases: all releases of the plan.
          accountant: by which the limit is enforced from here on.
          changes: what to name if the plan is another one, such as "privacy.epsilon was 8,
            is 3".

        Raises:
          LedgerError: the campaign holds another plan, or was started on another pool.
        """
        require_claim(self.folder)
        verify_chain(self.store.entries())
        held = self._held()
        if held is None:
            stray = next(self.folder.rglob("phase-*"), None)  # confidential ones lie deeper
            if stray is not None:
                raise LedgerError(
                    f"{stray} exists and the ledger does not know campaign {self.campaign}; "
                    "nothing was released, move the folder away or choose another name"
                )
            body = {
                "plan": plan_digest,
                "pool": pool_commitment,
                "epsilon": target.epsilon,
                "delta": target.delta,
                "adjacency": target.adjacency.value,
                "unit": target.unit.value,
                "accountant": accountant.value,
                "releases": [_release_record(release) for release in releases],
            }
            self.store.append(campaign=self.campaign, kind=Kind.HOLD, release="", body=body)
        elif held["plan"] != plan_digest:
            raise LedgerError(
                f"campaign {self.campaign} was started with another plan ("
                + (changes or f"digest {held['plan'][:12]}, now {plan_digest[:12]}")
                + "); to continue it use the same file "
                f"and the same --set (see config in {self.folder / 'campaign.json'}), or choose "
                "another name for a new campaign"
            )
        elif held["pool"] != pool_commitment:
            raise LedgerError(
                f"the pool's file is not the one that campaign {self.campaign} was started on; "
                "restore that file to continue it, or choose another name for a new campaign"
            )

    def settle(
        self,
        release: Release,
        draw: Callable[[], None],
        *,
        inputs: Sequence[Path],
        artifacts: Sequence[Path],
    ) -> None:
        """Makes sure that a release was drawn exactly once and is committed.

        Reserves, draws, commits. After a crash: what was persisted is committed as it is
        and never drawn again; what was not is drawn under the same reservation.

        Args:
          release: as in the held plan.
          draw: draws the release and persists all artifacts in one step.
          inputs: private files that decide whose records are released about; they must
            stay as they were when the release was reserved.
          artifacts: the files that `draw` persists, all in one folder.

        Raises:
          BudgetExceeded: a record could pass the promise. Nothing was drawn.
          LedgerError: the release is not part of the held plan, a file exists that was
            never reserved, or an input or a committed artifact is missing or altered; what
            was spent stays spent.
          LedgerTampered: the ledger is not what once was written.
        """
        require_claim(self.folder)
        verify_chain(self.store.entries())
        reserved = self._find(Kind.RESERVE, release.name)
        committed = self._find(Kind.COMMIT, release.name)
        roll_forward(artifacts[0].parent)
        present = [path for path in artifacts if path.exists()]
        if reserved is None:
            if present:
                raise LedgerError(
                    f"{present[0]} exists and {release.name} was never reserved; nothing was "
                    "released, move the file away or choose another campaign name"
                )
            reserved = self._reserve(release, inputs)
        self._require_unaltered(release, inputs, reserved.body["inputs"], "reserved")
        if committed is not None:
            known = committed.body["artifacts"]
            self._require_unaltered(release, artifacts, known, "committed")
            return
        if not present:
            draw()
        self.store.append(
            campaign=self.campaign,
            kind=Kind.COMMIT,
            release=release.name,
            body={"artifacts": self._digests(artifacts)},
        )

    @property
    def identity(self) -> str | None:
        """Digest of the campaign's hold: no other run has it, whatever its name. None before."""
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.digest

    def committed(self, release: str) -> dict[str, str] | None:
        """Digests of a committed release's artifacts by path in the folder, or None."""
        entry = self._find(Kind.COMMIT, release)
        return None if entry is None else dict(entry.body["artifacts"])

    def spent(self) -> list[Release]:
        """Everything reserved, in order: what may have left the process counts as spent."""
        return [release_of(entry) for entry in self.entries() if entry.kind is Kind.RESERVE]

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

    def accountant(self) -> Accountant:
        """The accountant by which the campaign's limit is enforced.

        Raises:
          LedgerError: the campaign never held a plan.
        """
        self.target()
        return Accountant((self._held() or {})["accountant"])

    def _reserve(self, release: Release, inputs: Sequence[Path]) -> Entry:
        target, record = self.target(), _release_record(release)
        held = self._held() or {}
        if record not in held["releases"]:
            raise LedgerError(
                f"{release.name} is not part of the plan that campaign {self.campaign} holds; "
                "nothing was released"
            )
        epsilon = campaign_epsilon([*self.spent(), release], target, accountant=self.accountant())
        if not epsilon <= target.epsilon:
            raise BudgetExceeded(release.name, epsilon, target.epsilon)
        return self.store.append(
            campaign=self.campaign,
            kind=Kind.RESERVE,
            release=release.name,
            body={**record, "inputs": self._digests(inputs)},
        )

    def _digests(self, files: Sequence[Path]) -> dict[str, str]:
        """Digests by path below the campaign's folder."""
        for path in files:
            if not path.exists():
                raise LedgerError(
                    f"{path} is missing; nothing was released, what was reserved stays spent, "
                    f"restore the file (`dvc checkout` or `dvc pull` in {self.folder.parent})"
                )
        return {str(path.relative_to(self.folder)): file_digest(path) for path in files}

    def _require_unaltered(
        self, release: Release, files: Sequence[Path], known: Mapping[str, str], since: str
    ) -> None:
        for path in files:
            name = str(path.relative_to(self.folder))
            if path.exists() and file_digest(path) == known.get(name):
                continue
            reason = "altered" if path.exists() else "missing"
            if self._find(Kind.FORFEIT, release.name) is None:
                self.store.append(
                    campaign=self.campaign,
                    kind=Kind.FORFEIT,
                    release=release.name,
                    body={"file": name, "reason": reason},
                )
            raise LedgerError(
                f"{path} is {reason} since {release.name} was {since}; the release stays spent, "
                f"restore the file (`dvc checkout` or `dvc pull` in {self.folder.parent}) to "
                "continue, or choose another campaign name"
            )

    def _held(self) -> dict[str, Any] | None:
        entry = self._find(Kind.HOLD, "")
        return None if entry is None else entry.body

    def _find(self, kind: Kind, release: str) -> Entry | None:
        for entry in self.entries():
            if entry.kind is kind and entry.release == release:
                return entry
        return None


def release_of(entry: Entry) -> Release:
    """Reads the release of a reservation."""
    return Release(
        name=entry.body["release"],
        kind=entry.body["kind"],
        phase=entry.body["phase"],
        charges=tuple(
            Charge(cohorts=tuple(charge["cohorts"]), event=from_record(charge["event"]))
            for charge in entry.body["charges"]
        ),
    )


def _release_record(release: Release) -> dict[str, Any]:
    return {
        "release": release.name,
        "kind": release.kind,
        "phase": release.phase,
        "charges": [
            {"cohorts": list(charge.cohorts), "event": to_record(charge.event)}
            for charge in release.charges
        ],
    }
