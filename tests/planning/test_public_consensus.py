"""How clearly teachers must object, and with which noise they answer: half of the promise each."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from dpal.accounting.events import VOTING, Charge, Release, SparseVector
from dpal.accounting.prior_spend import total_epsilon
from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.near_records import NearRecords
from dpal.accounting.votes.outcome_charges import OutcomeCharges
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import digest
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.public_consensus import with_consensus
from dpal.planning.voting_plan import COHORT, VotingPlan, VotingSpec, certify_voting, total_of
from dpal.privacy import PrivacyTarget
from dpal.reports.vote_report import rule_words, vote_cost_table
from tests.conftest import nothing_released
from tests.variants import quick_and_slow

RULE = VotingRule(mechanism=Mechanism.GNMAX, teachers=250, labels=10, sigma=1.0)
SPEC = VotingSpec(
    name="teachers",
    target=PrivacyTarget(epsilon=8.0, delta=1e-5),
    rule=RULE.charged(by_answers=True),
    blocks=(500,),
)


def asked(spec: VotingSpec = SPEC, **settings: object) -> VotingSpec:
    given: dict[str, object] = {"objections": 10, "object_from": 0.5, "sigma": None, **settings}
    return with_consensus(spec, **given)  # type: ignore[arg-type]


def told(spec: VotingSpec, epsilon: float) -> float:
    """What objections alone cost."""
    event = SparseVector(stops=spec.consensus.objections if spec.consensus else 0, epsilon=epsilon)
    charge = Charge(cohorts=(COHORT,), event=event)
    release = Release(name="objections", kind=VOTING, phase=0, charges=(charge,))
    return total_epsilon(None, [release], spec.target, accountant=spec.promise_accountant)


@pytest.mark.parametrize(
    ("by_answers", "objections"),
    quick_and_slow([(False, 10)], product([True, False], [1, 10, 300, 1_000])),
)
def test_objections_take_half_and_answers_fill_the_promise(objections, by_answers):
    spec = asked(replace(SPEC, rule=RULE.charged(by_answers=by_answers)), objections=objections)
    assert spec.consensus is not None
    assert told(spec, spec.consensus.epsilon) <= 4.0
    assert told(spec, 1.01 * spec.consensus.epsilon) > 4.0
    assert 0.999 * 8.0 < total_of(spec) <= 8.0
    louder = replace(spec, rule=replace(spec.rule, sigma=0.99 * spec.rule.sigma))
    assert total_of(louder) > 8.0
    assert certify_voting(spec).epsilon <= 8.0


@pytest.mark.slow
def test_how_many_queries_are_asked_costs_nothing():
    many = asked(replace(SPEC, blocks=(100_000,)))
    assert (many.rule, many.consensus) == (asked().rule, asked().consensus)
    assert total_of(many) == total_of(asked())


def test_a_sigma_that_is_given_is_checked():
    assert asked(sigma=20.0).rule.sigma == 20.0
    assert certify_voting(asked(sigma=20.0)).epsilon < 8.0
    with pytest.raises(PlanRejected) as refusal:
        certify_voting(asked(sigma=1.0))
    assert nothing_released(refusal.value)


@pytest.mark.parametrize(("share", "threshold"), [(0.5, 125), (0.501, 126), (1.0, 250), (1e-6, 1)])
def test_the_threshold_is_a_share_of_the_teachers(share, threshold):
    found = asked(object_from=share).consensus
    assert found is not None
    assert found.threshold == threshold


def test_too_many_objections_are_refused():
    small = replace(SPEC, target=replace(SPEC.target, epsilon=0.01))
    with pytest.raises(PlanRejected) as refusal:
        asked(small, objections=1_000)
    assert nothing_released(refusal.value)
    with pytest.raises(ParameterError):
        PublicConsensus(epsilon=0.1, objections=1_001, threshold=3)


CONSENSUS = PublicConsensus(epsilon=0.1, objections=5, threshold=125)


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": (100, 100)},
        {"summary_sigma": 9.0},
        {"rule": replace(RULE, mechanism=Mechanism.BINARY, labels=3)},
        {"rule": replace(RULE, confidence=Confidence(threshold=200, sigma=40.0))},
        {"rule": replace(RULE, counts=True)},
        {"near": NearRecords(votes=3, neighbours=250.0, bar=3.0), "rule": RULE},
        {"consensus": replace(CONSENSUS, threshold=251)},
        {
            "charges": OutcomeCharges(order=4.0, answered=1.0, unanswered=0.1, limit=2.0),
            "rule": replace(
                SPEC.rule, sigma=40.0, confidence=Confidence(threshold=200, sigma=40.0)
            ),
        },
    ],
    ids=str,
)
def test_it_goes_with_no_other_way_of_answering(change):
    with pytest.raises(ParameterError) as refusal:
        replace(SPEC, **{"consensus": CONSENSUS, **change})
    assert nothing_released(refusal.value)


def test_plans_without_it_are_the_same_bytes_as_before():
    before = "20ec026269bc19244dbc249f1463309545ea0bc019bf38c3e447ac45196c1311"
    assert digest(VotingPlan(replace(SPEC, rule=replace(SPEC.rule, sigma=20.0)))) == before


def test_plan_and_report_say_who_answers():
    summary = certify_voting(asked()).summary()
    assert summary["consensus"]["objections"] == 10
    rows = {row[0]: str(row[1]) for row in vote_cost_table(summary).rows}
    assert "10 queries" in rows["teachers answer"]
    assert "125 of 250" in rows["they object"]
    assert "10 times" in rule_words(summary)
