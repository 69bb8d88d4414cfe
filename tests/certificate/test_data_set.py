"""Certificates of campaigns that share a registered data set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.renyi_filter import Amount, RenyiFilter
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.verify import verify_certificate
from dpal.ledger.data_set_accounts import Basis, BlockShare, Limit, register_body
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import EntryKind
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Adjacency, Unit
from tests.certificate.certifying import (
    asserted,
    certified,
    failures,
    forged,
    opened,
    plan_of,
    run,
)

LIMIT = Limit(filter=RenyiFilter.fitted(30.0, 2e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)


def registered(place):
    """A ledger in which a data set of one block is registered."""
    store = opened(place)
    block = {"dataset": "clinic", "size": 600, "index": "0" * 64}
    limit = {**register_body("clinic", LIMIT), "salt": "0" * 64}
    for kind, body in ((EntryKind.REGISTER, limit), (EntryKind.BLOCK, block)):
        store.append(campaign="", kind=kind, release="clinic", body=body)
    store.close()


def held(basis: Basis) -> DataHold:
    amount = LIMIT.filter.charge(list(plan_of("visible").releases()), Adjacency.ZERO_OUT)
    epsilon = 8.0 if basis is Basis.SOLE else LIMIT.filter.epsilon_of(amount)
    share = BlockShare(
        block=0, size=600, participation=1.0, basis=basis, amount=amount, epsilon=epsilon
    )
    return DataHold(dataset="clinic", limit=LIMIT, shares=(share,))


@pytest.fixture(scope="module", params=Basis)
def shared(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("shared")
    registered(place)
    _, entries = run(place, plan_of("visible"), data=held(request.param))
    return entries


def detail(checks, name):
    return next(one for one in checks if one.name == name)


def test_a_share_is_checked_and_summed_up_with_the_others(shared):
    document = certified(shared, plan_of("visible"))
    assert document["data"]["name"] == "clinic"
    checks = verify_certificate(document, ledger=shared)
    assert failures(checks) == {}
    assert detail(checks, "blocks of the data set").outcome is CheckOutcome.OK
    assert "limit is 30" in detail(checks, "blocks of the data set").detail
    assert detail(checks, "other campaigns").outcome is CheckOutcome.OK
    assert detail(verify_certificate(document), "other campaigns").outcome is CheckOutcome.UNCHECKED


def test_a_share_that_is_too_small_is_found_by_dp_accounting(shared):
    """Whoever held it had another filter: ours is not asked, and theirs finds it as well."""

    def smaller(entry, body):
        if entry.kind in (EntryKind.HOLD, EntryKind.END):
            for share in body["data"]["blocks"]:
                share.update(divergence=share["divergence"] // 4, epsilon=share["epsilon"] / 4)

    forgery = forged(shared, smaller)
    document = certified(forgery, plan_of("visible"))
    found = failures(verify_certificate(document))["blocks of the data set"]
    assert "block 0: less is" in found or "too little" in found


@pytest.mark.parametrize(
    ("trained", "found"),
    [(1.0, True), (0.31, True), (0.3, False), (0.2, False), (None, True), ("elsewhere", True)],
)
def test_a_plan_trains_on_no_block_more_often_than_was_held_for_it(tmp_path, trained, found):
    """Batches follow the plan; what is charged follows what was held."""
    registered(tmp_path)
    plan = plan_of("visible")
    less = LIMIT.filter.charge(list(plan.releases()), Adjacency.ZERO_OUT, participation=0.3)
    epsilon = LIMIT.filter.epsilon_of(less)
    (whole,) = held(Basis.RENYI).shares
    share = replace(whole, participation=0.3, amount=less, epsilon=epsilon)
    hold = DataHold(dataset="clinic", limit=LIMIT, shares=(share,))
    blocks: tuple[BlockShare, ...] = ()  # which means all of them, in full
    if trained == "elsewhere":
        blocks = (share, replace(share, block=1))
    elif trained is not None:
        blocks = (replace(share, participation=trained),)
    plan = replace(plan, spec=replace(plan.spec, blocks=blocks))
    _, entries = run(tmp_path, plan, data=hold)
    faults = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert ("than were held" in faults.get("plan", "")) is found
    assert found or faults == {}


@pytest.mark.parametrize(
    ("mode", "changes", "said"),
    [
        ("hidden", {}, ""),
        ("visible", {}, ""),
        ("visible", {"acquisition": "random"}, ""),
        # Whoever has a label in one world only pushes somebody else out of the draw.
        ("hidden", {"acquisition": "random"}, "secret"),
        ("visible", {"privacy__adjacency": "replace_one"}, "replacement"),
    ],
)
def test_labels_are_carried_where_that_tells_nobody_who_has_one(tmp_path, mode, changes, said):
    plan = plan_of(mode, **changes)
    spec = replace(plan.spec, start_from="earlier")
    if said:
        object.__setattr__(spec, "carries_labels", True)  # as no settings would have it
        plan = replace(plan, spec=spec)
    else:
        plan = certified_plan(replace(spec, carries_labels=True)).plan
    _, entries = run(tmp_path, plan)
    faults = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert said in faults.get("plan", "") and (faults != {}) is bool(said)


def test_campaigns_that_pass_the_limit_together_are_found(tmp_path):
    registered(tmp_path)
    hold = held(Basis.RENYI)
    _, entries = run(tmp_path, plan_of("visible"), data=hold)
    last, own = entries[-1], next(one for one in entries if one.kind is EntryKind.HOLD)
    share = replace(hold.shares[0], amount=Amount(LIMIT.filter.limit.divergence, 0))
    body = {**own.body, "data": replace(hold, shares=(share,)).record()}
    second = replace(
        own, sequence=last.sequence + 1, campaign="second", body=body, previous=last.digest
    )
    together = forged([*entries, second], lambda entry, body: None)
    found = failures(verify_certificate(certified(entries, plan_of("visible")), ledger=together))
    assert set(found) == {"other campaigns"}
    assert "small, second take more" in found["other campaigns"]
