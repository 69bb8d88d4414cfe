from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytest import approx
from scipy.special import entr

from dpal.acquisition.scores import (
    MULTI_LABEL_SCORES,
    SCORES,
    OverLabels,
    Task,
    score,
    score_function,
)
from dpal.errors import ParameterError
from dpal.planning.campaign_spec import Acquisition
from tests.conftest import having

SINGLE, MULTI = Task.SINGLE_LABEL, Task.MULTI_LABEL
ALL = [(SINGLE, name) for name in SCORES] + [(MULTI, name) for name in MULTI_LABEL_SCORES]
ONE_PASS = [(task, name) for task, name in ALL if score_function(name, task=task).passes is None]

BINARY_ENTROPY_OF_A_TENTH = -(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9))


def rows(*values):
    return np.array(values, dtype=float)


def entropy_by_loop(probabilities) -> float:
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def test_values_by_hand():
    sure, torn, split = [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.4, 0.1]
    probabilities = rows(sure, torn, split)
    assert score(Acquisition.LEAST_CONFIDENCE, probabilities) == approx([0, 2 / 3, 0.5])
    assert score(Acquisition.MARGIN, probabilities) == approx([0, 1, 0.9])
    entropy = -(0.5 * math.log(0.5) + 0.4 * math.log(0.4) + 0.1 * math.log(0.1)) / math.log(3)
    # 1.0 and 0.86 are clipped to the public bound of 0.8.
    assert entropy > 0.8
    assert score(Acquisition.ENTROPY, probabilities) == approx([0, 0.8, 0.8])
    assert score(Acquisition.ENTROPY, probabilities, clipped=False) == approx([0, 1, entropy])
    assert score(Acquisition.ENTROPY, rows([0.9, 0.05, 0.05])) == approx([0.359], abs=1e-3)


def test_multi_label_values_by_hand():
    sigmoids = rows([0.5, 0.1], [1.0, 0.0], [0.9, 0.9])

    def scores(acquisition, **options):
        return score(acquisition, sigmoids, task=MULTI, **options)

    tenth = BINARY_ENTROPY_OF_A_TENTH
    assert scores(Acquisition.LEAST_CONFIDENCE) == approx([0.3, 0, 0.1])
    most = scores(Acquisition.LEAST_CONFIDENCE, over_labels=OverLabels.MAX)
    assert most == approx([0.5, 0, 0.1])
    assert scores(Acquisition.ENTROPY) == approx([(1 + tenth) / 2, 0, tenth])
    assert scores(Acquisition.ENTROPY, over_labels=OverLabels.MAX) == approx([0.8, 0, tenth])
    unclipped = scores(Acquisition.ENTROPY, over_labels=OverLabels.MAX, clipped=False)
    assert unclipped == approx([1, 0, tenth])


def test_widths():
    widths = {name: function.width(4) for name, function in SCORES.items()}
    ranked = {"class_balanced": 1, "diverse": 1}
    unranked = {"least_confidence": 0.75, "margin": 1, "entropy": 0.8, "bald": 1, "committee": 1}
    assert widths == approx(unranked | ranked)
    widths = {name: function.width(4) for name, function in MULTI_LABEL_SCORES.items()}
    unranked = {"least_confidence": 0.5, "entropy": 0.8, "bald": 1, "committee": 1}
    assert widths == approx(unranked | {"diverse": 1})
    for task in Task:
        assert score_function(Acquisition.ENTROPY, task=task).width(4, clipped=False) == 1


@pytest.mark.parametrize(("task", "acquisition"), ALL)
@pytest.mark.parametrize("clipped", [True, False])
@given(
    raw=arrays(float, (3, 5, 4), elements=st.floats(0, 1)), over_labels=st.sampled_from(OverLabels)
)
def test_scores_stay_in_their_range(task, acquisition, clipped, raw, over_labels):
    # Corners included: sure records, and passes that are sure of different classes.
    shares = (raw + 1e-300) / (raw + 1e-300).sum(axis=-1, keepdims=True)
    probabilities = shares if task is SINGLE else raw
    function = score_function(acquisition, task=task)
    offered = probabilities if function.passes else probabilities[0]
    scores = score(acquisition, offered, task=task, over_labels=over_labels, clipped=clipped)
    assert scores.shape == (5,)
    assert (scores >= 0).all()
    assert (scores <= function.score_width(4, clipped=clipped)).all()
    assert function.score_width(4, clipped=clipped) <= function.width(4, clipped=clipped)


@pytest.mark.parametrize(("task", "acquisition"), ALL)
def test_both_ends_of_the_range_are_reached(task, acquisition):
    """A width larger than needed would be paid for in noise."""
    function = score_function(acquisition, task=task)
    sure, torn = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    low, high = np.stack([sure, sure])[:, None], np.stack([torn, torn])[:, None]
    if function.passes:
        high = np.stack([sure, 1 - sure])[:, None]
    else:
        low, high = low[0], high[0]
    for clipped in (True, False):
        assert score(acquisition, low, task=task, clipped=clipped) == approx([0])
        width = function.score_width(2, clipped=clipped)
        assert score(acquisition, high, task=task, clipped=clipped) == approx([width])


@pytest.mark.parametrize(("task", "acquisition"), ALL)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_record_that_breaks_the_model_is_wanted_least(task, acquisition, broken):
    """Published code ranks NaN first: such a record is selected whatever the noise."""
    probabilities = rows([broken, 0.5, 0.5], [0.2, 0.4, 0.4])
    if score_function(acquisition, task=task).passes:
        # One broken pass among sound ones is enough.
        probabilities = np.stack([rows([0.8, 0.1, 0.1], [0.8, 0.1, 0.1]), probabilities])
    with np.errstate(all="raise"):
        scores = score(acquisition, probabilities, task=task)
    assert scores[0] == 0.0
    assert scores[1] > 0


@pytest.mark.parametrize(("task", "acquisition"), ALL)
@given(raw=arrays(float, (2, 4, 3), elements=st.floats(0.01, 1)))
def test_a_score_reads_its_own_record_only(task, acquisition, raw):
    probabilities = raw / raw.sum(axis=-1, keepdims=True)
    changed = probabilities.copy()
    changed[:, 1:] = math.nan
    if not score_function(acquisition, task=task).passes:
        probabilities, changed = probabilities[0], changed[0]
    before = score(acquisition, probabilities, task=task)
    assert score(acquisition, changed, task=task)[0] == before[0]


@pytest.mark.parametrize(("task", "acquisition"), ALL)
def test_scores_are_the_same_to_the_last_bit_whoever_breaks_a_model_beside_them(task, acquisition):
    """Also where arrays lie in memory in another order."""
    passes = score_function(acquisition, task=task).passes is not None
    shape = (3, 200, 10) if passes else (200, 10)
    whole = np.random.default_rng(0).dirichlet(np.ones(10), shape[:-1])
    broken = whole.copy()
    broken[..., -1, 4] = math.nan
    alone = score(acquisition, whole, task=task)
    for array in (broken, np.asfortranarray(broken), np.asfortranarray(whole)):
        beside = score(acquisition, array, task=task)
        order = "C" if array.flags.c_contiguous else "F"
        assert beside[:-1] == approx(alone[:-1], rel=1e-12), order
        assert order == "F" or (beside[:-1] == alone[:-1]).all()
    assert score(acquisition, broken, task=task)[-1] == 0


def test_bald_is_zero_where_passes_agree():
    agreed = rows([0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3], [1, 0, 0])
    for task in Task:
        scores = score(Acquisition.BALD, np.stack([agreed] * 5), task=task)
        assert scores == approx([0, 0, 0], abs=1e-12)
    # Entropy wants the second most, whether or not more passes would ever settle it.
    assert score(Acquisition.ENTROPY, agreed).argmax() == 1


def test_bald_equals_a_plain_loop():
    passes = np.random.default_rng(0).dirichlet(np.ones(4), size=(6, 5))
    single, multi = [], []
    for i in range(5):
        within = sum(entropy_by_loop(passes[m, i]) for m in range(6)) / 6
        single.append((entropy_by_loop(passes[:, i].mean(axis=0)) - within) / math.log(4))
        labels = []
        for c in range(4):
            sigmoids = passes[:, i, c]
            within = sum(entropy_by_loop([s, 1 - s]) for s in sigmoids) / 6
            mean = sigmoids.mean()
            labels.append((entropy_by_loop([mean, 1 - mean]) - within) / math.log(2))
        multi.append(sum(labels) / 4)
    assert score(Acquisition.BALD, passes) == approx(single)
    assert score(Acquisition.BALD, passes, task=MULTI) == approx(multi)
    assert min(single) > 0.05


def test_the_clip_is_what_makes_ties():
    probabilities = np.random.default_rng(1).dirichlet(np.full(10, 20.0), size=50)
    assert np.unique(score(Acquisition.ENTROPY, probabilities)).size == 1
    assert np.unique(score(Acquisition.ENTROPY, probabilities, clipped=False)).size == 50


def test_random_selection_has_no_score():
    for task in Task:
        with pytest.raises(ParameterError, match="not score"):
            score(Acquisition.RANDOM, rows([0.5, 0.5]), task=task)


def test_margin_is_refused_for_several_labels():
    with pytest.raises(ParameterError, match=r"margin .*multi_label"):
        score(Acquisition.MARGIN, rows([0.5, 0.5]), task=MULTI)


@pytest.mark.parametrize(
    ("acquisition", "shape", "sentence"),
    [
        (Acquisition.BALD, (4, 3), r"of shape \(passes, n, classes\), got \(4, 3\)"),
        (Acquisition.ENTROPY, (2, 4, 3), r"of shape \(n, classes\), got \(2, 4, 3\)"),
    ],
)
def test_arrays_that_do_not_fit_are_said(acquisition, shape, sentence):
    with pytest.raises(ParameterError, match=sentence):
        score(acquisition, np.full(shape, 0.5))


@pytest.mark.parametrize(
    ("acquisition", "shape", "parameter"),
    [(Acquisition.BALD, (1, 4, 3), "passes"), (Acquisition.MARGIN, (4, 1), "classes")],
)
def test_one_pass_and_one_class_tell_nothing(acquisition, shape, parameter):
    with pytest.raises(ParameterError, check=having(parameter=parameter)):
        score(acquisition, np.full(shape, 0.5))


@pytest.mark.parametrize(("task", "acquisition"), ONE_PASS)
def test_no_records_have_no_scores(task, acquisition):
    assert score(acquisition, np.empty((0, 3)), task=task).shape == (0,)


def test_entropies_are_those_of_scipy_up_to_certainty():
    rows = np.random.default_rng(0).dirichlet(np.full(7, 0.01), size=1000)
    rows[0], rows[1] = np.eye(7)[3], 1 / 7
    assert (rows < np.finfo(np.float64).tiny).any()
    found = score(Acquisition.ENTROPY, rows, clipped=False)
    np.testing.assert_allclose(found, entr(rows).sum(axis=1) / math.log(7), rtol=0, atol=1e-14)
    assert found[0] == 0
