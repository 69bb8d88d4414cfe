"""An account goes on as it is charged; only new ones are charged by answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import digest, plain
from dpal.planning.voting_plan import VotingSpec, certify_voting, least_sigma
from dpal.privacy import PrivacyTarget
from dpal.runs.accounts_of_earlier_versions import charged_by_answers

RULE = VotingRule(mechanism=Mechanism.GNMAX, teachers=30, labels=5, sigma=12.0)
SPEC = VotingSpec(
    name="old", target=PrivacyTarget(epsilon=8.0, delta=1e-5), rule=RULE, blocks=(10, 10)
)


def record_of(spec: VotingSpec, folder: Path) -> Path:
    folder.mkdir()
    plan = json.loads(json.dumps(certify_voting(spec).summary()))
    (folder / "campaign.json").write_text(json.dumps({"plan": plan}))
    return folder


def test_a_plan_of_before_keeps_its_digest_and_its_charges() -> None:
    assert "by_answers" not in plain(RULE)
    assert plain(replace(RULE, by_answers=True))["by_answers"] is True
    assert digest(RULE) != digest(replace(RULE, by_answers=True))
    (event,) = RULE.events(10)
    assert event.mechanism == "noisy_votes"


@pytest.mark.parametrize("by_answers", [False, True])
def test_a_recorded_account_is_charged_as_it_was_opened(tmp_path: Path, by_answers: bool) -> None:
    spec = replace(SPEC, rule=replace(RULE, by_answers=by_answers))
    folder = record_of(spec, tmp_path / "old")
    assert charged_by_answers(folder) is by_answers


def test_a_new_account_is_charged_by_answers(tmp_path: Path) -> None:
    assert charged_by_answers(tmp_path / "none")


@pytest.mark.slow
def test_answers_need_less_noise_for_the_same_promise() -> None:
    spec = replace(SPEC, rule=replace(RULE, by_answers=True))
    assert least_sigma(spec, 20) < 0.9 * least_sigma(SPEC, 20)
    releases = certify_voting(spec).summary()["releases"]
    assert {release["mechanism"] for release in releases} == {"noisy_pluralities"}


@pytest.mark.parametrize(
    "rule",
    [
        VotingRule(mechanism=Mechanism.BINARY, teachers=30, labels=5, sigma=12.0),
        VotingRule(mechanism=Mechanism.TOP_M, teachers=30, labels=5, sigma=12.0, limit=2),
        VotingRule(mechanism=Mechanism.TAU_L2, teachers=30, labels=5, sigma=12.0, limit=2.0),
        VotingRule(mechanism=Mechanism.GNMAX, teachers=1_001, labels=5, sigma=400.0),
        replace(RULE, labels=2),
    ],
    ids=lambda rule: f"{rule.mechanism}, {rule.teachers} teachers, {rule.labels} labels",
)
def test_an_account_is_planned_alike_when_it_is_opened_again(
    tmp_path: Path, rule: VotingRule
) -> None:
    """Another digest would be another plan, and refused."""
    opened = rule.charged(by_answers=charged_by_answers(tmp_path / "new"))
    folder = record_of(replace(SPEC, rule=opened), tmp_path / "new")
    again = rule.charged(by_answers=charged_by_answers(folder))
    assert digest(again) == digest(opened)


def test_rules_that_no_answer_is_charged_by_are_those_of_every_version() -> None:
    rule = VotingRule(mechanism=Mechanism.BINARY, teachers=30, labels=5, sigma=12.0)
    assert rule.charged(by_answers=True) == rule
    many = replace(RULE, teachers=1_001)
    assert many.charged(by_answers=True) == many
    assert RULE.charged(by_answers=True).by_answers


def test_two_classes_are_charged_as_yes_or_no() -> None:
    (event,) = replace(RULE, labels=2, by_answers=True).events(10)
    assert event.mechanism == "noisy_majorities"


def test_many_teachers_are_charged_by_counts() -> None:
    (event,) = replace(RULE, teachers=1_001, by_answers=True).events(10)
    assert event.mechanism == "noisy_votes"
