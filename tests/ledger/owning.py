"""A data owner, and campaigns on the owner's records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpal.accounting.renyi_filter import RenyiFilter
from dpal.data.sources import Role, open_source
from dpal.ledger.data_set_accounts import BlockAccount, Limit, data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.data_set_registry import Added, Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.fit_plan_into_blocks import plan_within
from dpal.privacy import Adjacency, Unit
from tests.conftest import small_spec, write_blobs

DELTA = 1e-4
LIMIT = Limit(filter=RenyiFilter.fitted(8.0, DELTA), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)


class Owner:
    """A data owner's folder and ledger, and campaigns on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = LedgerStore(root / "ledger.sqlite")
        self.registry = Registry(self.store, root / "datasets")

    def add(self, name: str, rows: int, prefix: str) -> Added:
        path = write_blobs(self.root / f"{name}.parquet", rows, seed=len(name), prefix=prefix)
        return self.registry.add("clinic", open_source(path, Role.POOL, label_column="label"))

    def plan(self, epsilon: float = 3.0, name: str = "first", **wishes: Any) -> CertifiedPlan:
        known = data_set(self.store.entries(), "clinic")
        sizes = {one.block: one.size for one in known.blocks}

        def spec_for(taking: Sequence[int]) -> CampaignSpec:
            return small_spec(
                pool_size=sum(sizes[one] for one in taking),
                name=name,
                schedule__queries=[40],
                privacy={"selection": "visible", "epsilon": epsilon, "delta": DELTA},
                strategy="naive",
                **wishes,
            )

        return plan_within(spec_for, known, sizes)

    def campaign(self, name: str) -> CampaignLedger:
        return CampaignLedger(self.store, name, self.root / name)

    def hold(self, name: str, certified: CertifiedPlan) -> CampaignLedger:
        ledger, plan = self.campaign(name), certified.plan
        limit = data_set(self.store.entries(), "clinic").limit
        ledger.hold(
            plan.spec.target,
            plan.digest,
            "pool",
            plan.releases(),
            data=DataHold(dataset="clinic", limit=limit, shares=plan.spec.blocks),
        )
        return ledger

    def ended(self, name: str) -> DataHold:
        """What an ended campaign took."""
        (end,) = (one for one in self.store.entries(name) if one.kind is EntryKind.END)
        taken = DataHold.of_entry(end)
        assert taken is not None
        return taken

    @property
    def blocks(self) -> tuple[BlockAccount, ...]:
        return data_set(self.store.entries(), "clinic").blocks
