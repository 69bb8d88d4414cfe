"""Whom each way of selecting finds, in the paper's CIFAR-10 setting."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

import flows
from dpal.acquisition.scores import ENTROPY_CLIP
from dpal.acquisition.selection import select
from dpal.config.campaign import parse_config
from dpal.errors import ParameterError
from dpal.planning.alternatives import precision_of
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode, Strategy
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.selection_steps import design_selections
from dpal.randomness import seeded
from dpal.simulation import selections
from dpal.simulation.selections import (
    ScoreModel,
    simulate_mechanisms,
    simulate_mode,
    with_selection_mode,
)
from tests.conftest import RepeatableBits, small_spec

SCORES = ScoreModel(alpha=0.3, beta=2.0)  # as in the paper's simulation
RUNS = 20


@pytest.fixture(scope="module")
def cifar() -> CampaignSpec:
    path = Path(flows.__file__).parent / "configs" / "papers" / "cifar10.yaml"
    config = parse_config(yaml.safe_load(path.read_text(encoding="utf-8")))
    return config.to_spec(pool_size=50_000, input_shape=(3, 32, 32), classes=10)


@cache
def planned(spec: CampaignSpec, mode: SelectionMode) -> Plan:
    """Certified by the quickest strategy; the way of selecting is the same in all of them."""
    wanted = with_selection_mode(spec, mode)
    plan = certified_plan(replace(wanted, strategy=Strategy.NAIVE)).plan
    assert tuple(phase.selection for phase in plan.phases) == design_selections(wanted)
    return plan


def simulated(plan: Plan, run: int):
    rng, noise = np.random.default_rng(run), RepeatableBits(run)
    return [one.quality for one in simulate_mode(plan, SCORES, rng=rng, noise=noise)]


def hits(plan: Plan) -> np.ndarray:
    """Share of hits by phase, over repeatable runs; standard errors are below 0.01."""
    return np.mean([[one.hits for one in run] for run in runs_of(plan)], axis=0)


def runs_of(plan: Plan):
    return [simulated(plan, run) for run in range(RUNS)]


@pytest.mark.slow
def test_visible_selection_finds_half_of_the_best(cifar):
    found = hits(planned(cifar, SelectionMode.VISIBLE))
    assert (found >= [0.45, 0.40, 0.40, 0.60]).all(), found


@pytest.mark.slow
def test_hidden_selection_finds_them_nearly_all(cifar):
    plan = planned(cifar, SelectionMode.HIDDEN)
    runs = runs_of(plan)
    assert (np.mean([[one.hits for one in run] for run in runs], axis=0) >= 0.95).all()
    sizes = [10_000, 3000, 1000, 1000]
    bought = np.array([[one.selected for one in run] for run in runs])
    assert (bought.sum(axis=1) <= sum(sizes)).all()
    assert (bought.mean(axis=0) > 0.85 * np.array(sizes)).all()


def of_candidates() -> CampaignSpec:
    return small_spec(
        20_000, privacy={"selection": "hidden"}, schedule__queries=[200, 200],
        schedule__initial=1000,
    )  # fmt: skip


@pytest.mark.slow
def test_hidden_selection_finds_no_more_than_its_candidates():
    """Hits are of all unlabeled records: as many as the plan expects, and no rarer choice."""
    spec = of_candidates()
    assert spec.candidates == 1600
    plan = planned(spec, SelectionMode.HIDDEN)
    expected = [precision_of(plan, query) for query in (1, 2)]
    assert expected == pytest.approx([1600 / 19_000] * 2)
    runs = runs_of(plan)
    # 400 of 1,600 are bought, so that the second query has a little less to find.
    assert hits(plan) == pytest.approx(expected, abs=0.03)
    assert [one.chance for one in runs[0]] == pytest.approx([200 / 19_000, 200 / 18_800], rel=0.2)
    assert np.mean([[one.selected for one in run] for run in runs]) > 100


@pytest.mark.slow
def test_candidates_are_fewer_after_each_query(monkeypatch):
    """What is offered is what is told."""
    spec = of_candidates()
    offers: list[int] = []
    told: list[int] = []
    bought: list[int] = []

    def watched(step, scored, count, *, history, **named):
        batches = list(scored)
        offers.append(sum(rows.size for rows, _ in batches))
        told.append(history.left)
        chosen = select(step, iter(batches), count, history=history, **named)
        bought.append(chosen.rows.size)
        return chosen

    monkeypatch.setattr(selections, "select", watched)
    simulated(planned(spec, SelectionMode.HIDDEN), 0)
    assert offers == told == [1600, 1600 - bought[0]]


@pytest.mark.slow
def test_the_papers_selection_finds_what_the_paper_says(cifar):
    """Schwethelm et al. (2025), Table 5: 29, 13, 5 and 6 %."""
    found = hits(planned(cifar, SelectionMode.PAPER))
    assert found == pytest.approx([0.29, 0.13, 0.05, 0.06], abs=0.015)


def test_each_phase_selects_from_what_the_phases_before_left(cifar):
    sizes = np.array([10_000, 10_000, 3000, 1000, 1000])
    chances = [one.chance for one in simulated(planned(cifar, SelectionMode.PAPER), 0)]
    left = 50_000 - np.cumsum(sizes)[:-1]
    assert chances == pytest.approx((sizes[1:] / left).tolist())


def test_the_papers_mechanisms_stand_beside_chance(cifar):
    paper = with_selection_mode(cifar, SelectionMode.PAPER)
    rng, noise = np.random.default_rng(0), RepeatableBits(0)
    found = list(simulate_mechanisms(paper, SCORES, rng=rng, noise=noise))
    by_name: dict[str, list[float]] = {}
    for one in found:
        assert one.quality.selected == one.quality.query
        by_name.setdefault(one.mechanism, []).append(one.quality.hits)
        # A comparison of one selection at one epsilon is no campaign's promise.
        assert one.certified == (one.mechanism == "random")
    assert {len(phases) for phases in by_name.values()} == {4}
    assert len(by_name) == 7
    chances = [one.quality.chance for one in found if one.mechanism == "random"]
    assert by_name["random"] == pytest.approx(chances, abs=0.04)
    assert by_name["Laplace, clipped"] == pytest.approx([0.29, 0.13, 0.05, 0.06], abs=0.05)
    # What clipping is for: the same noise mechanism on the full range finds fewer.
    assert by_name["Laplace, not clipped"][0] < by_name["Laplace, clipped"][0]


def test_ways_of_one_run_see_the_same_scores(cifar):
    """In all phases: whatever a mechanism draws beside them comes from another stream."""
    paper = with_selection_mode(cifar, SelectionMode.PAPER)
    mode = simulate_mode(
        planned(cifar, SelectionMode.PAPER), SCORES, rng=seeded(3, "x"), noise=RepeatableBits(0)
    )
    by_phase = {simulated.phase: simulated.scores for simulated in mode}
    others = simulate_mechanisms(paper, SCORES, rng=seeded(3, "x"), noise=RepeatableBits(0))
    for other in others:
        assert (other.scores == by_phase[other.phase]).all()


def test_hidden_selection_has_no_epsilon_to_compare_at():
    spec = small_spec(privacy={"selection": "hidden"}, schedule__queries=[200])
    rng, noise = np.random.default_rng(0), RepeatableBits(0)
    with pytest.raises(ParameterError, match="has none"):
        list(simulate_mechanisms(spec, SCORES, rng=rng, noise=noise))


@pytest.mark.parametrize(("alpha", "beta"), [(0, 1), (1, -1), (float("nan"), 1)])
def test_scores_that_cannot_be_are_refused(alpha, beta):
    with pytest.raises(ParameterError):
        ScoreModel(alpha=alpha, beta=beta)


def test_scores_are_mostly_certain_and_lie_in_the_range():
    """Beta(0.3, 2) has mean 0.3 / 2.3."""
    drawn = SCORES.draw(100_000, rng=np.random.default_rng(1))
    assert 0 <= drawn.min() <= drawn.max() <= 1
    assert drawn.mean() == pytest.approx(0.3 / 2.3, abs=0.003)
    assert (drawn < ENTROPY_CLIP).mean() > 0.8


@pytest.mark.parametrize("mode", SelectionMode)
def test_the_same_promise_with_another_way_of_selecting(mode):
    spec = small_spec(schedule__queries=[200])
    found = with_selection_mode(spec, mode)
    assert (found.target, found.schedule, found.selection) == (spec.target, spec.schedule, mode)
    assert found.selection_epsilon == (0 if mode is SelectionMode.HIDDEN else 2)
    assert with_selection_mode(found, SelectionMode.VISIBLE).selection_epsilon == 2
