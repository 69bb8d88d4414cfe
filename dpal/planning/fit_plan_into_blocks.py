"""How far the records of each block of a data set can take part in a campaign.

A campaign is planned for records with enough budget. A block with less takes part at lower
sample rates: the same steps and the same noise, met less often. A block that could hardly
take part sits out: its records are neither scored nor trained on. Votes have no sample rate: there
every block takes part in full, or none does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.accounting.events import Release, scale_sampling_rate
from dpal.accounting.renyi_filter import Amount
from dpal.accounting.validation_cohort import about_pool
from dpal.errors import DataBudgetExceeded, ParameterError, PlanRejected
from dpal.ledger.data_set_accounts import Basis, BlockAccount, BlockShare, DataSet
from dpal.ledger.data_set_limits import DataHold, refusal
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.certify_campaign import certified_or_next_best, certified_plan
from dpal.privacy import PrivacyTarget

LEAST = 0.1  # below this factor a label would be bought for next to nothing
_FINENESS = 1000  # participation is a whole number of thousandths
_SEARCHES = 6  # halvings when looking for an epsilon that would fit


def plan_within(
    spec_for: Callable[[list[int]], CampaignSpec], dataset: DataSet, sizes: Mapping[int, int]
) -> CertifiedPlan:
    """Plans a campaign within what a data set has left, block by block.

    Args:
      spec_for: the wishes, for a pool of these blocks.
      dataset: as it stands.
      sizes: owners of each block that are in the campaign's pool.

    Returns:
      A certified plan whose spec lists the shares of all blocks that take part.

    Raises:
      ParameterError: adjacency or unit are not the data set's.
      DataBudgetExceeded: no block has enough left for this plan; the message has the
        numbers and the largest epsilon that would fit.
    """
    taking = sorted(number for number, size in sizes.items() if size)
    while True:
        spec = spec_for(taking)
        _require_same_promise(spec.target, dataset)
        certified = certified_or_next_best(spec)
        shares = [
            share
            for number in taking
            if (share := _share(certified, dataset, dataset.blocks[number], sizes[number]))
        ]
        if not any(share.participation == 1.0 for share in shares):
            raise _nothing_fits(certified, dataset, taking)
        if len(shares) == len(taking):
            return certified.with_blocks(tuple(shares))
        taking = [share.block for share in shares]


def hold_in_full(
    name: str,
    releases: Sequence[Release],
    target: PrivacyTarget,
    dataset: DataSet,
    sizes: Mapping[int, int],
    *,
    accountant: Accountant,
) -> DataHold:
    """What is taken of a data set by releases that every record of a pool takes part in.

    Args:
      name: of the account that releases them.
      releases: all of them, in order.
      target: the account's promise.
      dataset: as it stands.
      sizes: owners of each block that are in the pool.
      accountant: by which the account's promise is kept.

    Raises:
      ParameterError: adjacency or unit are not the data set's, or the releases cannot be added
        to others.
      DataBudgetExceeded: a block has not enough left.
    """
    _require_same_promise(target, dataset)
    if not all(charge.event.adds_up for release in releases for charge in release.charges):
        # Their loss is known at an order of their own, and may fail to hold.
        raise ParameterError.before_release(
            "answers within a bound cannot be added to what campaigns on the same data set "
            "release; leave voting.agreement out"
        )
    shares = []
    for number in sorted(number for number, size in sizes.items() if size):
        account = dataset.blocks[number]
        share = _full_share(
            releases, target, dataset, account, sizes[number], accountant=accountant
        )
        if share is None:
            asked = BlockShare(
                block=number,
                size=sizes[number],
                participation=1.0,
                basis=Basis.RENYI,
                amount=dataset.limit.filter.charge(releases, target.adjacency),
                epsilon=target.epsilon,
            )
            raise refusal(dataset, account, name, asked)
        shares.append(share)
    return DataHold(dataset=dataset.name, limit=dataset.limit, shares=tuple(shares))


def _require_same_promise(target: PrivacyTarget, dataset: DataSet) -> None:
    limit = dataset.limit
    if target.adjacency is not limit.adjacency or target.unit is not limit.unit:
        raise ParameterError(
            f"data set {dataset.name} is limited under adjacency {limit.adjacency} and unit "
            f"{limit.unit}, and {target.adjacency} and {target.unit} are promised here; "
            f"set privacy.adjacency: {limit.adjacency} (the unit follows the data set)"
        )


def _full_share(
    releases: Sequence[Release],
    target: PrivacyTarget,
    dataset: DataSet,
    account: BlockAccount,
    size: int,
    *,
    accountant: Accountant = Accountant.PLD,
) -> BlockShare | None:
    """The share of a block whose records take part in full, or None where it does not fit."""
    limit = dataset.limit
    amount = limit.filter.charge(releases, target.adjacency)
    alone = target.epsilon <= limit.filter.epsilon and target.delta <= limit.filter.delta
    if amount.within(account.left(limit)):
        at_limit = replace(target, delta=limit.filter.delta)
        basis = Basis.RENYI
        epsilon = campaign_epsilon(about_pool(releases), at_limit, accountant=accountant)
    elif account.is_untouched and alone:
        basis, epsilon = Basis.SOLE, target.epsilon
    else:
        return None
    return BlockShare(
        block=account.block,
        size=size,
        participation=1.0,
        basis=basis,
        amount=amount,
        epsilon=epsilon,
    )


def _share(
    certified: CertifiedPlan, dataset: DataSet, account: BlockAccount, size: int
) -> BlockShare | None:
    """The largest share that fits, or None where next to nothing does."""
    target, limit = certified.plan.spec.target, dataset.limit
    releases = list(certified.plan.releases())
    left = account.left(limit)
    full = _full_share(releases, target, dataset, account, size)
    if full is not None:
        return full

    def charge(participation: float) -> Amount:
        return limit.filter.charge(releases, target.adjacency, participation=participation)

    low, high = 0, _FINENESS  # charge(low) fits, charge(high) does not
    if not charge(LEAST).within(left):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if charge(middle / _FINENESS).within(left) else (low, middle)
    participation = low / _FINENESS
    thinned = [scale_sampling_rate(release, participation) for release in releases]
    return BlockShare(
        block=account.block,
        size=size,
        participation=participation,
        basis=Basis.RENYI,
        amount=charge(participation),
        epsilon=campaign_epsilon(about_pool(thinned), replace(target, delta=limit.filter.delta)),
    )


def _nothing_fits(
    certified: CertifiedPlan, dataset: DataSet, taking: list[int]
) -> DataBudgetExceeded:
    """The refusal, for the block that has most left."""
    spec = certified.plan.spec
    if not taking:
        raise ParameterError(
            f"no record of the pool belongs to data set {dataset.name}; add it first: "
            f"dpal data add {dataset.name} POOL.parquet"
        )
    best = max(
        (dataset.blocks[number] for number in taking),
        key=lambda account: account.left(dataset.limit).divergence,
    )
    releases = list(certified.plan.releases())
    asked = BlockShare(
        block=best.block,
        size=best.size,
        participation=1.0,
        basis=Basis.RENYI,
        amount=dataset.limit.filter.charge(releases, spec.target.adjacency),
        epsilon=certified.epsilon,
    )
    return refusal(dataset, best, spec.name, asked, fits=_largest_epsilon(spec, dataset, best))


def _largest_epsilon(spec: CampaignSpec, dataset: DataSet, account: BlockAccount) -> float:
    """The largest privacy.epsilon whose plan fits, to two digits; 0.0 when none is found."""
    fits, above = 0.0, spec.target.epsilon
    for _ in range(_SEARCHES):
        middle = (fits + above) / 2
        factor = middle / spec.target.epsilon
        wished = replace(
            spec,
            target=replace(spec.target, epsilon=middle),
            selection_epsilon=spec.selection_epsilon * factor,
        )
        try:
            share = _share(certified_plan(wished), dataset, account, account.size)
        except (ParameterError, PlanRejected):
            share = None  # too small for these queries
        if share is not None and share.participation == 1.0:
            fits = middle
        else:
            above = middle
    if not fits:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(fits)) - 1)
    return round(math.floor(fits / digit * (1 - 1e-9)) * digit, 12)  # two digits, never upward
