"""Attacks on votes and on near_private: sound code passes, planted defects do not.

Each check that is statistical fails sound code with a chance of at most 1e-6.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.audit import near_private, votes
from dpal.audit.votes import vote_findings, worlds
from dpal.mechanisms.laplace_counts import noisy_counts
from dpal.mechanisms.private_pca import moments_of, noisy_moments
from dpal.planning.improvement_plan import ImprovementPlan
from dpal.planning.public_consensus import with_consensus
from dpal.planning.voting_plan import VotingPlan, VotingSpec
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import secure
from dpal.voting.draw_noisy_outcomes import release
from dpal.voting.public_consensus import objections_to
from tests.planning.test_improvement_plan import TARGET as PROMISE
from tests.planning.test_improvement_plan import spec
from tests.variants import quick_and_slow

TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)
RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=20, labels=4, sigma=25.0)
RULES = {
    "binary": RULE,
    "checked": replace(RULE, confidence=Confidence(threshold=14.0, sigma=12.0)),
    "one noise": replace(RULE, noises=1),
    "top_m": replace(RULE, mechanism=Mechanism.TOP_M, limit=2),
    "tau": replace(RULE, mechanism=Mechanism.TAU_L2, limit=1.5),
    "powerset": replace(RULE, mechanism=Mechanism.POWERSET),
    "gnmax": replace(RULE, mechanism=Mechanism.GNMAX),
    "counts": replace(RULE, mechanism=Mechanism.TOP_M, limit=1, noises=1, counts=True),
    "counts of scaled ballots": replace(
        RULE, mechanism=Mechanism.TAU_L2, limit=1.5, noises=1, counts=True
    ),
    "counts of classes": replace(RULE, mechanism=Mechanism.GNMAX, counts=True),
}
QUICK = ["checked", "tau", "gnmax", "counts of classes", "counts of scaled ballots"]


def planned(rule):
    return VotingPlan(VotingSpec(name="votes", rule=rule, blocks=(40,), target=TARGET))


FEW = 512  # transcripts of objections, each of which is drawn by itself


def failed(plan, draws=1 << 16, transcripts=1024):
    found = vote_findings(plan, transcripts=transcripts, draws=draws, fresh=secure)
    return [each.what for each in found if not each.passed]


@pytest.mark.parametrize("name", quick_and_slow(QUICK, RULES))
def test_sound_votes_pass(name):
    rule = RULES[name]
    assert not failed(planned(rule))


def answering(monkeypatch, otherwise):
    """Teachers answer by another rule than the one that is charged."""
    monkeypatch.setattr(
        votes, "release", lambda rule, cast, *, rng: release(otherwise(rule), cast, rng=rng)
    )


def test_less_noise_than_is_charged_is_found(monkeypatch):
    answering(monkeypatch, lambda rule: replace(rule, sigma=rule.sigma / 16))
    for name in ("binary", "powerset", "gnmax", "tau", "counts", "counts of classes"):
        found = failed(planned(RULES[name]))
        assert any("agree" in what for what in found), name
    assert any("share of" in what for what in failed(planned(RULE)))


def test_a_little_less_noise_is_found_by_the_law_of_answers(monkeypatch):
    answering(monkeypatch, lambda rule: replace(rule, sigma=0.9 * rule.sigma))
    assert failed(planned(RULE), draws=1 << 18)


def test_answers_that_skip_the_check_are_found(monkeypatch):
    answering(monkeypatch, lambda rule: replace(rule, confidence=None))
    assert failed(planned(RULES["checked"]))


@cache
def objecting():
    """Teachers who answer where they object to a public model."""
    target = replace(TARGET, epsilon=3.0)  # of more a thousand transcripts prove nothing
    spec = replace(planned(RULES["gnmax"]).spec, blocks=(500,), target=target)
    return VotingPlan(with_consensus(spec, objections=10, object_from=0.5, sigma=None))


@pytest.mark.slow
def test_sound_objections_pass():
    # Of classes there is no law of single answers, for which draws would be made.
    found = vote_findings(objecting(), transcripts=FEW, draws=1 << 16, fresh=secure)
    assert not [each.what for each in found if not each.passed]
    assert sum("objections" in each.what for each in found) == 1


@pytest.mark.slow
def test_objections_with_less_noise_than_is_charged_are_found(monkeypatch):
    def clearer(objecting, consensus, *, rng):
        return objections_to(objecting, replace(consensus, epsilon=30.0), rng=rng)

    monkeypatch.setattr(votes, "objections_to", clearer)
    (found,) = failed(objecting(), transcripts=FEW)
    assert "objections" in found


@pytest.mark.parametrize("name", RULES)
def test_worlds_differ_in_one_ballot(name):
    made = worlds(RULES[name], 0.5)
    assert (made.first[1:] == made.second[1:]).all()
    assert not np.array_equal(made.first[0], made.second[0])
    assert len(made.first) == RULES[name].teachers


def near_plan(adjacency=Adjacency.ZERO_OUT):
    """An improvement with near_private: both releases are noisy."""
    return ImprovementPlan(spec(target=replace(PROMISE, adjacency=adjacency)))


def failed_near(plan, draws=1 << 16):
    found = near_private.near_private_findings(plan, draws=draws, fresh=secure)
    assert len(found) == 4
    return [each.what for each in found if not each.passed]


@pytest.mark.parametrize("adjacency", Adjacency)
def test_what_near_private_releases_passes(adjacency):
    assert not failed_near(near_plan(adjacency))


def test_an_improvement_that_releases_nothing_has_nothing_to_attack():
    plan = ImprovementPlan(replace(near_plan().spec, guidance=None))
    assert near_private.near_private_findings(plan, draws=1 << 16, fresh=secure) == []


def test_moments_with_less_noise_or_without_clipping_are_found(monkeypatch):
    monkeypatch.setattr(
        near_private,
        "noisy_moments",
        lambda moments, event, **others: noisy_moments(
            moments, replace(event, noise_multiplier=event.noise_multiplier / 8), **others
        ),
    )
    (found,) = failed_near(near_plan(), draws=1 << 18)
    assert found.endswith("as Gaussian")
    monkeypatch.undo()
    monkeypatch.setattr(
        near_private,
        "moments_of",
        lambda rows, *, centre, max_norm: replace(
            moments_of(rows, centre=centre, max_norm=4 * max_norm), max_norm=max_norm
        ),
    )
    assert any("/ bound" in what for what in failed_near(near_plan()))


def test_votes_with_less_noise_are_found(monkeypatch):
    monkeypatch.setattr(
        near_private,
        "noisy_counts",
        lambda counts, event, *, rng: noisy_counts(
            counts, replace(event, epsilon=1.2 * event.epsilon), rng=rng
        ),
    )
    assert any("/ planned" in what for what in failed_near(near_plan()))
