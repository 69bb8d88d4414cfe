"""Certificates of teachers' accounts: made of entries, and refused when they say more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import Charge
from dpal.accounting.prior_spend import PriorSpend
from dpal.accounting.renyi_filter import Amount, RenyiFilter
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.near_records import NearRecords, near_votes_event
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.outcome_charges import OutcomeCharges, charge_of_an_answer
from dpal.accounting.votes.teacher_budgets import stretch_charges
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import plain
from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import CheckOutcome, any_failed
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.voting import VOTING, VotingEvidence, epsilons, voting_certificate
from dpal.certificate.read_and_seal import sealed_certificate
from dpal.certificate.sentences import statements
from dpal.certificate.verify import verify_certificate
from dpal.errors import CertificateError
from dpal.ledger.data_set_accounts import Basis, BlockShare, Limit, register_body
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.queries_per_teacher_budget import with_budgets
from dpal.planning.voting_plan import (
    COHORT,
    VotingPlan,
    VotingSpec,
    block_name,
    certify_voting,
)
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from dpal.reports.vote_report import certified_votes

TARGET = PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=20, labels=3, sigma=30.0)
SPEC = VotingSpec(name="teachers", target=TARGET, rule=RULE, blocks=(10, 10))
MODEL = {"file": "phase-0/model.safetensors", "sha256": "a" * 64}


class Account:
    """An account in a ledger of its own, without ballots."""

    def __init__(self, folder, spec=SPEC, register=lambda store, releases: None):
        self.plan, self.root = VotingPlan(spec), folder / spec.name
        self.store = LedgerStore(folder / "ledger.sqlite", anchors=folder / "anchors")
        self.ledger = CampaignLedger(self.store, spec.name, self.root)
        data = register(self.store, list(self.plan.releases()))
        before = spec.before if spec.before.releases else None
        with lock_folder(self.root):
            self.ledger.hold(
                spec.target,
                self.plan.digest,
                "pool",
                self.plan.releases(),
                accountant=spec.promise_accountant,
                data=data,
                before=before,
            )

    def release(self, block):
        path = self.root / f"{block}.txt"
        release = self.plan.release(block_name(block))
        with lock_folder(self.root):
            self.ledger.release_once(
                release, lambda: path.write_text("1"), inputs=[], artifacts=[path]
            )

    def certificate(self, **others):
        given = {"model": None, "versions": {"dpal": "1"}, **others}
        name = self.plan.spec.name
        return voting_certificate(self.store.verified(), name, plain(self.plan), **given)


@pytest.fixture
def account(tmp_path):
    found = Account(tmp_path)
    yield found
    found.store.close()


def failed(checks):
    return {one.name for one in checks if one.outcome is CheckOutcome.FAILED}


def test_it_covers_what_is_held_and_says_what_is_spent(account):
    before = account.certificate()
    account.release(1)
    after = account.certificate()
    assert before["epsilon"] == after["epsilon"]
    assert set(before["spent"].values()) == {0.0}
    assert 0 < after["spent"]["rdp"] < after["epsilon"]["rdp"] <= 2.0
    assert [one["release"] for one in after["released"]] == ["votes/1"]
    account.release(2)
    assert account.certificate()["spent"] == after["epsilon"]
    for document in (before, after, account.certificate()):
        assert failed(verify_certificate(document)) == set()


def test_four_programs_agree_on_it(account):
    found = epsilons(list(account.plan.releases()), TARGET, PriorSpend())
    assert found["rdp"] == pytest.approx(found["renyi_oracle"], rel=0.01)
    assert found["pld"] == pytest.approx(found["dp_accounting"], abs=0.01)
    assert found["rdp"] < found["pld"]  # answers tell less than the counts behind them


def test_counts_that_are_rounded_up_far_above_the_promise_are_no_fault(tmp_path):
    """Counts are what answers are read off; far above 50 our sums round up by more than others."""
    loud = VotingRule(mechanism=Mechanism.BINARY, teachers=3, labels=3, sigma=0.9)
    target = replace(TARGET, epsilon=100.0)
    found = Account(tmp_path, replace(SPEC, target=target, rule=loud, blocks=(10,)))
    document = found.certificate()
    found.store.close()
    assert document["epsilon"]["pld"] > document["epsilon"]["dp_accounting"] + 1
    assert failed(verify_certificate(document)) == set()


def test_counts_that_are_released_are_not_called_answers(tmp_path):
    """Neither by a line of `dpal verify` nor by a report, whichever figure keeps the promise."""
    counts = VotingRule(
        mechanism=Mechanism.BINARY, teachers=20, labels=3, sigma=60.0, noises=1, counts=True
    )
    spec = replace(SPEC, rule=counts)
    certificate = Account(tmp_path, spec).certificate()
    checks = verify_certificate(certificate)
    assert not any_failed(checks)
    said = [check.detail for check in checks]
    said += [str(certified_votes(certify_voting(spec).summary())[0])]
    assert any("noisy counts" in line for line in said)
    assert not [line for line in said if "answer" in line]


def test_it_is_checked_against_the_ledger_also_later(account):
    account.release(1)
    document = account.certificate()
    assert not any_failed(verify_certificate(document, ledger=account.store.verified()))
    account.release(2)  # was held, and is covered
    assert not any_failed(verify_certificate(document, ledger=account.store.verified()))


def test_what_the_ledger_has_beyond_the_hold_is_not_covered(account, tmp_path):
    account.release(1)
    document = account.certificate()
    entries = account.store.verified()
    other = Account(tmp_path / "other", replace(SPEC, rule=replace(RULE, sigma=40.0)))
    try:
        assert failed(verify_certificate(document, ledger=other.store.verified())) == {"ledger"}
    finally:
        other.store.close()
    assert failed(verify_certificate(document, ledger=entries[:-1])) == {"ledger"}
    double = [*entries, replace(entries[1], sequence=entries[-1].sequence + 1)]
    assert failed(verify_certificate(document, ledger=double)) == {"ledger"}


def test_more_than_was_promised_is_not_certified(account, tmp_path):
    loud = replace(SPEC, name="loud", rule=replace(RULE, sigma=5.0))
    other = Account(tmp_path / "loud", loud)
    try:
        with pytest.raises(CertificateError, match="2 was promised"):
            other.certificate()
    finally:
        other.store.close()
    with pytest.raises(CertificateError, match="of nobody"):
        voting_certificate(
            account.store.verified(), "nobody", plain(account.plan), model=None, versions={}
        )


def test_an_earlier_account_is_part_of_the_total(tmp_path):
    first = VotingPlan(replace(SPEC, name="first", blocks=(5,)))
    before = PriorSpend(campaign="first", releases=tuple(first.releases()))
    account = Account(tmp_path, replace(SPEC, before=before))
    try:
        document = account.certificate()
        alone = epsilons(list(account.plan.releases()), TARGET, PriorSpend())
        assert document["before"] == "first"
        assert document["epsilon"]["rdp"] > alone["rdp"]
        assert failed(verify_certificate(document)) == set()
        forgotten = json.loads(json.dumps(document))
        forgotten["plan"]["content"]["spec"]["before"]["releases"] = []
        assert "plan" in failed(verify_certificate(sealed_certificate(forgotten)))
    finally:
        account.store.close()


def test_the_student_is_checked_by_its_digest(account):
    account.release(1)
    document = account.certificate(model=MODEL)
    assert failed(verify_certificate(document, model=Model(sha256="a" * 64))) == set()
    assert failed(verify_certificate(document, model=Model(sha256="b" * 64))) == {"model"}


LEAD = CostBound(
    order=4.0, beta=0.05, noise=2.0, margin=5.3, limit=1.2, by_lead=True, fallback_sigma=5.4
)
BOUNDED = VotingSpec(
    name="bounded",
    target=replace(TARGET, epsilon=8.0),
    rule=VotingRule(mechanism=Mechanism.GNMAX, teachers=40, labels=4, sigma=3.0, by_answers=True),
    blocks=(10, 10),
    bound=LEAD,
    agreement=(0.6, 0.9),
)


def test_answers_above_the_limit_of_a_bound_are_paid_for_by_both_programs(tmp_path, monkeypatch):
    """A plan that holds too little noise for them is found, though its digest is the held one."""
    honest = Account(tmp_path / "honest", BOUNDED)
    document = honest.certificate()
    honest.store.close()
    assert failed(verify_certificate(document)) == set()
    assert document["bound"]["fallback_sigma"] == 5.4
    monkeypatch.setattr("dpal.planning.voting_plan.require_fallback", lambda *args: None)
    loud = replace(BOUNDED, bound=replace(LEAD, fallback_sigma=4.0))
    forged = Account(tmp_path / "forged", loud)
    try:
        assert failed(verify_certificate(forged.certificate())) == {"plan"}
    finally:
        forged.store.close()


CHECKED = replace(BOUNDED.rule, sigma=9.0, confidence=Confidence(threshold=32.0, sigma=6.0))
BY_OUTCOME = replace(
    BOUNDED,
    name="by-outcome",
    rule=CHECKED,
    bound=None,
    agreement=(),
    charges=OutcomeCharges(
        order=4.0,
        unanswered=0.01,
        answered=1.001 * charge_of_an_answer(CHECKED, 4.0, unanswered=0.01),
        limit=1.8,
    ),
)


def test_charges_by_outcome_are_covered_by_a_certificate_and_checked_anew(tmp_path, monkeypatch):
    honest = Account(tmp_path / "honest", BY_OUTCOME)
    document = honest.certificate()
    honest.store.close()
    assert failed(verify_certificate(document)) == set()
    assert document["charges"]["unanswered"] == 0.01
    monkeypatch.setattr("dpal.planning.voting_plan.require_charges", lambda *args: None)
    assert BY_OUTCOME.charges is not None
    cheap = replace(BY_OUTCOME.charges, unanswered=0.001)
    forged = Account(tmp_path / "forged", replace(BY_OUTCOME, charges=cheap))
    try:
        assert failed(verify_certificate(forged.certificate())) == {"plan"}
    finally:
        forged.store.close()


NEAR = VotingSpec(
    name="near",
    target=replace(TARGET, epsilon=8.0, adjacency=Adjacency.REPLACE_ONE),
    rule=VotingRule(mechanism=Mechanism.GNMAX, teachers=40, labels=4, sigma=6.0),
    blocks=(500, 300),
    near=NearRecords(votes=4, neighbours=40.0, bar=3.0),
)


def budgeted(**changes):
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=12, labels=2, sigma=30.0)
    spec = VotingSpec(
        name="budgets", target=replace(TARGET, epsilon=8.0), rule=rule, blocks=(100, 100)
    )
    return replace(with_budgets(spec, {1.0: [0, 3], 2.0: [5]}, sigma=30.0), **changes)


class Unnamed(VotingSpec):
    """Charges nobody's budget."""

    def charges_of_blocks(self):
        for charges in super().charges_of_blocks():
            yield tuple(replace(charge, cohorts=(COHORT,)) for charge in charges)


class TooMany(VotingSpec):
    """Charges fewer queries than teachers with budgets vote on, by the plan."""

    def charges_of_blocks(self):
        fewer = tuple(
            replace(budget, queries=tuple(queries - 3 for queries in budget.queries))
            for budget in self.budgets
        )
        for number, size in enumerate(self.blocks, start=1):
            yield stretch_charges(self.rule, fewer, number, size)


def test_teachers_with_budgets_are_charged_for_the_queries_that_they_vote_on(tmp_path):
    sound = budgeted()
    first, second = sound.budgets
    assert first.queries < second.queries < (100, 100)
    honest = Account(tmp_path / "honest", sound)
    honest.release(1)
    document = honest.certificate()
    honest.store.close()
    assert failed(verify_certificate(document)) == set()
    assert [budget["promised"] for budget in document["budgets"]] == [1.0, 2.0]
    more = replace(first, queries=tuple(queries + 1 for queries in first.queries))
    for number, spec in enumerate(
        (
            Unnamed(**vars(sound)),
            TooMany(**vars(sound)),
            # One query more than the budget has.
            replace(sound, budgets=(more, second)),
            replace(sound, budgets=(replace(first, epsilon=0.5), second)),
        )
    ):
        forged = Account(tmp_path / str(number), spec)
        try:
            assert failed(verify_certificate(forged.certificate())) == {"plan"}, number
        finally:
            forged.store.close()
    for change in ({"promised": 0.5}, {"queries": [1, 1]}, {"teachers": [0]}):
        told = json.loads(json.dumps(document))
        told["budgets"][0] |= change
        assert failed(verify_certificate(sealed_certificate(told))) == {"statements"}
    told = json.loads(json.dumps(document))
    told["budgets"][0]["epsilon"]["rdp"] -= 0.1
    assert failed(verify_certificate(sealed_certificate(told))) == {"epsilon, our accountant"}


class TooCheap(VotingSpec):
    """Charges a record for one vote in each block."""

    def charges_of_blocks(self):
        event = near_votes_event(1, self.rule.sigma, self.target.adjacency)
        for _ in self.blocks:
            yield (Charge(cohorts=(COHORT,), event=event),)


class OneLabel(VotingSpec):
    """Charges a vote on several labels as one that names a class."""

    def charges_of_blocks(self):
        event = near_votes_event(4, self.rule.sigma, self.target.adjacency)
        for _ in self.blocks:
            yield (Charge(cohorts=(COHORT,), event=event),)


class Capped(VotingSpec):
    """Charges a block for campaigns as one in which records fall silent."""

    def charges_of_blocks(self):
        assert self.near is not None
        capped = replace(self.near, blocks=0)
        for event in capped.events(self.rule, self.target.adjacency, self.blocks):
            yield (Charge(cohorts=(COHORT,), event=event),)


def test_votes_of_single_records_are_charged_by_what_one_of_them_may_cast(tmp_path, monkeypatch):
    honest = Account(tmp_path / "honest", NEAR)
    honest.release(1)
    document = honest.certificate()
    honest.store.close()
    assert failed(verify_certificate(document)) == set()
    assert document["near"]["votes"] == 4
    assert [charge["queries"] for charge in document["released"]] == [4]
    assert document["statements"]["ballot"] != statements("voting")["ballot"]
    winner = replace(NEAR.rule, by_answers=True)
    several = replace(NEAR.rule, mechanism=Mechanism.BINARY, sigma=20.0)
    open_blocks = NearRecords(votes=4, neighbours=40.0, bar=3.0, blocks=1)
    for number, sound in enumerate(
        (
            replace(NEAR, rule=several),
            replace(NEAR, near=open_blocks, blocks=(500, 20)),
            replace(NEAR, target=replace(NEAR.target, unit=Unit.GROUP)),
        )
    ):
        account = Account(tmp_path / f"sound-{number}", sound)
        try:
            assert failed(verify_certificate(account.certificate())) == set()
        finally:
            account.store.close()
    monkeypatch.setattr("dpal.planning.voting_plan.require_near", lambda *args: None)
    for number, spec in enumerate(
        (
            TooCheap(
                name=NEAR.name,
                target=NEAR.target,
                rule=NEAR.rule,
                blocks=NEAR.blocks,
                near=NEAR.near,
            ),
            OneLabel(**vars(replace(NEAR, rule=several))),
            Capped(**vars(replace(NEAR, near=open_blocks, blocks=(500, 20)))),
            replace(NEAR, rule=winner),
            replace(NEAR, rule=replace(NEAR.rule, confidence=Confidence(threshold=9.0, sigma=2.0))),
        )
    ):
        forged = Account(tmp_path / str(number), spec)
        try:
            assert failed(verify_certificate(forged.certificate())) == {"plan"}
        finally:
            forged.store.close()


CHANGES = {
    "seal": (lambda found: found.update(digest="0" * 64), {"certificate"}),
    "epsilon": (lambda found: found["epsilon"].update(pld=0.1), {"epsilon, our accountant"}),
    "spent": (lambda found: found["spent"].update(rdp=0.0), {"epsilon, our accountant"}),
    "rule": (lambda found: found["rule"].update(sigma=90.0), {"statements"}),
    "released": (lambda found: found["released"].clear(), {"statements"}),
    "before": (lambda found: found.update(before="somebody"), {"statements"}),
    "more": (lambda found: found.update(audited=True), {"statements"}),
    "less": (lambda found: found.pop("statements"), {"statements"}),
    "plan": (lambda found: found["plan"]["content"]["spec"].update(gate=1), {"plan"}),
    "held": (
        lambda found: found["ledger"]["entries"][0]["body"].update(epsilon=99.0),
        {"ledger entries"},
    ),
    "reserve": (lambda found: found["ledger"]["entries"].pop(1), {"ledger entries", "releases"}),
    "commit": (lambda found: found["ledger"]["entries"].pop(2), {"ledger entries", "releases"}),
    "malformed": (lambda found: found["plan"].update(content=[]), {"plan"}),
}


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A certificate of one released block."""
    account = Account(tmp_path_factory.mktemp("sealed"))
    account.release(1)
    found = json.dumps(account.certificate())
    account.store.close()
    return found


@pytest.mark.parametrize(("change", "where"), CHANGES.values(), ids=CHANGES)
def test_every_change_is_found(sealed, change, where):
    document = json.loads(sealed)
    change(document)
    if where != {"certificate"}:
        document = sealed_certificate(document)
    assert failed(verify_certificate(document)) & where


LIMIT = Limit(filter=RenyiFilter.fitted(4.0, 1e-5), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)


def share_of(releases, basis=Basis.RENYI, less=0):
    amount = LIMIT.filter.charge(releases, Adjacency.ZERO_OUT)
    return BlockShare(
        block=0,
        size=60,
        participation=1.0,
        basis=basis,
        amount=Amount(amount.divergence - less, amount.overflow),
        epsilon=2.0,
    )


def registering(basis):
    """Registers a data set of one block; the account's share of it."""

    def register(store, releases):
        limit = {**register_body("clinic", LIMIT), "salt": "0" * 64}
        block = {"dataset": "clinic", "block": 0, "size": 60, "index": "0" * 64}
        for kind, body in ((EntryKind.REGISTER, limit), (EntryKind.BLOCK, block)):
            store.append(campaign="", kind=kind, release="clinic", body=body)
        return DataHold(dataset="clinic", limit=LIMIT, shares=(share_of(releases, basis),))

    return register


@pytest.mark.parametrize("basis", Basis)
def test_its_part_of_a_data_set_is_checked_and_summed_up(tmp_path, basis):
    account = Account(tmp_path, register=registering(basis))
    try:
        account.release(1)
        document, ledger = account.certificate(), account.store.verified()
        checks = {one.name: one for one in verify_certificate(document, ledger=ledger)}
        assert failed(checks.values()) == set()
        assert "delta 1e-05" in checks["blocks of the data set"].detail
        assert checks["other campaigns"].outcome is CheckOutcome.OK
        alone = {one.name: one for one in verify_certificate(document)}
        assert alone["other campaigns"].outcome is CheckOutcome.UNCHECKED
    finally:
        account.store.close()


@pytest.mark.parametrize(
    ("accountant", "basis"), [(a, b) for a in Accountant for b in Basis], ids=str
)
def test_a_part_that_covers_less_than_all_blocks_is_refused(tmp_path, accountant, basis):
    """Also where only one of its blocks was asked so far."""
    account = Account(tmp_path, register=registering(basis))
    try:
        account.release(1)
        own = evidence_in(account.store.verified(), SPEC.name, plain(account.plan))
        held = list(account.plan.releases())
        tiny = replace(share_of(held[:1], basis), epsilon=0.7)
        hold = DataHold(dataset="clinic", limit=LIMIT, shares=(tiny,))
        body = {**own.hold.body, "accountant": accountant.value, "data": hold.record()}
        entries = [
            replace(one, body=body) if one.kind is EntryKind.HOLD else one for one in own.entries
        ]
        own = replace(own, entries=entries)
        check = VOTING.check_blocks(VotingEvidence(own=own, model=None), own)
        assert check.outcome is CheckOutcome.FAILED
        assert "block 0" in check.detail
    finally:
        account.store.close()
