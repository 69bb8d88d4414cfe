from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpal.accounting.events import NoisyScores, NoisyThreshold, RandomizedResponse
from dpal.acquisition import selection
from dpal.acquisition.scores import ENTROPY_CLIP, score
from dpal.acquisition.selection import select, select_at_random
from dpal.errors import ParameterError
from dpal.mechanisms.randomized_response import anchored_rates
from dpal.planning.campaign_spec import Acquisition
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    SelectionStep,
    VisibleAnswers,
)
from tests.conftest import RepeatableBits, nothing_released

SILENT = NoisyThreshold(noise_multiplier=1e-9)


def stream(scores, batch=7):
    rows = np.arange(len(scores))
    for start in range(0, len(scores), batch):
        yield rows[start : start + batch], np.asarray(scores[start : start + batch], dtype=float)


def ranking(epsilon: float) -> NoisyRanking:
    return NoisyRanking(scores=NoisyScores(epsilon=epsilon))


def gate(aim: int, noise: float = 1e-9) -> HiddenGate:
    threshold = NoisyThreshold(noise_multiplier=noise, failure_probability=1e-8)
    return HiddenGate(threshold=threshold, comparisons=16, aim=aim)


def asking(aim: int, above: float, below: float, noise: float = 1e-9) -> VisibleAnswers:
    answers = RandomizedResponse(above=above, below=below, blank=(above + below) / 2)
    threshold = NoisyThreshold(noise_multiplier=noise)
    return VisibleAnswers(threshold=threshold, comparisons=16, aim=aim, answers=answers)


LOUD = [RandomDraw(), ranking(2.0), gate(5, 4.0), asking(5, 0.6, 0.2, 10.0)]


def named(step: SelectionStep) -> str:
    return type(step).__name__


# -- what holds in every mode ------------------------------------------------------------


@st.composite
def queries(draw):
    """A pool of scores, a way to select from it, and a label budget."""
    size = draw(st.integers(1, 80))
    few, same = st.sampled_from([0.0, 0.3, 0.31, 1.0]), st.just(draw(st.floats(0, 1)))
    one = draw(st.sampled_from([few, same, st.floats(0, 1)]))  # ties, all the same, anything
    scores = draw(st.lists(one, min_size=size, max_size=size))
    aim, noise = draw(st.integers(1, 100)), draw(st.sampled_from([1e-9, 4.0, 40.0]))
    above, below = sorted(draw(st.tuples(*[st.floats(0.01, 0.99)] * 2)), reverse=True)
    step = draw(
        st.sampled_from(
            [RandomDraw(), ranking(2.0), gate(aim, noise), asking(aim, above, below, noise)]
        )
    )
    return scores, step, draw(st.integers(1, size))


@given(queries(), st.integers(0, 2**32), st.sampled_from([1, 7, 100]))
def test_no_mode_selects_more_than_the_budget_or_anyone_twice(query, seed, batch):
    scores, step, count = query
    chosen = select(step, stream(scores, batch), count, width=1.0, rng=RepeatableBits(seed))
    rows, retired = chosen.rows.tolist(), chosen.retired.tolist()
    assert len(rows) <= count
    assert len({*rows, *retired}) == len(rows) + len(retired)
    assert {*rows, *retired} <= set(range(len(scores)))
    if not isinstance(step, HiddenGate):
        assert len(rows) == count
    if not isinstance(step, VisibleAnswers):
        assert not retired


@pytest.mark.parametrize("step", LOUD, ids=named)
def test_a_model_that_broke_breaks_no_budget(step, bits):
    """NaN and infinite outputs become the lowest score, before any noise."""
    outputs = np.random.default_rng(5).dirichlet([1, 1, 1], 300)
    broken = np.arange(0, 300, 3)
    outputs[broken, 0] = np.tile([math.nan, math.inf, -math.inf, 1e308], 25)
    outputs[broken, 1] = math.inf
    scores = score(Acquisition.ENTROPY, outputs, clipped=True)
    assert (scores[broken] == 0).all()
    chosen = select(step, stream(scores), 20, width=ENTROPY_CLIP, rng=bits)
    assert chosen.rows.size <= 20
    if isinstance(step, HiddenGate):
        assert not set(chosen.rows) & set(broken)


@pytest.mark.parametrize("step", LOUD[1:], ids=named)
@pytest.mark.parametrize("outlier", [math.nan, math.inf, -0.1, 0.9])
def test_a_score_outside_of_the_range_is_not_released(step, outlier, bits):
    with pytest.raises(ParameterError, match="outside of", check=nothing_released):
        select(step, stream([0.1] * 20 + [outlier]), 1, width=0.8, rng=bits)


@pytest.mark.parametrize("step", LOUD, ids=named)
def test_printing_a_selection_shows_nobody(step, bits):
    chosen = select(step, stream(np.linspace(0, 1, 100)), 20, width=1.0, rng=bits)
    assert repr(chosen) == str(chosen) == f"{chosen}" == "Selection(confidential)"


def test_an_unknown_way_to_select_is_refused(bits):
    with pytest.raises(ParameterError, match="str is"):
        select("top", stream([0.1]), 1, width=1.0, rng=bits)


@pytest.mark.parametrize("step", LOUD[:2], ids=named)
def test_too_few_records_are_said(step, bits):
    with pytest.raises(ParameterError, match="3 records"):
        select(step, stream([0.1, 0.2]), 3, width=1.0, rng=bits)


# -- random ------------------------------------------------------------------------------


def test_random_selection_is_uniform(bits):
    counts = np.zeros(20)
    for _ in range(3000):
        counts[select_at_random(iter([np.arange(12), np.arange(12, 20)]), 5, rng=bits).rows] += 1
    # Each row: 3000 draws at 1/4, standard deviation 23.7; 4.9 of them is a 1e-6 alarm.
    assert np.abs(counts - 750).max() < 4.9 * 23.7


def test_a_random_draw_reads_no_score(bits):
    chosen = select(RandomDraw(), stream([math.nan] * 50), 50, width=1.0, rng=bits)
    assert sorted(chosen.rows.tolist()) == list(range(50))


# -- paper -------------------------------------------------------------------------------


def test_with_little_noise_the_best_are_found(bits):
    chosen = select(ranking(64), stream(np.linspace(0, 0.8, 100)), 10, width=0.8, rng=bits)
    assert len(set(chosen.rows.tolist()) & set(range(80, 100))) == 10


def test_a_record_cannot_change_its_odds_by_more_than_epsilon(bits):
    """Selection of one record among many, at its best against at its worst score.

    1000 draws each; the ratio of the two rates stays under exp(epsilon), the bound for
    score noise of scale width / epsilon.
    """
    epsilon, hits = 1.0, {0.0: 0, 1.0: 0}
    for own in hits:
        for _ in range(1000):
            scores = np.concatenate([[own], np.full(9, 0.5)])
            chosen = select(ranking(epsilon), stream(scores, 10), 3, width=1.0, rng=bits)
            hits[own] += 0 in chosen.rows
    assert hits[0.0] > 100
    assert hits[1.0] / hits[0.0] <= math.exp(epsilon) * 1.15
    assert hits[1.0] / hits[0.0] > 1.3  # and the score does matter


def test_batches_do_not_matter():
    scores = np.random.default_rng(0).random(500)
    # 64 is the largest epsilon on offer; scores are spread so that order is decided.
    spread = np.round(scores, 1)
    for batch in (1, 64, 500):
        chosen = select(ranking(64), stream(spread, batch), 20, width=1.0, rng=RepeatableBits(3))
        assert (spread[chosen.rows] >= 0.8).all()


# -- hidden ------------------------------------------------------------------------------


def test_the_gate_lets_the_best_pass(bits):
    scores = np.random.default_rng(1).permutation(np.linspace(0, 1, 1000))
    chosen = select(gate(100), stream(scores), 120, width=1.0, rng=bits)
    assert set(chosen.rows) == set(np.argsort(scores)[-100:])


def decided(step, scores, monkeypatch, threshold: int) -> np.ndarray:
    """Which records are selected or retired, given the threshold."""
    monkeypatch.setattr(selection, "noisy_threshold", lambda *given, **named: threshold)
    count = len(scores) if isinstance(step, HiddenGate) else 1  # nobody left out or filled up
    chosen = select(step, stream(scores), count, width=1.0, rng=RepeatableBits(11))
    yes = np.zeros(len(scores), dtype=bool)
    yes[[*chosen.rows, *chosen.retired]] = True
    return yes


@pytest.mark.parametrize("step", [gate(50), asking(50, 0.9, 0.3)], ids=named)
def test_given_the_threshold_a_record_is_decided_by_its_own_score(step, monkeypatch):
    """Others may be anything: they cannot push a record out, or in."""
    generator, own = np.random.default_rng(2), np.arange(0, 200, 2)
    scores = generator.random(200)
    before = decided(step, scores, monkeypatch, 1 << 15)
    assert 0 < before[own].sum() < own.size
    for others in (generator.random(100), np.zeros(100), np.ones(100)):
        swapped = scores.copy()
        swapped[own + 1] = others
        after = decided(step, swapped, monkeypatch, 1 << 15)
        assert (after[own] == before[own]).all()
    flipped = decided(step, 1 - scores, monkeypatch, 1 << 15)
    assert (flipped != before).any()  # the own score does matter


def test_in_a_ranking_others_do_push_a_record_out():
    """What the hidden mode must not do, and what the test above would see."""
    scores = np.full(200, 0.5)
    crowded = np.where(np.arange(200) % 2, 1.0, 0.5)
    alone, pushed = (
        select(ranking(64), stream(given), 50, width=1.0, rng=RepeatableBits(11)).rows
        for given in (scores, crowded)
    )
    assert (alone % 2 == 0).any()
    assert not (pushed % 2 == 0).any()


def test_too_many_at_the_gate_are_cut_down_uniformly(bits):
    """The chance of it counts as delta; who is left out is no matter of scores."""
    counts, scores = np.zeros(60), np.linspace(0.5, 1, 60)
    for _ in range(500):
        counts[select(gate(60), stream(scores, 60), 15, width=1.0, rng=bits).rows] += 1
    # 500 draws at 1/4: standard deviation 9.7; 5.2 of them for one of sixty at 1e-5.
    assert counts.sum() == 500 * 15
    assert np.abs(counts - 125).max() < 5.2 * 9.7


# -- visible -----------------------------------------------------------------------------


def test_records_answer_at_their_rates(bits):
    """5,000 above and 15,000 below the threshold; 5 standard deviations."""
    scores = np.concatenate([np.ones(5000), np.zeros(15_000)])
    step = asking(5000, *anchored_rates(1.0, 0.25))
    chosen = select(step, stream(scores, 1000), 1, width=1.0, rng=bits)
    yes = np.concatenate([chosen.rows, chosen.retired])
    for said, asked, rate in (
        ((yes < 5000).sum(), 5000, step.answers.above),
        ((yes >= 5000).sum(), 15_000, step.answers.below),
    ):
        assert abs(said - asked * rate) < 5 * math.sqrt(asked * rate * (1 - rate))


def test_a_rate_off_by_a_tenth_would_be_seen(bits):
    scores = np.ones(20_000)
    chosen = select(asking(20_000, 0.44, 0.1), stream(scores, 1000), 1, width=1.0, rng=bits)
    yes = chosen.rows.size + chosen.retired.size
    assert abs(yes - 20_000 * 0.40) > 5 * math.sqrt(20_000 * 0.4 * 0.6)


def test_too_many_yes_are_retired_and_the_chosen_are_uniform_among_them(bits):
    counts, scores = np.zeros(40), np.linspace(0, 1, 40)
    for _ in range(500):
        chosen = select(asking(20, 1 - 1e-9, 1 - 2e-9), stream(scores, 40), 10, width=1.0, rng=bits)
        assert (chosen.rows.size, chosen.retired.size) == (10, 30)
        counts[chosen.rows] += 1
    assert np.abs(counts - 125).max() < 5.2 * 9.7


def test_too_few_yes_are_filled_up_uniformly_whatever_the_scores(bits):
    """Nobody says yes: chi-square over all records, at a false alarm of 1e-6."""
    counts, scores = np.zeros(40), np.linspace(0, 1, 40)
    for _ in range(500):
        chosen = select(asking(20, 2e-9, 1e-9), stream(scores, 40), 10, width=1.0, rng=bits)
        assert (chosen.rows.size, chosen.retired.size) == (10, 0)
        counts[chosen.rows] += 1
    # Ten of forty without replacement vary less than chi-square allows for: the safe side.
    assert stats.chisquare(counts).pvalue > 1e-6
    skewed = counts + 50 * (scores > 0.5) - 50 * (scores <= 0.5)
    assert stats.chisquare(skewed).pvalue < 1e-6  # power


def test_a_wanted_record_gains_no_more_than_its_epsilon(bits):
    """Anchored rates at epsilon 1: 20,000 answers on each side of the threshold."""
    epsilon = 1.0
    step = replace(asking(1, *anchored_rates(epsilon, 0.1)), threshold=SILENT)
    said = {}
    for name, aim in (("above", 20_000), ("below", 0)):
        aimed = replace(step, aim=aim)
        chosen = select(aimed, stream(np.full(20_000, 0.5), 999), 1, width=1.0, rng=bits)
        said[name] = (chosen.rows.size + chosen.retired.size) / 20_000
    # Each rate is within epsilon of the blank record's 0.1; standard error below 4 %.
    assert said["above"] / 0.1 == pytest.approx(math.exp(epsilon), rel=0.08)
    assert 0.1 / said["below"] == pytest.approx(math.exp(epsilon), rel=0.2)
