"""What a campaign has spent and where its releases stand, read off the ledger alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dpal.accounting.budget_cohort_names import budget_cohorts_in
from dpal.accounting.cohort_spending import (
    Accountant,
    Spending,
    spending,
)
from dpal.accounting.events import NEVER_SELECTED, VALIDATION, Release
from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.accounting.validation_cohort import about_validation
from dpal.accounting.worst_path import last_phase
from dpal.errors import LedgerError
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.hold_entry import spent_before
from dpal.ledger.release_json import release_from, release_of
from dpal.privacy import Adjacency, PrivacyTarget, Unit


class State(StrEnum):
    """Where a release stands. Whatever it is, the release counts as spent.

    RESERVE: it may be drawn now, or a crash came in between.
    COMMIT: it is on disk, under the digests that its entry names.
    FORFEIT: its files are missing or altered.
    DISCARDED: it was thrown away, and begun again under another charge.
    """

    RESERVE = "reserve"
    COMMIT = "commit"
    FORFEIT = "forfeit"
    DISCARDED = "discarded"


@dataclass(frozen=True, kw_only=True)
class ReleaseAccount:
    """One reserved release.

    Attributes:
      sequence: number of the entry that reserved it.
      recorded_at: day on which its plan was held.
      release: what it charges to whom.
      state: what became of it.
      steps_on_disk: of a training that is under way, as its newest checkpoint says.
    """

    sequence: int
    recorded_at: str
    release: Release
    state: State
    steps_on_disk: int


@dataclass(frozen=True, kw_only=True)
class CampaignAccount:
    """A campaign as its entries tell it.

    Attributes:
      name: of the campaign.
      target: what it promised.
      accountant: by which the promise is enforced.
      plan: digest of its plan.
      pool: salted commitment to its pool.
      planned: the releases that it holds, in order.
      releases: what it reserved of them, in order.
      cohorts: what each cohort has spent, also before.
      epsilon: what any record may have lost, whatever path it took, also before. Where it ended by
        its own rule, all that it could have released counts, and in `cohorts`, too.
      before: what was spent on the same records before; None for nothing.
      data: what it takes of a data set: what it used once it ended, what it holds before.
      ended: number of the entry that ended it, None while it may go on.
      last: its last entry.
    """

    name: str
    target: PrivacyTarget
    accountant: Accountant
    plan: str
    pool: str
    planned: tuple[Release, ...]
    releases: tuple[ReleaseAccount, ...]
    cohorts: tuple[Spending, ...]
    epsilon: float
    before: PriorSpend | None
    data: DataHold | None
    ended: int | None
    last: Entry


def campaigns_in(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Names of the campaigns that hold a plan, in order."""
    return tuple(entry.campaign for entry in entries if entry.kind is EntryKind.HOLD)


def campaign_account(entries: Iterable[Entry], campaign: str) -> CampaignAccount:
    """Reads a campaign's account; epsilons are added up from the reserved events.

    Args:
      entries: of a ledger, in order.
      campaign: its name.

    Raises:
      LedgerError: the campaign holds no plan.
    """
    entries = list(entries)
    own = [entry for entry in entries if entry.campaign == campaign]
    held = next((entry for entry in own if entry.kind is EntryKind.HOLD), None)
    if held is None:
        raise LedgerError(f"campaign {campaign} holds no plan in this ledger")
    end = next((entry for entry in own if entry.kind is EntryKind.END), None)
    target, accountant = _target(held.body), Accountant(held.body["accountant"])
    planned = tuple(release_from(record) for record in held.body["releases"])
    before = spent_before(held.body, entries)
    spent = counted_releases(own, before=before)
    earlier = before.releases if before else ()
    cohorts = [*(str(phase) for phase in range(last_phase(planned) + 1)), NEVER_SELECTED]
    if about_validation(planned):
        cohorts.append(VALIDATION)
    cohorts += budget_cohorts_in(planned)
    return CampaignAccount(
        name=campaign,
        target=target,
        accountant=accountant,
        plan=held.body["plan"],
        pool=held.body["pool"],
        planned=planned,
        releases=_releases(own),
        cohorts=tuple(spending(cohort, [*earlier, *spent], target) for cohort in cohorts),
        epsilon=total_epsilon(before, spent, target, accountant=accountant),
        before=before,
        data=DataHold.of_entry(end or held),
        ended=None if end is None else end.sequence,
        last=own[-1],
    )


def epsilons_so_far(account: CampaignAccount) -> dict[int, float]:
    """What any record may have lost by then: after each reservation, and once it ended.

    Returns:
      Epsilons at the campaign's delta, by number of the entry.
    """
    spent = [reserved.release for reserved in account.releases]
    told = {} if account.ended is None else {account.ended: account.epsilon}
    bound = math.inf
    for count in range(len(spent), 0, -1):
        epsilon = total_epsilon(
            account.before, spent[:count], account.target, accountant=account.accountant
        )
        # What bounds a later moment bounds every earlier one; grids differ in the last digits.
        bound = min(bound, epsilon)
        told[account.releases[count - 1].sequence] = bound
    return dict(sorted(told.items()))


def _target(held: dict[str, Any]) -> PrivacyTarget:
    return PrivacyTarget(
        epsilon=held["epsilon"],
        delta=held["delta"],
        adjacency=Adjacency(held["adjacency"]),
        unit=Unit(held["unit"]),
    )


def _releases(own: Sequence[Entry]) -> tuple[ReleaseAccount, ...]:
    settled = {
        entry.release: State(entry.kind.value)
        for entry in own
        if entry.kind in (EntryKind.COMMIT, EntryKind.FORFEIT)
    }
    reserved = [entry for entry in own if entry.kind is EntryKind.RESERVE]
    newest = {planned_name(entry.release): entry.release for entry in reserved}
    steps = {
        entry.release.partition("@")[0]: int(entry.body["steps"])
        for entry in own
        if entry.kind is EntryKind.CHECKPOINT
    }
    accounts = []
    for entry in reserved:
        superseded = newest[planned_name(entry.release)] != entry.release
        state = State.DISCARDED if superseded else State.RESERVE
        accounts.append(
            ReleaseAccount(
                sequence=entry.sequence,
                recorded_at=entry.recorded_at,
                release=release_of(entry),
                state=settled.get(entry.release, state),
                steps_on_disk=steps.get(entry.release, 0),
            )
        )
    return tuple(accounts)
