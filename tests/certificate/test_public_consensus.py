"""Certificates of teachers who object to a public model: what is charged is what the plan costs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import digest
from dpal.certificate.read_and_seal import sealed_certificate
from dpal.certificate.verify import verify_certificate
from dpal.planning.public_consensus import with_consensus
from dpal.planning.voting_plan import VotingSpec, certify_voting, total_of
from dpal.privacy import Accountant
from tests.certificate.test_voting import TARGET, Account, failed
from tests.variants import quick_and_slow

RULE = VotingRule(mechanism=Mechanism.GNMAX, teachers=40, labels=4, sigma=1.0)
PLAIN = VotingSpec(name="teachers", target=TARGET, rule=RULE, blocks=(500,))


@cache
def objected(*, by_answers: bool = False) -> VotingSpec:
    """A plan with five objections; answers are charged by counts, or by what they tell."""
    rule = RULE.charged(by_answers=True) if by_answers else RULE
    return with_consensus(replace(PLAIN, rule=rule), objections=5, object_from=0.5, sigma=None)


@pytest.mark.parametrize(
    "by_answers", quick_and_slow([False], [False, True]), ids=["counts", "winners"]
)
def test_it_states_what_answers_and_objections_cost_together(by_answers, tmp_path):
    spec = objected(by_answers=by_answers)
    account = Account(tmp_path, spec)
    account.release(1)
    document = account.certificate()
    assert failed(verify_certificate(document, ledger=account.store.verified())) == set()
    account.store.close()
    by = spec.promise_accountant
    assert by is (Accountant.RDP if by_answers else Accountant.PLD)
    assert document["epsilon"][by.value] == pytest.approx(total_of(spec), abs=1e-4)
    assert 0.99 * TARGET.epsilon < total_of(spec) <= TARGET.epsilon
    assert certify_voting(spec).epsilon_oracle == pytest.approx(total_of(spec), rel=0.02)
    charged = [event["mechanism"] for event in document["released"]]
    assert charged[-1] == "sparse_vector"
    assert len(charged) == 2


@pytest.mark.parametrize(
    "paid",
    [{"objections": 4}, {"epsilon": 0.01}],
    ids=str,
)
def test_objections_that_are_not_paid_for_are_found(paid, tmp_path, monkeypatch):
    """Whoever holds less than their plan says: fewer objections, or less loss of each."""
    real, spec = PublicConsensus.events, objected()
    monkeypatch.setattr(
        PublicConsensus, "events", lambda told, rule: real(replace(told, **paid), rule)
    )
    forged = Account(tmp_path, spec)
    forged.release(1)
    document = forged.certificate()
    forged.store.close()
    assert failed(verify_certificate(document)) == set()  # as long as nobody counts anew
    monkeypatch.undo()
    assert failed(verify_certificate(document)) == {"plan"}


@pytest.mark.parametrize(
    "edit",
    [
        {"consensus": {"objections": 6}},
        {"consensus": {"epsilon": 0.01}},
        {"consensus": {"threshold": 10}},
        {"consensus": {"threshold": 41}},
        {"consensus": None},
        {"blocks": [500, 500]},
        {"summary_sigma": 3.0},
    ],
    ids=str,
)
def test_an_edit_of_the_plan_is_found(edit, tmp_path):
    account = Account(tmp_path, objected())
    account.release(1)
    document = json.loads(json.dumps(account.certificate()))
    account.store.close()
    content = document["plan"]["content"]
    for key, value in edit.items():
        rule = content["spec"][key]
        content["spec"][key] = rule | value if isinstance(value, dict) else value
        if key in document:
            document[key] = content["spec"][key]
    document["plan"]["digest"] = digest(content)
    assert "plan" in failed(verify_certificate(sealed_certificate(document)))


def test_a_rule_that_checks_its_answers_cannot_be_charged_so(tmp_path, monkeypatch):
    spec = objected()
    assert spec.consensus is not None
    monkeypatch.setattr("dpal.planning.voting_plan.require_consensus", lambda *_: None)
    far = replace(spec, consensus=replace(spec.consensus, threshold=41))
    forged = Account(tmp_path, far)
    document = forged.certificate()
    forged.store.close()
    assert failed(verify_certificate(document)) == {"plan"}


def test_earlier_plans_say_nothing_of_it():
    assert "consensus" not in json.dumps(
        certify_voting(replace(PLAIN, rule=replace(RULE, sigma=300.0))).summary()
    )
