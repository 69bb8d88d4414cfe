"""Records that were spent on before they were registered: their block counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpal.accounting.prior_spend import PriorSpend
from dpal.accounting.renyi_filter import NOTHING, RenyiFilter
from dpal.data.sources import Role, open_source
from dpal.errors import DataBudgetExceeded, LedgerError, LedgerTampered
from dpal.ledger.attempt_names import attempt_name
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_history import parts_of
from dpal.ledger.data_set_limits import require_counted
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.past_campaigns_of_records import PastCampaigns
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from dpal.reports.ledger_tables import blocks_table
from tests.conftest import having, small_spec, write_blobs
from tests.ledger import raw
from tests.ledger.owning import DELTA, LIMIT
from tests.ledger.releasing import draw


class Unregistered:
    """Campaigns on records that are registered afterwards."""

    def __init__(self, root) -> None:
        self.root = root
        self.store = LedgerStore(root / "ledger.sqlite")
        self.registry = Registry(self.store, root / "datasets")

    def hold(
        self, name: str, epsilon: float = 3.0, *, compared: int | None = None, **promised: Any
    ):
        """A campaign that begins without a data set."""
        privacy = {"selection": "visible", "epsilon": epsilon, "delta": DELTA}
        plan = certified_plan(
            small_spec(name=name, strategy="naive", schedule__queries=[40], privacy=privacy)
        ).plan
        ledger = CampaignLedger(self.store, name, self.root / name)
        target = replace(plan.spec.target, **promised)
        ledger.hold(target, plan.digest, "pool", plan.releases(), compared=compared)
        return ledger, list(plan.releases())

    def register(self, *earlier: str, limit=LIMIT):
        path = write_blobs(self.root / "pool.parquet", 600, seed=1)
        source = open_source(path, Role.POOL, label_column="label")
        self.registry.register("clinic", limit, earlier=earlier)
        return self.registry.add(
            "clinic", source, earlier=lambda rows: PastCampaigns(campaigns=earlier)
        )

    def register_while(self, begins):
        """Registers records, and something begins after runs were asked what they are about."""
        path = write_blobs(self.root / "pool.parquet", 600, seed=1)
        source = open_source(path, Role.POOL, label_column="label")
        self.registry.register("clinic", LIMIT)

        def asked(rows):
            begins()
            return PastCampaigns()

        return self.registry.add("clinic", source, earlier=asked)

    @property
    def block(self):
        (found,) = data_set(self.store.entries(), "clinic").blocks
        return found


@pytest.fixture
def before(tmp_path):
    return Unregistered(tmp_path)


def charge(releases):
    return LIMIT.filter.charge_of_ended(releases, releases, Adjacency.ZERO_OUT)


def test_what_a_campaign_holds_is_taken_of_the_block_its_records_become(before):
    with lock_folder(before.root / "first"):
        ledger, releases = before.hold("first")
        draw(ledger, releases[0])
        assert before.register("first").earlier == ("first",)
        assert before.block.taken == charge(releases)
        assert (before.block.campaigns, before.block.earlier) == (("first",), ("first",))
        assert before.block.epsilon_taken(LIMIT) == LIMIT.filter.epsilon_of(charge(releases))
        assert not before.block.is_untouched
        for one in releases[1:]:
            draw(ledger, one)  # it goes on, and takes nothing more
        assert before.block.taken == charge(releases)


def test_records_are_not_registered_while_a_run_on_them_begins(before):
    """It would be counted by no data set, and the block would have the whole limit."""
    with lock_folder(before.root / "first"):
        with pytest.raises(LedgerError, match=r"began while .*same again"):
            before.register_while(lambda: before.hold("first"))
        assert not data_set(before.store.entries(), "clinic").blocks
        before.register("first")
    assert before.block.earlier == ("first",)


def test_a_run_does_not_begin_on_what_was_registered_while_it_was_planned(before):
    compared = before.registry.require_unregistered(
        open_source(
            write_blobs(before.root / "pool.parquet", 600, seed=1), Role.POOL, label_column="label"
        )
    )
    before.register()
    with lock_folder(before.root / "first"):
        with pytest.raises(LedgerError, match="while first was planned"):
            before.hold("first", compared=compared)
        assert "first" not in [one.campaign for one in before.store.entries()]
        before.hold("first", compared=compared + 1)  # other records, compared with these


@pytest.mark.parametrize("reason", ["a plan", "a registration"])
def test_what_records_were_compared_with_is_not_altered_unseen(before, reason):
    """Deciders other than budgets: what was registered, and which runs there were."""
    before.registry.register("hospital", LIMIT)
    with lock_folder(before.root / "first"):
        before.hold("first")
    before.register()
    kind = EntryKind.HOLD if reason == "a registration" else EntryKind.REGISTER
    altered = next(one for one in before.store.entries() if one.kind is kind)
    changed = {"pool": "other"} if kind is EntryKind.HOLD else {"salt": "other"}
    body = {**altered.body, **changed}
    raw.reseal(before.root / "ledger.sqlite", altered.sequence, body=body)
    with pytest.raises(LedgerTampered):
        if reason == "a plan":
            with lock_folder(before.root / "second"):
                before.hold("second", compared=1)
        else:
            path = write_blobs(before.root / "more.parquet", 60, seed=2, prefix="z")
            before.registry.add("clinic", open_source(path, Role.POOL, label_column="label"))


def test_what_it_gives_back_when_it_ends_is_left(before):
    with lock_folder(before.root / "first"):
        ledger, releases = before.hold("first")
        before.register("first")
        draw(ledger, releases[0])
        ledger.end()
    used = LIMIT.filter.charge([releases[0]], Adjacency.ZERO_OUT)
    assert NOTHING != used == before.block.taken != charge(releases)


def test_several_campaigns_add_up_to_more_than_the_limit(before):
    for name in ("first", "second", "third"):
        with lock_folder(before.root / name):
            before.hold(name, epsilon=5.0)
    with pytest.raises(LedgerError, match="first, second, third spent"):
        before.register("first", "second", "third")
    assert "clinic" not in [one.release for one in before.store.entries()]
    larger = replace(LIMIT, filter=RenyiFilter.fitted(30.0, DELTA))
    assert before.register("first", "second", "third", limit=larger).block == 0
    assert before.block.taken.within(larger.filter.limit)


def test_a_campaign_alone_with_the_whole_promise_leaves_nothing(before):
    """As when it had been registered first: its own certificate is tighter than the sum."""
    with lock_folder(before.root / "first"):
        before.hold("first", epsilon=8.0)
    before.register("first")
    assert before.block.sole == "first"
    assert before.block.left(LIMIT) == NOTHING
    assert before.block.epsilon_taken(LIMIT) == 8.0


def test_a_release_begun_again_may_not_pass_the_limit_unseen(before):
    """Its plan is counted; another attempt, which its own promise would allow, is not."""
    with lock_folder(before.root / "first"):
        _, releases = before.hold("first")
    before.register("first")
    again = replace(releases[0], name=attempt_name(releases[0].name, 2))
    entries = before.store.entries()
    require_counted(entries, "first", again)
    require_counted(entries, "other", again)
    read = before.store.of_data_set("clinic")
    assert data_set(read, "clinic") == data_set(entries, "clinic")
    used = LIMIT.filter.epsilon_of(charge(releases))
    for epsilon, fits in ((used + 2.0, True), (used + 0.01, False)):
        before.registry.change_limit("clinic", epsilon, reason="a test")
        entries = before.store.entries()
        if fits:
            require_counted(entries, "first", again)
        else:
            with pytest.raises(
                DataBudgetExceeded, check=having(block="block 0 of data set clinic")
            ):
                require_counted(entries, "first", again)


@pytest.mark.parametrize("limit", [replace(LIMIT, unit=Unit.GROUP, group_column="person")])
def test_what_cannot_be_counted_is_refused(before, limit):
    with lock_folder(before.root / "first"):
        before.hold("first")
    with pytest.raises(LedgerError, match=r"be counted; .*registered"):
        before.register("first", limit=limit)


def test_a_campaign_that_ended_before_it_released_anything_took_nothing(before):
    with lock_folder(before.root / "first"):
        ledger, _ = before.hold("first")
        ledger.end()
    before.register("first")
    assert before.block.is_untouched and before.block.taken == NOTHING


def test_how_an_ended_campaign_is_bounded_does_not_depend_on_what_it_released(before):
    """Its whole plan does not fit a sum; what it used does, and is not asked."""
    with lock_folder(before.root / "first"):
        ledger, releases = before.hold("first", epsilon=8.0)
        draw(ledger, releases[0])
        ledger.end()
    before.register("first")
    assert charge([releases[0]]).within(LIMIT.filter.limit)
    assert before.block.sole == "first"


def test_pages_show_what_was_counted(before):
    with lock_folder(before.root / "first"):
        _, releases = before.hold("first")
    before.register("first")
    (part,) = parts_of(before.store.entries(), "clinic")
    assert (part.campaign, part.block, part.size, part.ended) == ("first", 0, 600, False)
    assert part.share == charge(releases).divergence / LIMIT.filter.limit.divergence


def improvement(before, *, campaign: str | None, releases) -> None:
    """An improvement that counts what its start released."""
    _, own = before.hold("start")
    ledger = CampaignLedger(before.store, "better", before.root / "better")
    target = PrivacyTarget(epsilon=8.0, delta=DELTA, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
    counts = PriorSpend(campaign=campaign, releases=tuple(releases or own), declared=None)
    ledger.hold(target, "plan", "pool", [own[0]], before=counts)


def test_an_improvement_counts_with_its_start_in_the_same_ledger(before):
    with lock_folder(before.root / "start"), lock_folder(before.root / "better"):
        improvement(before, campaign="start", releases=None)
    assert before.register("start", "better").earlier == ("start", "better")


@pytest.mark.parametrize("known", [("better",), ("start", "better")])
def test_a_start_that_this_ledger_did_not_pay_for_cannot_be_counted(before, known):
    """Its certificate came as a file: another ledger's campaign may have the same name."""
    privacy = {"selection": "visible", "epsilon": 1.0, "delta": DELTA}
    elsewhere = certified_plan(
        small_spec(name="start", strategy="naive", schedule__queries=[40], privacy=privacy)
    ).plan.releases()
    with lock_folder(before.root / "start"), lock_folder(before.root / "better"):
        improvement(before, campaign="start", releases=elsewhere)
    with pytest.raises(LedgerError, match="its start spent"):
        before.register(*known)


OTHER_PROMISES = [
    ({"unit": Unit.GROUP}, LIMIT),
    ({}, replace(LIMIT, adjacency=Adjacency.REPLACE_ONE)),
]


@pytest.mark.parametrize(("promised", "limit"), OTHER_PROMISES)
def test_what_was_promised_otherwise_is_not_counted(before, promised, limit):
    """One record moves a group's clipped sum by twice its bound; noise is by its own adjacency."""
    with lock_folder(before.root / "first"):
        before.hold("first", **promised)
        with pytest.raises(LedgerError, match="promised"):
            before.register("first", limit=limit)
    assert not any(entry.kind is EntryKind.BLOCK for entry in before.store.entries())


def test_what_was_promised_under_replace_one_covers_zero_out(before):
    with lock_folder(before.root / "first"):
        before.hold("first", adjacency=Adjacency.REPLACE_ONE)
        before.register("first")
    assert before.block.earlier == ("first",)
    assert not before.block.counts_as_spent


@pytest.mark.parametrize(("promised", "limit"), OTHER_PROMISES)
def test_of_what_earlier_versions_counted_so_nothing_is_left(before, promised, limit, monkeypatch):
    module = "dpal.ledger.past_campaigns_of_records.unlike_promise"
    with lock_folder(before.root / "first"), monkeypatch.context() as earlier:
        before.hold("first", **promised)
        earlier.setattr(module, lambda *_: "")
        before.register("first", limit=limit)
    assert before.block.counts_as_spent.startswith("first ")
    assert before.block.left(limit) == NOTHING
    [shown] = blocks_table(data_set(before.store.entries(), "clinic")).rows
    assert shown[-1] == before.block.counts_as_spent
