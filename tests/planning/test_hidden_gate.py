from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpal.acquisition.noisy_threshold_search import Keys, confirm_threshold
from dpal.canonical import plain
from dpal.errors import ParameterError
from dpal.planning.alternatives import expected_labels
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import (
    CampaignSpec,
    LabelCap,
    SelectionMode,
    Strategy,
    ThresholdStart,
)
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.planning.explain_campaign import explain_campaign
from dpal.planning.hidden_gate import CONFIRMING_SHARE, CappedQueries
from dpal.planning.selection_steps import HiddenGate, design_selections
from tests.conftest import RepeatableBits
from tests.planning.specs import campaign, planned


def hidden(cap: LabelCap = LabelCap.SUM, **changes) -> CampaignSpec:
    spec = campaign(selection=SelectionMode.HIDDEN, **changes)
    return replace(spec, threshold_start=ThresholdStart.VALIDATION, label_cap=cap)


def gates_of(spec: CampaignSpec) -> list[HiddenGate]:
    return [step for step in design_selections(spec) if isinstance(step, HiddenGate)]


def capped(*sizes: int, failure: float = 1e-9, queries: int = 0) -> CappedQueries:
    in_all = failure * (queries or len(sizes))
    return CappedQueries(sizes=sizes, failure=failure, failure_in_all=in_all)


# -- small queries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "settings"),
    [
        ((50,), {"epsilon": 8.0, "pool_size": 20_000, "delta": 5e-6, "initial": 500}),
        ((150,), {"epsilon": 1.0, "pool_size": 60_000, "delta": 1 / 600_000}),
        # BloodCell of the first paper (tests/planning/test_paper_settings.py).
        pytest.param(
            (1024, 300, 100, 52),
            {"pool_size": 11_959, "delta": 8e-6, "initial": 1024, "batch_size": 512, "epochs": 12},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["50 at epsilon 8", "150 at epsilon 1", "BloodCell"],
)
def test_small_queries_are_planned_by_the_default_way_to_select(queries, settings):
    certified = certified_or_next_best(hidden(queries=queries, **settings))
    assert isinstance(certified, CertifiedPlan)
    bought = expected_labels(certified.plan) - certified.plan.spec.schedule.initial
    assert bought >= 0.45 * sum(queries)
    with pytest.raises(ParameterError):  # the plain search refuses all of them
        design_selections(
            replace(
                certified.plan.spec,
                threshold_start=ThresholdStart.PLAIN,
                label_cap=LabelCap.QUERY,
            )
        )


@pytest.mark.parametrize("cap", LabelCap)
def test_a_query_that_is_too_small_is_refused_and_the_size_in_the_sentence_works(cap):
    settings = {"epsilon": 0.5, "threshold_noise": 30.0}
    with pytest.raises(ParameterError, match=r"for [0-9,]+ or more") as refusal:
        design_selections(hidden(cap, queries=(100,), **settings))
    size = int(str(refusal.value).split(" or more")[0].split()[-1].replace(",", ""))
    assert gates_of(hidden(cap, queries=(size,), **settings))
    with pytest.raises(ParameterError):
        design_selections(hidden(cap, queries=(size - 2,), **settings))


# -- the reserve --------------------------------------------------------------------------

SIZES = st.lists(st.integers(1, 2000), min_size=1, max_size=8).map(tuple)


@given(SIZES, st.floats(0.5, 50), st.floats(1e-12, 1e-2))
def test_the_reserve_keeps_the_chance_after_every_query(sizes, noise, failure):
    """The union bound over who accepted, computed anew: also campaigns that end early keep it."""
    queries = capped(*sizes, failure=failure)
    deviation = noise / math.sqrt(CONFIRMING_SHARE)
    for t in range(1, len(sizes) + 1):
        over = (queries.reserve(noise) - t / 2) / (deviation * math.sqrt(t))
        bound = t * math.log(2) + stats.norm.logsf(over)
        charged = -math.expm1(t * math.log1p(-failure))
        assert bound <= math.log(charged)


@given(SIZES, st.floats(0.5, 50), st.floats(1.001, 3))
def test_more_noise_keeps_more_in_reserve_and_aims_lower(sizes, noise, factor):
    queries = capped(*sizes)
    assert queries.reserve(factor * noise) >= queries.reserve(noise)
    assert queries.aims(factor * noise)[-1] <= queries.aims(noise)[-1]
    assert queries.aims(noise)[-1] <= queries.cap - queries.loss(noise)


@given(SIZES, st.floats(1, 5000))
def test_noise_for_a_loss_loses_no_more(sizes, loss):
    queries = capped(*sizes)
    noise = queries.noise_for(loss)
    if noise > 0:
        assert queries.loss(noise) <= loss


@pytest.mark.statistical
@pytest.mark.parametrize("reserved", [True, False])
def test_the_cap_of_a_sum_holds_against_the_worst_pool(reserved):
    """Real counts of pools that are always as large as they may be; a failure chance of 0.1.

    2,000 campaigns of three queries. Above 0.1 by 5 standard errors is a false alarm of 3e-7; the
    bound is not tight, so that it is rarer still. Without a reserve a quarter of them overflow.
    """
    queries, noise = capped(100, 100, 100, failure=0.1 / 3), 4.0
    deviation, reserve = noise / math.sqrt(CONFIRMING_SHARE), 0
    if reserved:
        reserve = queries.reserve(noise)
    rng, runs, over = RepeatableBits(5), 2000, 0
    for _ in range(runs):
        passed = counted = 0
        for share in (0.4, 0.7, 1.0):
            limit = queries.cap - reserve - counted
            above = max(0, round(share * (queries.cap - reserve)) - counted)
            keys = Keys(np.arange(above, dtype=np.uint32), np.ones(above, np.uint16), 1)
            accepted = confirm_threshold(keys, 1, limit=limit, count_noise=deviation, rng=rng)
            passed += int(keys.above(accepted.threshold).sum())
            counted += accepted.noisy_count
        over += passed >= queries.cap
    error = math.sqrt(0.1 * 0.9 / runs)
    if reserved:
        assert over / runs <= 0.1 + 5 * error
        assert over  # it does look at what may fail
    else:
        assert over / runs > 0.1 + 5 * error


# -- what the plan says -------------------------------------------------------------------


def test_the_plan_says_counts_noise_cap_and_chance_beforehand():
    spec = hidden(queries=(400, 300), strategy=Strategy.NAIVE)
    gates = gates_of(spec)
    records = [
        phase["threshold_search"]
        for phase in certified_or_next_best(spec).summary()["phases"]
        if "threshold_search" in phase
    ]
    assert [record["aim_in_all"] for record in records] == list(
        accumulate(gate.aim for gate in gates)
    )
    for gate, record in zip(gates, records, strict=True):
        # All counts together are the noise that is charged.
        precision = (
            record["comparisons"] / record["comparison_noise"] ** 2
            + 1 / record["confirming_noise"] ** 2
        )
        assert precision == pytest.approx(gate.threshold.noise_multiplier**-2, rel=1e-12)
        assert record["start"] == "validation"
        assert (record["label_cap"], record["cap"]) == ("sum", 700)
        assert record["limit"] == 700 - gate.reserve
    failure = sum(gate.threshold.failure_probability for gate in gates)
    assert failure == pytest.approx(0.01 * spec.target.delta, rel=1e-9)


@pytest.mark.parametrize("cap", LabelCap)
def test_it_is_explained_how_many_are_bought_and_with_what_chance_more(cap):
    certified = certified_or_next_best(hidden(cap, queries=(500, 500), strategy=Strategy.NAIVE))
    (remark,) = [one for one in explain_campaign(certified) if one.topic == "Labels"]
    assert remark.numbers["expected_labels"] == expected_labels(certified.plan)
    assert remark.numbers["overflow"] == pytest.approx(0.01 * 1e-6)
    assert remark.numbers["counts_per_query"] == 9
    assert remark.numbers["label_cap"] == cap.value
    gates = gates_of(certified.plan.spec)
    assert remark.numbers["reserve"] == sorted({gate.reserve for gate in gates}) * (
        1 if cap is LabelCap.SUM else 2
    )


def test_sums_share_a_reserve():
    """Four queries keep together what two would keep alone: noises add up by their squares."""
    together, alone = (
        gates_of(hidden(cap, queries=(400,) * 4, threshold_noise=4.0)) for cap in LabelCap
    )
    assert together[0].reserve < 2.2 * alone[0].reserve
    assert sum(gate.aim for gate in together) > 1.05 * sum(gate.aim for gate in alone)


# -- plans of earlier versions ------------------------------------------------------------

WRITTEN_BEFORE = "0fc1a664c38c7c7855328de9ba0fa2a4fac3e8956a33a7da1ac9dafdbf835413"


def test_a_plain_search_is_planned_and_written_as_it_was():
    spec = campaign(
        selection=SelectionMode.HIDDEN,
        strategy=Strategy.NAIVE,
        threshold_noise=4.0,
        queries=(500, 400),
    )
    plan = planned(spec)
    assert plan.digest == WRITTEN_BEFORE  # by version 0.2.0 before there was another start
    written = plain(plan)
    assert set(written["phases"][1]["selection"]) == {"threshold", "comparisons", "aim"}
    assert not {"label_cap", "threshold_start"} & set(written["spec"])
    changed = replace(spec, threshold_start=ThresholdStart.VALIDATION)
    assert planned(changed).digest != plan.digest


def test_a_sum_is_capped_by_a_search_with_a_confirming_count_alone():
    with pytest.raises(ParameterError) as refusal:
        replace(campaign(selection=SelectionMode.HIDDEN), label_cap=LabelCap.SUM)
    assert "label_cap" in str(refusal.value)
