"""The life of a release: hold, reserve, draw, persist, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.events import Release
from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.errors import BudgetExceeded, LedgerError
from dpal.files.atomic_writes import roll_forward
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.campaign_view import CampaignView
from dpal.ledger.data_set_accounts import lost_entries
from dpal.ledger.data_set_limits import DataHold, admit, require_counted
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import require_claim
from dpal.ledger.hold_entry import hold_body, spent_before, started_from
from dpal.ledger.recorded_files import digests, first_changed, forfeit, name_below
from dpal.ledger.release_json import release_of, release_record
from dpal.ledger.verified_entries import EntriesSoFar
from dpal.privacy import Accountant, PrivacyTarget


def _stay(_paths: Sequence[Path]) -> None:
    """Leaves files where they are."""


@dataclass(frozen=True)
class CampaignLedger(CampaignView):
    """One campaign's part of a ledger, for whoever has claimed its folder.

    Attributes:
      carry: is handed the files that an entry speaks of, before the entry is written; what it
        puts into a store survives the machine.
    """

    carry: Callable[[Sequence[Path]], None] = _stay

    def hold(
        self,
        target: PrivacyTarget,
        plan_digest: str,
        pool_commitment: str,
        releases: Iterable[Release],
        *,
        accountant: Accountant = Accountant.PLD,
        data: DataHold | None = None,
        before: PriorSpend | None = None,
        compared: int | None = None,
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
          data: what it takes of a registered data set.
          before: what was spent on the same records already, and counts towards the promise.
          compared: with how many parts of data sets the records were compared that no data set
            counts, of the pool or of a protected validation set; None where there are none.
          changes: what to name if the plan is another one, such as "privacy.epsilon was 8,
            is 3".

        Raises:
          LedgerError: the campaign holds another plan, or was started on another pool.
          DataBudgetExceeded: the data set has not that much left. Nothing was held.
        """
        require_claim(self.folder)
        self.store.sound(self.campaign)
        held = self._held()
        if held is None:
            stray = next(self.folder.rglob("phase-*"), None)  # confidential ones lie deeper
            if stray is not None:
                raise LedgerError.before_release(
                    f"{stray} exists and the ledger does not know campaign {self.campaign}; move "
                    "the folder away or choose another name"
                )
            planned = list(releases)
            if data is not None:
                data.require_covers(planned, planned, target)
            about = (target, plan_digest, pool_commitment, planned)
            body = hold_body(*about, accountant=accountant, data=data, before=before)

            def admitted(so_far: EntriesSoFar) -> dict[str, Any]:
                if data is not None:
                    admit(
                        so_far.of_data_sets(data.dataset), data.dataset, self.campaign, data.shares
                    )
                if compared is not None and so_far.parts_added() != compared:
                    raise LedgerError(
                        f"records were added to a data set while {self.campaign} was planned, and "
                        "may be the same; nothing was held or released, run the same command again"
                    )
                return body

            # Checked and written in one transaction: nobody takes the rest in between.
            self.store.append(
                campaign=self.campaign, kind=EntryKind.HOLD, release="", body=admitted
            )
        elif self.was_ended:
            raise self._ended()
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
        elif not self._has_all(held) and not self.has_stopped:
            self._require_nothing_lost(self.store.entries("", EntryKind.ADOPT))

    def release_once(
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
        with self.store.fenced(self.campaign):
            self._release_once(release, draw, inputs, artifacts)

    def _release_once(
        self,
        release: Release,
        draw: Callable[[], None],
        inputs: Sequence[Path],
        artifacts: Sequence[Path],
    ) -> None:
        self.store.sound(self.campaign)
        reserved = self._find(EntryKind.RESERVE, release.name)
        committed = self._find(EntryKind.COMMIT, release.name)
        roll_forward(artifacts[0].parent)
        present = [path for path in artifacts if path.exists()]
        if reserved is None:
            if present:
                raise LedgerError.before_release(
                    f"{present[0]} exists and {release.name} was never reserved; move the file "
                    "away or choose another campaign name"
                )
            reserved = self._reserve(release, inputs)
        self._require_unaltered(release, inputs, reserved.body["inputs"], "reserved")
        if committed is not None:
            stated = committed.body["artifacts"]
            self._require_unaltered(release, artifacts, stated, "committed")
            return
        self._require_ours(reserved)
        self._require_nothing_lost(self.store.entries("", EntryKind.ADOPT))
        if not present:
            draw()
        self.store.require_fence(self.campaign)
        self.carry(artifacts)
        self.store.append(
            campaign=self.campaign,
            kind=EntryKind.COMMIT,
            release=release.name,
            body={"artifacts": digests(self.folder, artifacts)},
        )

    def reserve(self, release: Release, *, inputs: Sequence[Path]) -> None:
        """Charges a release, or another attempt at one; again, it changes nothing.

        Raises:
          BudgetExceeded: a record could pass the promise. Nothing may be drawn.
          LedgerError: the held plan has no such release.
          LedgerTampered: the ledger is not what once was written.
        """
        require_claim(self.folder)
        self.store.sound(self.campaign)
        if self._find(EntryKind.RESERVE, release.name) is None:
            self._reserve(release, inputs)
        elif self.committed(release.name) is None:
            self._require_nothing_lost(self.store.entries("", EntryKind.ADOPT))

    def end(self, said: Mapping[str, Any] | None = None) -> None:
        """Ends the campaign: what it held of a data set and did not use flows back.

        Doing it again changes nothing.

        Args:
          said: of the model that it releases, and why it ended: `EndStatement.record`.

        Raises:
          LedgerError: the campaign never held a plan.
        """
        require_claim(self.folder)
        target, data, planned = self.target(), self.data(), self.planned()

        def used(so_far: EntriesSoFar) -> dict[str, Any]:
            spent = self._spent_in(so_far)
            return {
                "releases": [release.name for release in spent],
                "data": data.used_by(planned, spent, target).record() if data else None,
                **(said or {}),
            }

        if self._find(EntryKind.END, "") is None:
            # Added up where nobody can reserve: what flows back is never drawn as well.
            self.store.append(campaign=self.campaign, kind=EntryKind.END, release="", body=used)

    def _require_ours(self, reserved: Entry) -> None:
        """Requires that an open reservation was made here; a copy would draw it again."""
        if not self.is_ours(reserved):
            raise LedgerError.before_release(
                f"{reserved.release} was begun in another folder, or by somebody else, and may "
                f"have been drawn there; continue campaign {self.campaign} where it was begun "
                "(moving its folder keeps it the same, copying does not), or if that is gone for "
                f"good: dpal ledger adopt {self.folder} --reason TEXT"
            )

    def _require_nothing_lost(self, entries: Iterable[Entry]) -> None:
        """Requires that no entries were lost since the plan was held: they may have spent it."""
        held, lost = self._find(EntryKind.HOLD, ""), lost_entries(entries)
        if held is not None and lost is not None and held.sequence < lost:
            raise LedgerError.before_release(
                f"campaign {self.campaign} had begun when entries of its ledger were lost (entry "
                f"{lost} says so), and what they released is not known; put the newest copy of the "
                "ledger back, or start another campaign on other records"
            )

    def _reserve(self, release: Release, inputs: Sequence[Path]) -> Entry:
        target, record = self.target(), release_record(release)
        planned = {**record, "release": planned_name(release.name)}
        held = self._held() or {}
        if planned not in held["releases"]:
            raise LedgerError.before_release(
                f"{release.name} is not part of the plan that campaign {self.campaign} holds"
            )
        accountant, data, plan = self.accountant(), self.data(), self.planned()
        body = {**record, "inputs": digests(self.folder, inputs), "drawer": self.drawer}
        self.carry(inputs)

        def paid(so_far: EntriesSoFar) -> dict[str, Any]:
            if so_far.of(self.campaign, EntryKind.END):
                raise self._ended()
            self._require_nothing_lost(so_far.of("", EntryKind.ADOPT))
            spent = [*self._spent_in(so_far), release]
            before = spent_before(held, so_far.spending([started_from(held)]))
            epsilon = total_epsilon(before, spent, target, accountant=accountant)
            if not epsilon <= target.epsilon:
                raise BudgetExceeded(release.name, epsilon, target.epsilon)
            if data is not None:
                data.require_covers(plan, spent, target)
            elif release.name != planned["release"]:
                require_counted(so_far.that_count(self.campaign), self.campaign, release)
            return body

        # Checked and written in one transaction, as a hold is: a copy of the folder on a
        # shared ledger may be reserving, too.
        return self.store.append(
            campaign=self.campaign, kind=EntryKind.RESERVE, release=release.name, body=paid
        )

    def _spent_in(self, so_far: EntriesSoFar) -> list[Release]:
        return [release_of(entry) for entry in so_far.of(self.campaign, EntryKind.RESERVE)]

    def _ended(self) -> LedgerError:
        return LedgerError.before_release(
            f"campaign {self.campaign} was ended and gave back what it had not used; start a new "
            "campaign"
        )

    def _require_unaltered(
        self, release: Release, files: Sequence[Path], stated: Mapping[str, str], since: str
    ) -> None:
        if changed := first_changed(self.folder, files, stated):
            path, reason = changed
            name = name_below(self.folder, path)
            reserved = self._find(EntryKind.RESERVE, release.name)
            if reserved is not None and not self.is_ours(reserved):
                # Another folder of this name: what is missing here may be whole where it was drawn.
                raise LedgerError.before_release(
                    f"{path} is {reason}, and {release.name} of campaign {self.campaign} was drawn "
                    "in another folder; go on in that folder, or choose another campaign name"
                )
            forfeit(self.store, self.campaign, release.name, name, reason)
            raise LedgerError(
                f"{path} is {reason} since {release.name} was {since}; the release stays spent, "
                f"restore the file (`dvc checkout` or `dvc pull` in {self.folder.parent}) to "
                "continue, or choose another campaign name"
            )
