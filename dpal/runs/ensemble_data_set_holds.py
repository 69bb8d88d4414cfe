"""What the records of teachers take of the data set that they are registered in.

A teacher's ballot depends on every row that the teacher has. So all rows of a pool take part in
full, and nobody may own more of them than the limit was promised for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import Release
from dpal.config.campaign import CampaignConfig
from dpal.config.pate_sections import AUTO
from dpal.data.partitions import has_column
from dpal.data.sources import Source
from dpal.errors import ConfigError, DataError, LedgerMissing
from dpal.ledger.data_set_accounts import DataSet, data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.data_set_registry import Located
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.fit_plan_into_blocks import hold_in_full
from dpal.planning.voting_plan import CertifiedVoting
from dpal.privacy import PrivacyTarget, Unit
from dpal.runs.open_ledger import open_ledger
from dpal.runs.plan_new_campaign import held_data, locate


@dataclass(frozen=True, kw_only=True)
class AccountStart:
    """What the ledger knows before an account of teachers is planned.

    Attributes:
      begun: whether the account is held already.
      dataset: the registered data set that the records belong to; None for none.
      held: what the account holds of it already.
    """

    begun: bool
    dataset: DataSet | None
    held: DataHold | None


def find_start(config: CampaignConfig) -> AccountStart:
    """Reads the ledger, which there may not be yet where no data set is named.

    Raises:
      LedgerError: the data set is not registered, or the account was begun on another one.
    """
    name = config.data.dataset
    try:
        store = open_ledger(config.runtime, create=False)
    except LedgerMissing:
        if name is not None:
            raise
        return AccountStart(begun=False, dataset=None, held=None)
    with closing(store):
        ledger = CampaignLedger(store, config.name, config.runtime.artifacts / config.name)
        held = held_data(ledger, name)
        dataset = None if name is None else data_set(store.of_data_set(name), name)
        return AccountStart(begun=ledger.identity is not None, dataset=dataset, held=held)


def owner_of_ballots(asked: str | None, pool: Source, dataset: DataSet | None) -> str | None:
    """The column whose groups go to one teacher each, and are protected; None for records.

    Args:
      asked: what the settings say.
      pool: private records.
      dataset: the data set that they belong to, which says who is protected.

    Raises:
      ConfigError: the settings protect somebody else than the data set does.
    """
    if dataset is None:
        return ("group" if has_column(pool, "group") else None) if asked == AUTO else asked
    column = dataset.limit.group_column
    if asked not in (AUTO, column):
        raise ConfigError.before_release(
            f"data set {dataset.name} protects {_owners(column)} and teachers.group_column "
            f"{_owners(asked)}; set it to auto"
        )
    return column


def shares_of_votes(
    start: AccountStart, config: CampaignConfig, pool: Source, certified: CertifiedVoting
) -> DataHold | None:
    """What an account takes of its data set; what it holds already stays as it is.

    Raises:
      DataError: rows are not in the data set, or not the only one of their owner.
      DataBudgetExceeded: a block has not enough left. Nothing was held.
    """
    if start.dataset is None or start.held is not None:
        return start.held
    with closing(open_ledger(config.runtime, create=False)) as store:
        located = locate(config, pool, store)
    _require_whole(located, pool, start.dataset)
    spec = certified.plan.spec
    return hold_in_full(
        spec.name,
        list(certified.plan.releases()),
        spec.target,
        start.dataset,
        located.sizes(),
        accountant=spec.promise_accountant,
    )


def further_shares(
    store: LedgerStore,
    name: str,
    data: DataHold | None,
    releases: Sequence[Release],
    target: PrivacyTarget,
) -> DataHold | None:
    """What another account takes of the same blocks, beside what teachers hold of them.

    Raises:
      DataBudgetExceeded: a block has not enough left. Nothing was held.
    """
    if data is None:
        return None
    dataset = data_set(store.of_data_set(data.dataset), data.dataset)
    sizes: Mapping[int, int] = {share.block: share.size for share in data.shares}
    return hold_in_full(name, releases, target, dataset, sizes, accountant=Accountant.PLD)


def _require_whole(located: Located, pool: Source, dataset: DataSet) -> None:
    """Requires that a ballot moves with no more of an owner than the limit speaks of."""
    single = dataset.limit.unit is Unit.RECORD
    wrong = ~located.eligible if single else located.disputed
    if not wrong.any():
        return
    also = "are a second one of their id or " if single else ""
    raise DataError.before_release(
        f"{{rows}} of {wrong.size:,} rows of {pool.name} {also}have the content of a record of "
        f"another block of data set {dataset.name}, and a teacher learns from every row that it "
        "has; take them out",
        rows=f"{int(wrong.sum()):,}",
    )


def _owners(column: str | None) -> str:
    return "single records" if column is None else f"groups by {column!r}"
