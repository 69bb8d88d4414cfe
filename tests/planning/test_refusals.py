"""What cannot be planned is said in one sentence, with numbers that would work."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dpal.errors import ConfigError, ParameterError
from dpal.planning.campaign_spec import Acquisition, SelectionMode, Strategy
from dpal.planning.certify_campaign import PLANNERS, certified_plan
from dpal.planning.cohort_budget import Budget
from dpal.planning.selection_steps import (
    LEAST_KEY_BITS,
    HiddenGate,
    VisibleAnswers,
    design_selections,
)
from dpal.planning.training_recipe import Clipping, ClippingKind, Recipe
from dpal.privacy import Adjacency, choose_delta
from dpal.reports.plan_and_phase_tables import promise
from tests.conftest import having, small_spec
from tests.planning.specs import RANDOM, campaign, selecting


def is_one_sentence(refusal: BaseException) -> bool:
    text = str(refusal)
    return "\n" not in text and not text.endswith(".") and len(text) < 320


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"selection_epsilon": 8.0},
            "leaves nothing .*8 .*.2. is",
        ),
        ({"selection_epsilon": 9.0}, "selection_epsilon 9 leaves .*8"),
        ({"selection_epsilon": 0.0}, "private; use"),
        (
            {"selection_epsilon": 1.0, "acquisition": Acquisition.RANDOM},
            "selection_epsilon 1 .*wasted",
        ),
        (
            {"selection_epsilon": 1.0, "selection": SelectionMode.HIDDEN},
            "selection_epsilon 1 .*to pay",
        ),
        ({"pool_size": 1500}, "2,000 labels .*1,500 records"),
        ({"queries": (59_001,)}, "60,001 labels .*60,000 records"),
        (
            {"selection": SelectionMode.HIDDEN, "adjacency": Adjacency.REPLACE_ONE},
            "strategy naive, .*adjacency zero_out",
        ),
    ],
)
def test_contradictions(changes, sentence):
    with pytest.raises(ParameterError, match=sentence) as refusal:
        campaign(**changes)
    assert is_one_sentence(refusal.value)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(
    ("mode", "share", "can_be_drawn"),
    [
        (SelectionMode.PAPER, 150.0, True),  # 50 for each of three rankings
        (SelectionMode.PAPER, 195.0, False),
        (SelectionMode.PAPER, 2.9e-6, True),
        (SelectionMode.PAPER, 2.8e-6, False),
        (SelectionMode.VISIBLE, 64.0, True),  # all of it for the last query
        (SelectionMode.VISIBLE, 130.0, False),
        (SelectionMode.VISIBLE, 2.8e-6, False),
    ],
)
def test_a_share_of_selections_is_refused_where_none_could_be_drawn(
    adjacency, mode, share, can_be_drawn
):
    asked = {"selection": mode, "selection_epsilon": share, "adjacency": adjacency}
    if can_be_drawn:
        campaign(epsilon=400.0, **asked)
    else:
        with pytest.raises(ParameterError):
            campaign(epsilon=400.0, **asked)


@pytest.mark.parametrize(
    ("changes", "parameter", "value"),
    [
        ({"selection_epsilon": -0.5}, "privacy.selection_epsilon", -0.5),
        ({"batch_size": 0}, "schedule.batch_size", 0),
        ({"initial": -5}, "schedule.initial", -5),
        ({"epochs": 0}, "schedule.epochs_per_phase", 0),
        ({"queries": (0,)}, "schedule.queries", 0),
        ({"queries": (10, -1)}, "schedule.queries", -1),
        ({"epsilon": float("nan")}, "epsilon", float("nan")),
        ({"epsilon": -1.0}, "epsilon", -1.0),
        ({"delta": 0.0}, "delta", 0.0),
        ({"threshold_noise": 0.0}, "privacy.threshold_noise", 0.0),
    ],
)
def test_a_number_out_of_range_is_named_with_its_value(changes, parameter, value):
    with pytest.raises(ParameterError, check=having(parameter=parameter)) as refusal:
        campaign(**changes)
    assert is_one_sentence(refusal.value)
    assert str(refusal.value).endswith(f"got {value}")


@pytest.mark.parametrize("delta", [1 / 600, 0.01, 0.99])
def test_a_delta_that_would_allow_publishing_a_record(delta):
    with pytest.raises(ParameterError, match=r"not below 1/600 .* use 0\.000167") as refusal:
        small_spec(pool_size=600, privacy__delta=delta)
    assert is_one_sentence(refusal.value)


def test_the_delta_that_is_offered_is_accepted():
    assert choose_delta(None, pool_size=600) == pytest.approx(1 / 6000)
    assert choose_delta(0.000167, pool_size=600) == 0.000167
    spec = small_spec(pool_size=600, privacy__delta=0.000167)
    assert spec.target.delta == 0.000167


@pytest.mark.parametrize(
    ("pool_size", "queries", "delta"),
    # The settings of Schwethelm et al. (2025): one over the labels.
    [(50_000, [10_000, 3000, 1000, 1000], 4e-5), (11_959, [1024, 300, 100, 52], 4e-4),
     (550_152, [20_000, 6000, 2000, 2000], 2e-5)],
)  # fmt: skip
def test_published_deltas_are_possible_where_they_are_marked(pool_size, queries, delta):
    wishes = {
        "pool_size": pool_size,
        "schedule__initial": queries[0],
        "schedule__queries": queries,
        "privacy": {"selection": "visible", "delta": delta},
    }
    with pytest.raises(ParameterError, match="would allow publishing"):
        small_spec(**wishes)
    wishes["privacy"] = {**wishes["privacy"], "profile": "paper"}
    spec = small_spec(**wishes)
    assert spec.target.delta == delta
    wishes["privacy"] = {**wishes["privacy"], "delta": None}
    assert small_spec(**wishes).target.delta == pytest.approx(delta, rel=1e-3)
    summary = {
        "target_epsilon": 8.0, "delta": delta, "unit": "record", "adjacency": "zero_out",
        "pool_size": pool_size,
    }  # fmt: skip
    assert "PROFILE PAPER" in promise(summary)
    assert f"publishing {delta * pool_size:.3g} of them" in promise(summary)
    assert "PROFILE" not in promise({**summary, "delta": 1e-7})


def test_not_even_a_published_delta_is_above_one_over_the_labels():
    with pytest.raises(ParameterError, match="above 1/180") as refusal:
        small_spec(privacy={"selection": "visible", "profile": "paper", "delta": 0.01})
    assert is_one_sentence(refusal.value)


def test_a_registered_data_set_has_no_published_delta():
    with pytest.raises(ConfigError, match="whose owner"):
        small_spec(privacy={"profile": "paper"}, data__dataset="clinic")


def planned(**changes):
    spec = campaign(**changes)
    return PLANNERS[spec.strategy](Budget(spec, spec.planning_epsilon))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_target_below_the_accountants_reach(strategy):
    """The number in the sentence is the border: a little above it there is a plan."""
    changes = {"strategy": strategy, "acquisition": Acquisition.RANDOM, "queries": (500,)}
    with pytest.raises(ParameterError, match=r"keep epsilon 0\.005 at") as refusal:
        planned(epsilon=0.005, **changes)
    assert is_one_sentence(refusal.value)
    least = re.search(r"raise privacy.epsilon above ([\d.]+)", str(refusal.value))
    assert least is not None
    assert planned(epsilon=1.5 * float(least[1]), **changes).phases[0].training.steps > 0


def test_selections_that_leave_nothing_for_training():
    with pytest.raises(ParameterError, match="would take") as refusal:
        planned(selection=SelectionMode.HIDDEN, threshold_noise=0.1, queries=(5000,), epsilon=3.0)
    assert "raise privacy.threshold_noise" in str(refusal.value)
    assert is_one_sentence(refusal.value)


def test_a_hidden_query_below_its_reserve():
    """The size in the sentence works, and one below does not."""
    with pytest.raises(ParameterError, match=r"for [0-9,]+ or more") as refusal:
        planned(selection=SelectionMode.HIDDEN, queries=(50,))
    assert is_one_sentence(refusal.value)
    least = re.search(r"ask for ([0-9,]+) or more", str(refusal.value))
    assert least is not None
    size = int(least[1].replace(",", ""))
    naive = {"selection": SelectionMode.HIDDEN, "strategy": Strategy.NAIVE}
    assert planned(queries=(size,), **naive).phases[1].cohort_size == size
    with pytest.raises(ParameterError, match="in reserve"):
        planned(queries=(size - 2,), **naive)


def test_noise_reduction_that_would_need_hardly_any_noise():
    with pytest.raises(ParameterError, match="strategy step_amplification") as refusal:
        planned(
            strategy=Strategy.NOISE_REDUCTION,
            acquisition=Acquisition.RANDOM,
            initial=50,
            queries=(2000,),
            batch_size=50,
            epochs=50,
        )
    assert is_one_sentence(refusal.value)


def test_a_refused_wish_touches_nothing_and_leaves_no_plan():
    with pytest.raises(ParameterError):
        certified_plan(campaign(epsilon=0.004, selection_epsilon=0.001))


def test_a_small_promise_buys_noisier_thresholds_before_it_is_refused():
    """At epsilon 1 the usual noise would spend it all on thresholds; more noise leaves room."""
    spec = campaign(epsilon=1.0, selection=SelectionMode.HIDDEN, initial=2000, queries=(1000, 1000))
    gates = [step for step in design_selections(spec)[1:] if isinstance(step, HiddenGate)]
    assert len(gates) == 2
    noise = [gate.threshold.noise_multiplier for gate in gates]
    assert min(noise) > 4
    assert certified_plan(spec).never_selected.spent.epsilon_pld <= 0.5


def test_a_tiny_pool_still_has_keys_that_can_be_searched():
    spec = campaign(
        pool_size=4,
        delta=1e-3,
        initial=2,
        queries=(1,),
        batch_size=1,
        selection=SelectionMode.VISIBLE,
    )
    asked = design_selections(spec)[1]
    assert isinstance(asked, VisibleAnswers)
    assert asked.comparisons == LEAST_KEY_BITS


def test_too_little_noise_on_an_adaptive_count_is_refused_before_anything_begins():
    """A later part with a smaller batch would otherwise stop a campaign that has spent."""
    adaptive = Recipe(clipping=Clipping(kind=ClippingKind.ADAPTIVE, count_noise=1e-3))
    sizes = {"initial": 500, "queries": (60,), "batch_size": 100}
    spec = selecting(RANDOM, strategy=Strategy.CONTINUAL, **sizes)
    assert certified_plan(spec).plan.phases
    with pytest.raises(ParameterError, match=r"count_noise 0.001 .*set"):
        certified_plan(replace(spec, recipe=adaptive))
