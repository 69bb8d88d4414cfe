"""What `dpal ledger` shows, exports and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpal.accounting.events import to_record
from dpal.errors import LedgerError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.campaign_account import (
    CampaignAccount,
    campaign_account,
    campaigns_in,
    epsilons_so_far,
)
from dpal.ledger.chain import verify_chain
from dpal.ledger.data_set_accounts import data_sets, share_record
from dpal.ledger.data_set_history import dataset_of, history, parts_of
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.export_table import export_ledger
from dpal.ledger.ledger_store import LedgerStore
from dpal.reports.ledger_tables import (
    above_in,
    account_promise,
    blocks_table,
    cohorts_table,
    limit_in_words,
    parts_table,
    releases_table,
    time_table,
)
from dpal.reports.ledger_words import about, actor, describe_entry
from dpal.reports.plan_and_phase_tables import shares_table
from dpal.reports.report import Table
from dpal.runs.manage_data_sets import view_of
from dpal.runs.open_ledger import ledger_of_all, recorded_ledger, runtime_of
from dpal.runs.write_certificate import sign_files
from flows.cli.folder_arguments import By

_ON_DISK = (EntryKind.CHECKPOINT, EntryKind.COMMIT)  # entries that say what is in a file

Shown = list[str | Table]  # sentences and tables, in reading order


@dataclass(frozen=True)
class LedgerView:
    """A ledger whose chain is whole, looked at from one campaign or as a whole.

    Attributes:
      entries: all of the ledger's.
      campaign: the one looked at; None for all.
    """

    entries: Sequence[Entry]
    campaign: str | None

    @classmethod
    def at(cls, place: CampaignFolder | Path) -> LedgerView:
        """Reads the ledger of a campaign, or of a folder of campaigns.

        Raises:
          LedgerError: there is none, or nothing of the campaign or its start is in it.
          LedgerTampered: its chain is broken.
        """
        campaign = place if isinstance(place, CampaignFolder) else None
        with closing(_opened(place)) as store:
            entries = store.entries()
        verify_chain(entries)
        if not entries:
            raise LedgerError("the ledger has no entries yet: nothing was reserved or released")
        if campaign is None:
            return cls(entries, None)
        from dpal.runs.make_report import holder_of  # which draws, and takes long to import

        name = holder_of(campaign, entries)
        if name not in campaigns_in(entries):
            raise LedgerError(
                f"{campaign.root} has spent nothing in this ledger: what it began with was "
                "trained elsewhere, and its certificate says what that cost"
            )
        return cls(entries, name)

    def accounts(self) -> list[CampaignAccount]:
        """Accounts of the campaigns that are looked at."""
        names = [self.campaign] if self.campaign else campaigns_in(self.entries)
        return [campaign_account(self.entries, name) for name in names]

    def story(self) -> list[Entry]:
        """The entries that have to do with what is looked at."""
        return list(self.entries) if self.campaign is None else history(self.entries, self.campaign)

    def datasets(self) -> list[str]:
        """Names of the data sets that are looked at."""
        if self.campaign is None:
            return list(data_sets(self.entries))
        name = dataset_of(self.entries, self.campaign)
        return [] if name is None else [name]

    def head(self) -> dict[str, Any]:
        """The last entry that belongs to what is looked at, its campaign's own if one is."""
        own = [entry for entry in self.entries if self.campaign in (None, entry.campaign)]
        return {"sequence": own[-1].sequence, "digest": own[-1].digest}

    def as_object(self, by: By) -> dict[str, Any]:
        """As one object for machines."""
        if by is By.COHORT and self.campaign is not None:
            return {**_account_object(self.accounts()[0]), "head": self.head()}
        if by is By.COHORT:
            return {"campaigns": [_account_object(account) for account in self.accounts()],
                    "head": self.head()}  # fmt: skip
        if by is By.DATA:
            registered = data_sets(self.entries)
            return {
                "datasets": [
                    {**view_of(registered[name]),
                     "parts": [asdict(part) for part in parts_of(self.entries, name)]}
                    for name in self.datasets()
                ],
                "head": self.head(),
            }  # fmt: skip
        accounts = self._all_in_story()
        so_far = _so_far(accounts)
        return {
            "promises": [_promise_object(account) for account in accounts],
            "entries": [_entry_object(entry, so_far) for entry in self.story()],
            "head": self.head(),
        }

    def as_tables(self, by: By) -> Shown:
        """As sentences and tables for people."""
        return [*_LAYOUTS[by](self), f"head: entry {self.head()['sequence']}, "
                                     f"{self.head()['digest']}"]  # fmt: skip

    def _all_in_story(self) -> list[CampaignAccount]:
        return [campaign_account(self.entries, name) for name in campaigns_in(self.story())]

    def _by_cohort(self) -> Shown:
        shown: Shown = []
        for account in self.accounts():
            shown += [
                f"campaign {account.name}: {account_promise(account)}",
                cohorts_table(account),
                *([] if (above := above_in(account)) is None else [above]),
            ]
            if account.data:
                shares = [share_record(share) for share in account.data.shares]
                shown.append(shares_table({"blocks": shares}))
            shown.append(releases_table(account))
        return shown

    def _by_time(self) -> Shown:
        accounts = self._all_in_story()
        promises = [f"campaign {account.name}: {account_promise(account)}" for account in accounts]
        return [*promises, time_table(self.story(), _so_far(accounts))]

    def _by_data(self) -> Shown:
        shown: Shown = []
        registered = data_sets(self.entries)
        for name in self.datasets():
            order = registered[name].limit.filter.order
            shown += [
                f"data set {name}: {limit_in_words(registered[name].limit)}; campaigns are added "
                f"up at Renyi order {order:g}",
                blocks_table(registered[name]),
                parts_table(name, parts_of(self.entries, name)),
            ]
        if not shown:
            who = f"campaign {self.campaign} takes" if self.campaign else "campaigns here take"
            shown.append(f"{who} nothing of a registered data set; see: dpal data register --help")
        return shown


_LAYOUTS = {
    By.COHORT: LedgerView._by_cohort,
    By.TIME: LedgerView._by_time,
    By.DATA: LedgerView._by_data,
}


def as_object(folder: CampaignFolder) -> dict[str, Any]:
    """A campaign's ledger as one object: promise, cohorts, releases, head.

    Epsilons are added up from the reserved events, not copied from the plan.
    """
    return LedgerView.at(folder).as_object(By.COHORT)


def export(place: CampaignFolder | Path, target: Path) -> tuple[int, Path | None]:
    """Writes a campaign's entries, or all of a ledger, as a table.

    Returns:
      How many entries, and where their signature is; None where the ledger is not known to be
      the newest copy.
    """
    view = LedgerView.at(place)
    entries = [entry for entry in view.entries if view.campaign in (None, entry.campaign)]
    export_ledger(entries, target)
    return len(entries), sign_files(_newest(place), [target], runtime_of(place))


def _newest(place: CampaignFolder | Path) -> list[Entry]:
    """All entries, where this machine knows that these are all; else none."""
    try:
        with closing(_opened(place)) as store:
            return store.verified()
    except LedgerError:
        return []


def _opened(place: CampaignFolder | Path) -> LedgerStore:
    return ledger_of_all(place) if isinstance(place, Path) else recorded_ledger(place)


def _so_far(accounts: Sequence[CampaignAccount]) -> dict[int, float]:
    told: dict[int, float] = {}
    for account in accounts:
        told |= epsilons_so_far(account)
    return told


def _promise_object(account: CampaignAccount) -> dict[str, Any]:
    return {
        "name": account.name,
        "target_epsilon": account.target.epsilon,
        "delta": account.target.delta,
        "adjacency": account.target.adjacency.value,
        "unit": account.target.unit.value,
        "accountant": account.accountant.value,
    }


def _account_object(account: CampaignAccount) -> dict[str, Any]:
    return {
        **_promise_object(account),
        "campaign_epsilon": account.epsilon,
        "ended": account.ended is not None,
        "cohorts": [asdict(cohort) for cohort in account.cohorts],
        "blocks": [share_record(share) for share in account.data.shares] if account.data else [],
        "releases": [
            {
                "sequence": reserved.sequence,
                "release": reserved.release.name,
                "kind": reserved.release.kind,
                "state": reserved.state.value,
                "steps_on_disk": reserved.steps_on_disk,
                "recorded_at": reserved.recorded_at,
                "charges": [
                    {"cohorts": list(charge.cohorts), "event": to_record(charge.event)}
                    for charge in reserved.release.charges
                ],
            }
            for reserved in account.releases
        ],
    }


def _entry_object(entry: Entry, so_far: Mapping[int, float]) -> dict[str, Any]:
    """An entry in words as one JSON object."""
    return {
        "sequence": entry.sequence,
        "recorded_at": entry.recorded_at,
        "campaign": entry.campaign,
        "kind": entry.kind.value,
        "release": entry.release,
        "who": actor(entry),
        "what": describe_entry(entry),
        "about": about(entry),
        "epsilon_so_far": so_far.get(entry.sequence),
        "digest": entry.digest,
    }
