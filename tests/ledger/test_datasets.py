"""One limit over all campaigns: holds, what flows back, and who may not pass."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.accounting.renyi_filter import RenyiFilter
from dpal.data.catalog import Role, open_source
from dpal.errors import DataBudgetExceeded, DataError, LedgerError, ParameterError
from dpal.ledger.claim import claim
from dpal.ledger.datasets import Basis, Limit, data_set, data_sets
from dpal.ledger.entries import Kind
from dpal.ledger.limits import DataHold
from dpal.ledger.registry import Registry
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore
from dpal.planning.participation import plan_within
from dpal.planning.plan import CertifiedPlan
from dpal.privacy import Adjacency, Unit
from tests.conftest import small_spec, write_blobs
from tests.ledger.releasing import draw

DELTA = 1e-4
LIMIT = Limit(filter=RenyiFilter.fitted(8.0, DELTA), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)


class Owner:
    """A data owner's folder and ledger, and campaigns on them."""

    def __init__(self, root) -> None:
        self.root = root
        self.store = LedgerStore(root / "ledger.sqlite")
        self.registry = Registry(self.store, root / "datasets")

    def add(self, name: str, rows: int, prefix: str):
        path = write_blobs(self.root / f"{name}.parquet", rows, seed=len(name), prefix=prefix)
        return self.registry.add("clinic", open_source(path, Role.POOL, label_column="label"))

    def plan(self, epsilon: float = 3.0, name: str = "first", **wishes) -> CertifiedPlan:
        known = data_set(self.store.entries(), "clinic")
        sizes = {one.block: one.size for one in known.blocks}

        def spec_for(taking: list[int]):
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

    @property
    def blocks(self):
        return data_set(self.store.entries(), "clinic").blocks


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path)
    one.registry.register("clinic", LIMIT)
    one.add("first", 600, "a")
    yield one
    one.store.close()


def test_a_campaign_holds_its_worst_case_of_every_block_first(owner):
    certified = owner.plan()
    with claim(owner.root / "first"):
        owner.hold("first", certified)
    (block,) = owner.blocks
    assert block.campaigns == ("first",)
    assert block.taken == certified.plan.spec.blocks[0].amount
    assert block.epsilon_taken(LIMIT) <= 3.0


def test_the_same_campaign_held_twice_takes_once(owner):
    certified = owner.plan()
    with claim(owner.root / "first"):
        owner.hold("first", certified)
        owner.hold("first", certified)
    assert owner.blocks[0].taken == certified.plan.spec.blocks[0].amount


def test_campaigns_planned_at_the_same_time_cannot_both_take_the_rest(owner):
    names = [f"c{number}" for number in range(6)]
    plans = {name: owner.plan(name=name) for name in names}  # all planned on a full budget
    held = []
    for name in names:
        with claim(owner.root / name):
            try:
                owner.hold(name, plans[name])
                held.append(name)
            except DataBudgetExceeded as refused:
                assert "nothing was held or released" in str(refused)
                assert "c0, c1" in str(refused)
    assert 2 <= len(held) < 6
    assert owner.blocks[0].taken.within(LIMIT.filter.limit)


def test_what_a_campaign_did_not_use_flows_back_when_it_ends(owner):
    certified = owner.plan()
    with claim(owner.root / "first"):
        ledger = owner.hold("first", certified)
        before = owner.blocks[0].taken
        first = next(certified.plan.releases())
        draw(ledger, first)
        ledger.end()
        ledger.end()
        used = LIMIT.filter.charge([first], Adjacency.ZERO_OUT)
        assert owner.blocks[0].taken == used
        assert used.divergence < before.divergence
        with pytest.raises(LedgerError, match="was ended and gave back"):
            draw(ledger, list(certified.plan.releases())[1])
        with pytest.raises(LedgerError, match="was ended and gave back"):
            owner.hold("first", certified)  # nobody is asked for labels in vain


def test_a_campaign_that_released_nothing_leaves_no_trace_in_the_budget(owner):
    with claim(owner.root / "first"):
        owner.hold("first", owner.plan()).end()
    assert owner.blocks[0].is_untouched


def test_a_finished_campaign_gives_nothing_back(owner):
    certified = owner.plan()
    with claim(owner.root / "first"):
        ledger = owner.hold("first", certified)
        for one in certified.plan.releases():
            draw(ledger, one)
        before = owner.blocks[0].taken
        ledger.end()
    assert owner.blocks[0].taken == before


def test_the_first_and_only_campaign_may_take_all_by_its_tight_certificate(owner):
    certified = owner.plan(8.0)
    (share,) = certified.plan.spec.blocks
    assert share.basis is Basis.SOLE
    with claim(owner.root / "first"):
        owner.hold("first", certified)
    with pytest.raises(DataBudgetExceeded, match=r"8\.0000 is taken by first"):
        owner.plan(0.5, name="second")


def test_who_is_not_the_first_cannot_take_all(owner):
    alone = owner.plan(8.0)
    with claim(owner.root / "first"):
        owner.hold("first", owner.plan(1.0))
    with claim(owner.root / "late"), pytest.raises(DataBudgetExceeded):
        owner.hold("late", alone)
    with pytest.raises(DataBudgetExceeded, match=r"set privacy\.epsilon to [5-7]"):
        owner.plan(8.0, name="late")


def test_new_records_are_a_block_with_full_budget_and_old_ones_get_what_is_left(owner):
    with claim(owner.root / "first"):
        owner.hold("first", owner.plan(5.0))
    added = owner.add("second", 400, "b")
    assert (added.block, added.new, added.known) == (1, 400, 0)
    old, new = owner.plan(5.0, name="second").plan.spec.blocks
    assert (new.participation, old.size, new.size) == (1.0, 600, 400)
    assert 0.1 <= old.participation < 1.0
    taken = owner.blocks[0].taken + old.amount
    assert taken.within(LIMIT.filter.limit)
    # A thousandth more would not fit.
    more = LIMIT.filter.charge(
        list(owner.plan(5.0, name="second").plan.releases()),
        Adjacency.ZERO_OUT,
        participation=old.participation + 0.001,
    )
    assert not (owner.blocks[0].taken + more).within(LIMIT.filter.limit)


def test_a_block_with_next_to_nothing_left_sits_out(owner):
    with claim(owner.root / "first"):
        owner.hold("first", owner.plan(8.0))
    owner.add("second", 400, "b")
    spec = owner.plan(3.0, name="second").plan.spec
    assert [one.block for one in spec.blocks] == [1]
    assert spec.pool_size == 400
    assert spec.participation(0) == 0.0


def test_known_records_are_not_new(owner):
    again = owner.add("first", 600, "a")
    assert (again.block, again.known) == (None, 600)
    path = write_blobs(owner.root / "renamed.parquet", 600, seed=len("first"), prefix="other")
    renamed = owner.registry.add("clinic", open_source(path, Role.POOL, label_column="label"))
    assert renamed.block is None
    assert len(owner.blocks) == 1
    assert owner.store.entries()[-1].kind is Kind.INDEX  # their new names are on file


def test_a_campaign_about_strangers_or_about_a_data_set_unsaid_is_refused(owner):
    path = write_blobs(owner.root / "strange.parquet", 50, seed=99, prefix="x")
    strange = open_source(path, Role.POOL, label_column="label")
    with pytest.raises(DataError, match=r"50 of 50 rows .* dpal data add clinic"):
        owner.registry.locate("clinic", strange)
    owner.registry.require_unregistered(strange)
    known = open_source(owner.root / "first.parquet", Role.POOL, label_column="label")
    with pytest.raises(DataError, match=r"sets data\.dataset: clinic"):
        owner.registry.require_unregistered(known)


def test_an_index_that_is_not_the_recorded_one_is_refused(owner):
    other = write_blobs(owner.root / "o.parquet", 5, seed=3, prefix="o")
    index = owner.root / "datasets" / "clinic" / "part-0.parquet"
    index.write_bytes(other.read_bytes())
    source = open_source(other, Role.POOL, label_column="label")
    with pytest.raises(LedgerError, match="not the index that the ledger knows"):
        owner.registry.add("clinic", source)


@pytest.mark.parametrize("salt", [None, b"", bytes(32), bytes(65)])
def test_another_salt_makes_nobody_new(owner, salt):
    path = owner.root / "datasets" / "clinic" / "salt"
    if salt is None:
        path.unlink()
    else:
        path.write_bytes(salt)
    with pytest.raises(LedgerError, match="cannot be recognised"):
        owner.add("first", 600, "a")


def written(owner, name: str, ids: list[str], values: list[int]):
    table = pa.table({"id": ids, "features": [[float(one), 1.0] for one in values]})
    pq.write_table(table, owner.root / f"{name}.parquet")
    return open_source(owner.root / f"{name}.parquet", Role.POOL, label_column="label")


def test_names_and_contents_of_known_records_stay_known_wherever_they_meet_again(owner):
    """Corrected content under an old name, then that content under a new name, and so on."""
    add, locate = owner.registry.add, owner.registry.locate
    assert add("clinic", written(owner, "one", ["p", "q"], [1, 2])).block == 1
    corrected = written(owner, "two", ["p", "q"], [3, 4])
    with pytest.raises(DataError, match="or have changed"):
        locate("clinic", corrected)
    assert add("clinic", corrected).block is None
    assert add("clinic", written(owner, "three", ["x", "y"], [3, 4])).block is None
    assert add("clinic", written(owner, "four", ["x", "y"], [5, 6])).block is None
    assert add("clinic", written(owner, "five", ["v", "w"], [5, 6])).block is None
    assert locate("clinic", written(owner, "six", ["p", "x", "v"], [1, 4, 6])).sizes() == {1: 3}
    assert len(owner.blocks) == 2


def test_a_record_of_one_block_under_a_name_of_another_takes_no_part(owner):
    """Whichever block paid, the other one's record would be used for nothing."""
    owner.registry.add("clinic", written(owner, "one", ["p", "q"], [1, 2]))
    owner.registry.add("clinic", written(owner, "two", ["r", "s"], [3, 4]))
    swapped = owner.registry.locate("clinic", written(owner, "three", ["p", "r", "s"], [3, 1, 4]))
    assert swapped.eligible.tolist() == [False, False, True]
    assert swapped.sizes() == {2: 1}


def test_nobody_is_in_two_data_sets(owner):
    owner.registry.register("mirror", LIMIT)
    with pytest.raises(DataError, match="holds records of data set clinic"):
        path = owner.root / "first.parquet"
        owner.registry.add("mirror", open_source(path, Role.POOL, label_column="label"))
    assert not data_set(owner.store.entries(), "mirror").blocks


def test_limits_that_promise_nothing_are_refused(owner):
    with pytest.raises(ParameterError, match="between 0 and 1000"):
        owner.registry.change_limit("clinic", 1e308, reason="why not")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"participation": 0.5, "amount": "less"}, "take more of block 0"),
        ({"basis": Basis.SOLE, "epsilon": 1.0}, "take more of block 0"),
    ],
)
def test_no_planner_is_trusted_with_its_own_share(owner, change, match):
    certified = owner.plan()
    (share,) = certified.plan.spec.blocks
    if change.get("amount") == "less":
        change = {"amount": replace(share.amount, divergence=share.amount.divergence // 2)}
    lying = certified.with_blocks((replace(share, **change),))
    with claim(owner.root / "first"), pytest.raises(LedgerError, match=match):
        owner.hold("first", lying)
    assert owner.blocks[0].is_untouched


def test_limits_change_by_the_owner_alone_and_never_below_what_is_taken(owner):
    with claim(owner.root / "first"):
        owner.hold("first", owner.plan(5.0))
    with pytest.raises(LedgerError, match="cannot be 2, nothing was changed"):
        owner.registry.change_limit("clinic", 2.0, reason="savings")
    raised = owner.registry.change_limit("clinic", 12.0, reason="board")
    assert raised.filter.order == LIMIT.filter.order
    owner.registry.change_limit("clinic", 11.0, reason="board, again")
    assert data_sets(owner.store.entries())["clinic"].limit.filter.epsilon == 11.0
    assert [e.body["reason"] for e in owner.store.entries() if e.kind is Kind.LIMIT] == [
        "board",
        "board, again",
    ]
    with pytest.raises(LedgerError, match="dpal data limit clinic"):
        owner.registry.register("clinic", LIMIT)


def test_registering_twice_is_registering_once(owner):
    before = len(owner.store.entries())
    owner.registry.register("clinic", LIMIT)
    assert len(owner.store.entries()) == before


def test_a_lost_ledger_is_no_new_budget(owner):
    owner.store.close()
    for path in owner.root.glob("ledger.sqlite*"):
        path.unlink()
    with_none = Registry(LedgerStore(owner.root / "ledger.sqlite"), owner.root / "datasets")
    with pytest.raises(LedgerError, match="not the ledger that its budget was spent in"):
        with_none.register("clinic", LIMIT)


def test_adjacency_and_unit_are_the_data_sets(owner):
    with pytest.raises(ParameterError, match="limited under adjacency zero_out"):
        known = data_set(owner.store.entries(), "clinic")
        spec = small_spec(privacy={"adjacency": "replace_one", "selection": "visible"})
        plan_within(lambda taking: spec, known, {0: 600})


def test_an_unregistered_data_set_says_how_to_register_it(owner):
    with pytest.raises(LedgerError, match=r"not registered .* \(clinic known\)"):
        data_set(owner.store.entries(), "hospital")
