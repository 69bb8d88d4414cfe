"""Holding a data set's budget, and giving back what was not used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import Release, scale_sampling_rate
from dpal.accounting.renyi_filter import NOTHING
from dpal.accounting.validation_cohort import about_pool
from dpal.errors import DataBudgetExceeded, LedgerError
from dpal.ledger.data_set_accounts import (
    Basis,
    BlockAccount,
    BlockShare,
    DataSet,
    Limit,
    data_set,
    data_sets,
    limit_of,
    register_body,
    share_record,
    shares_in,
)
from dpal.ledger.entries import Entry
from dpal.ledger.past_campaigns_of_records import charge_of_earlier
from dpal.ledger.taken_totals import plainly_fit
from dpal.ledger.verified_entries import EntriesSoFar
from dpal.privacy import PrivacyTarget

_SHOWN = 5  # campaigns that a refusal names


@dataclass(frozen=True, kw_only=True)
class DataHold:
    """What a campaign holds of a data set.

    Attributes:
      dataset: its name.
      limit: as it stood when the campaign held it.
      shares: of all blocks that take part.
    """

    dataset: str
    limit: Limit
    shares: tuple[BlockShare, ...]

    @classmethod
    def of_entry(cls, entry: Entry | None) -> DataHold | None:
        """What a hold says; None where no data set is registered."""
        data = entry.body.get("data") if entry else None
        if not data or not entry:
            return None
        limit = limit_of(data["limit"])
        return cls(dataset=data["name"], limit=limit, shares=shares_in(entry.body))

    def record(self) -> dict[str, Any]:
        """As JSON values, for the body of a hold or an end."""
        return {
            "name": self.dataset,
            "limit": register_body(self.dataset, self.limit),
            "blocks": [share_record(share) for share in self.shares],
        }

    def plainly_fits(self, so_far: EntriesSoFar) -> bool:
        """Whether it fits into what is left by totals alone; where not, `admit` says."""
        totals, about = so_far.totals_of(self.dataset), so_far.about_data_set(self.dataset)
        return plainly_fit(about, self.dataset, totals, self.shares)

    def require_covers(
        self, planned: Sequence[Release], reserved: Sequence[Release], target: PrivacyTarget
    ) -> None:
        """Requires that the shares are as large as what releases cost; trusts no planner.

        Args:
          planned: all releases of the plan, in order.
          reserved: those that are or will be reserved, and further attempts at them.
          target: the campaign's promise.

        Raises:
          LedgerError: a share is too small, or the promise is another one. Nothing was held
            or released.
        """
        limit = self.limit
        same = target.adjacency is limit.adjacency and target.unit is limit.unit
        if not same or not self.shares:
            raise LedgerError(
                f"data set {self.dataset} promises adjacency {limit.adjacency} and unit "
                f"{limit.unit}, and the campaign does not; nothing was held"
            )
        for share in self.shares:
            if not self._covers(share, planned, reserved, target):
                raise LedgerError.before_release(
                    f"these releases take more of block {share.block} of data set {self.dataset} "
                    "than is held for them"
                )

    def covers(
        self, planned: Sequence[Release], reserved: Sequence[Release], target: PrivacyTarget
    ) -> bool:
        """Whether the shares are as large as what the releases cost."""
        return all(self._covers(share, planned, reserved, target) for share in self.shares)

    def _covers(
        self,
        share: BlockShare,
        planned: Sequence[Release],
        reserved: Sequence[Release],
        target: PrivacyTarget,
    ) -> bool:
        limit = self.limit.filter
        if share.basis is Basis.SOLE:
            promised = target.epsilon <= share.epsilon and target.delta <= limit.delta
            return promised and share.participation == 1.0
        needed = limit.charge_of_ended(
            planned, reserved, target.adjacency, participation=share.participation
        )
        return needed.within(share.amount)

    def used_by(
        self, planned: Sequence[Release], reserved: Sequence[Release], target: PrivacyTarget
    ) -> DataHold:
        """The same hold, with no more than what an ended campaign took of each block."""
        if not reserved:
            nothing = (replace(share, amount=NOTHING, epsilon=0.0) for share in self.shares)
            return replace(self, shares=tuple(nothing))
        used = (self._used(share, planned, reserved, target) for share in self.shares)
        return replace(self, shares=tuple(used))

    def _used(
        self,
        share: BlockShare,
        planned: Sequence[Release],
        reserved: Sequence[Release],
        target: PrivacyTarget,
    ) -> BlockShare:
        limit = self.limit.filter
        amount = limit.charge_of_ended(
            planned, reserved, target.adjacency, participation=share.participation
        )
        epsilon = share.epsilon
        made, meant = ({release.name for release in each} for each in (reserved, planned))
        if share.basis is Basis.RENYI and not made <= meant:
            # What was drawn again is in no plan: held for a whole plan, the divergence covers it,
            # and the tight epsilon of that plan does not.
            epsilon = limit.epsilon_of(amount)
        elif share.basis is Basis.RENYI and list(planned) == list(reserved):
            own = about_pool(reserved)  # records of a validation set are none of the data set's
            met = [scale_sampling_rate(release, share.participation) for release in own]
            epsilon = campaign_epsilon(met, replace(target, delta=limit.delta))
        elif share.basis is Basis.RENYI:
            # Whoever ended it may have looked: the tight epsilon of what was reserved is then no
            # bound, the divergence at the order that was fixed beforehand is.
            epsilon = min(epsilon, limit.epsilon_of(amount))
        return replace(share, amount=amount, epsilon=epsilon)


def admit(entries: Iterable[Entry], name: str, campaign: str, shares: Sequence[BlockShare]) -> None:
    """Requires that a campaign's shares fit into what the data set has left.

    To be called under the ledger's write lock, so that two campaigns cannot both take the
    rest.

    Raises:
      DataBudgetExceeded: a block would pass the limit. Nothing was held.
    """
    registered = data_set(entries, name)
    for share in shares:
        account = registered.blocks[share.block]
        fits = share.amount.within(account.left(registered.limit))
        if share.basis is Basis.SOLE:
            # Stated as what must hold: NaN is refused.
            fits = account.is_untouched and share.epsilon <= registered.limit.filter.epsilon
        if not fits:
            raise refusal(registered, account, campaign, share)


def require_counted(entries: Iterable[Entry], campaign: str, release: Release) -> None:
    """Requires room for a release of a campaign that began before its records were registered.

    All of its plan is counted already; another attempt at a release is not.

    Raises:
      DataBudgetExceeded: a block would pass the limit. Nothing may be drawn.
    """
    entries = list(entries)
    for registered in data_sets(entries).values():
        limit = registered.limit.filter
        for account in registered.blocks:
            if campaign not in account.earlier or account.sole == campaign:
                continue
            about = (entries, campaign, limit, registered.limit.adjacency)
            more = charge_of_earlier(*about, further=[release]) - charge_of_earlier(*about)
            if not (account.taken + more).within(limit.limit):
                raise DataBudgetExceeded(
                    campaign,
                    f"block {account.block} of data set {registered.name}",
                    limit.epsilon_of(account.taken + more),
                    account.epsilon_taken(registered.limit),
                    f"{limit.epsilon:g} allowed",
                    _named(account.campaigns),
                    0.0,
                    _named([name for name in account.running if name != campaign]),
                )


def refusal(
    registered: DataSet,
    account: BlockAccount,
    campaign: str,
    share: BlockShare,
    *,
    fits: float = 0.0,
) -> DataBudgetExceeded:
    """The refusal of a share, with the numbers and, if known, the epsilon that would fit."""
    limit = registered.limit
    total = limit.filter.epsilon_of(account.taken + share.amount)
    return DataBudgetExceeded(
        campaign,
        f"block {account.block} of data set {registered.name}",
        share.epsilon if account.is_untouched else total,
        account.epsilon_taken(limit),
        f"{limit.filter.epsilon:g} allowed (delta {limit.filter.delta:g}, {limit.adjacency}, "
        f"{limit.unit})",
        _named(account.campaigns),
        fits,
        _named(account.running),
    )


def _named(campaigns: Sequence[str]) -> str:
    """Some of who took of a block, and how many did."""
    shown, more = ", ".join(campaigns[:_SHOWN]), len(campaigns) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
