"""Explanations state what is true of the plan, in words and as numbers."""

from __future__ import annotations

import re

import pytest
from pytest import approx

from dpal.accounting.cohort_spending import Accountant
from dpal.planning.alternatives import consider, selecting, variants
from dpal.planning.campaign_spec import Acquisition, SelectionMode, Strategy
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.epsilon_timeline import timeline
from dpal.planning.explain_campaign import explain_campaign
from tests.planning.specs import campaign
from tests.variants import quick_and_slow

SMALL = {"pool_size": 10_000, "initial": 600, "queries": (300,), "batch_size": 200, "epochs": 4}


def small(**wishes):
    return campaign(**{**SMALL, "delta": 1e-5, **wishes})


def about(words: str, remarks):
    """The only remark with these words in its topic."""
    [found] = [remark for remark in remarks if words in remark.topic]
    return found


def test_numbers_in_the_words_are_those_of_the_plan():
    certified = certified_plan(small(selection=SelectionMode.HIDDEN))
    remarks = explain_campaign(certified)
    promise = about("What is promised", remarks)
    assert f"{certified.epsilon:.4f}" in promise.text
    assert promise.numbers["delta_times_pool"] == approx(0.1)
    noise = about("this noise", remarks).numbers
    assert noise["noise_multiplier"] == certified.plan.phases[0].training.noise_multiplier
    # The least noise: a hundredth less breaks the promise.
    assert noise["epsilon_with_1_percent_less_noise"] > certified.plan.spec.target.epsilon
    labels = about("Labels", remarks)
    assert labels.numbers["labels"] == 900
    assert labels.numbers["expected_labels"] == 900 - sum(labels.numbers["reserve"])
    assert labels.numbers["expected_precision"] == [1.0]
    saved = about("accountant saves", remarks).numbers
    assert saved["noise_multiplier"] > noise["noise_multiplier"]
    for remark in remarks:
        assert re.search(r"[.!]$", remark.text), remark.topic
        assert not re.search(r"nan|inf\b|None|-0\.0000", remark.text), remark.text


def test_a_plan_without_queries_is_explained():
    remarks = explain_campaign(certified_plan(small(queries=(), acquisition=Acquisition.RANDOM)))
    labels = about("Labels", remarks)
    assert labels.numbers["labels"] == 600 and labels.numbers["precision_by_chance"] == []


def test_hidden_selection_says_what_must_stay_inside():
    hidden, visible = (
        about(
            "What is not protected", explain_campaign(certified_plan(small(selection=selection)))
        ).text
        for selection in (SelectionMode.HIDDEN, SelectionMode.VISIBLE)
    )
    assert "counts, batches" in hidden
    assert "bills" not in visible


@pytest.mark.parametrize("accountant", quick_and_slow([Accountant.RDP], Accountant))
@pytest.mark.parametrize(
    "strategy", quick_and_slow([Strategy.NAIVE, Strategy.STEP_AMPLIFICATION], Strategy)
)
def test_every_strategy_is_explained(strategy, accountant):
    spec = small(strategy=strategy, accountant=accountant, selection=SelectionMode.PAPER)
    steps = about("these steps", explain_campaign(certified_plan(spec)))
    more = sum(steps.numbers["steps"]) - sum(steps.numbers["naive_steps"])
    if strategy in (Strategy.STEP_AMPLIFICATION, Strategy.CONTINUAL):
        assert more > 0
        assert f"{more:,} more than" in steps.text
    else:
        assert more == 0


def test_variants_are_every_strategy_with_every_way_to_select():
    settings = [tuple(setting.values()) for setting, _ in variants(small())]
    assert len(set(settings)) == len(settings) == len(Strategy) * (len(SelectionMode) + 1)


def test_alternatives_keep_the_promise():
    naive = [one for one in variants(small()) if one[0]["strategy"] == Strategy.NAIVE]
    rows = [consider(setting, wish).record() for setting, wish in naive]
    for row in rows:
        assert row["planned"], row["reason"]
        assert row["worst_epsilon"] <= 8
    found = {row["selection"]: row["expected_precision"] for row in rows}
    assert found["hidden"] == 1 > found["visible"] > found["random"] == approx(300 / 9400)
    assert found["paper"] is None


def test_an_alternative_that_cannot_be_says_why():
    refused = consider({}, lambda: selecting(small(queries=(10,)), SelectionMode.HIDDEN)).record()
    assert refused["planned"] is False
    assert "10" in refused["reason"]


@pytest.mark.parametrize("accountant", Accountant)
def test_the_timeline_ends_where_the_certificate_does(accountant):
    certified = certified_plan(small(selection=SelectionMode.HIDDEN, accountant=accountant))
    grown = timeline(certified.plan)
    assert grown.campaign[-1] == approx(certified.epsilon, abs=2e-3)
    for epsilons in (*grown.cohorts.values(), grown.campaign):
        assert list(epsilons) == sorted(epsilons)
    assert grown.cohorts["1"][0] == 0  # the initial training has not seen it
