from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as oracle

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.training.label_metrics import (
    LabelFigures,
    average_precision,
    best_thresholds,
    label_figures,
)
from dpal.training.metrics import evaluation_metrics

# Printed by the published code of "Private Multi-Winner Voting" (commit 0afc971) as it is.
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "voting.json").read_text())
CASES = GOLDEN["metrics"]["cases"]

GRID = [0.0, 0.2, 0.5, 0.51, 0.8, 1.0]
shapes = st.tuples(st.integers(1, 25), st.integers(1, 5))


@st.composite
def predictions(draw: st.DrawFn, *, gaps: bool = True) -> tuple[Any, Any]:
    """Scores with many ties, and labels of which some are not known."""
    shape = draw(shapes)
    scores = draw(arrays(np.float64, shape, elements=st.sampled_from(GRID)))
    values = [0.0, 1.0, np.nan] if gaps else [0.0, 1.0]
    labels = draw(arrays(np.float64, shape, elements=st.sampled_from(values)))
    labels[0, 0] = draw(st.sampled_from([0.0, 1.0]))  # something is known
    return scores, labels


def columns(scores: Any, labels: Any) -> Any:
    """Each label's known records, as scikit-learn takes them."""
    for one, true in zip(scores.T, labels.T, strict=True):
        known = ~np.isnan(true)
        yield one[known], true[known].astype(int)


def at_half(scores: Any, labels: Any) -> LabelFigures:
    return label_figures(scores, labels, np.full(labels.shape[1], 0.5))


@pytest.mark.parametrize("case", CASES)
def test_figures_are_the_published_ones(case: Any) -> None:
    scores, labels = np.array(case["scores"]), np.array(case["targets"], dtype=np.float64)
    found, printed = at_half(scores, labels), case["out"]
    mean = found.averages()
    for name, ours in [("acc", "acc"), ("balanced_acc", "bac"), ("auc", "auc")]:
        assert getattr(found, ours) == pytest.approx(printed[f"{name}_detailed"], rel=1e-9)
        assert mean[ours] == pytest.approx(printed[name], rel=1e-9)
    for name, ours in [("pc", "cp"), ("rc", "cr"), ("fc", "cf1_mean")]:
        assert 100 * mean[ours] == pytest.approx(printed[name], rel=1e-9)
    for name, ours in [("po", "op"), ("ro", "or"), ("fo", "of1")]:
        assert 100 * mean[ours] == pytest.approx(printed[name], rel=1e-9)
    if len(np.unique(scores)) == scores.size:  # its AP of tied scores depends on their order
        # It divides by the number of positives + 1e-8.
        guarded = found.average_precision * found.positives / (found.positives + 1e-8)
        assert guarded == pytest.approx(printed["map_detailed"], rel=1e-12)
        assert mean["map"] == pytest.approx(printed["map"], rel=1e-8)
    else:
        # What the released answers' AUC says, their balanced accuracy says already.
        assert found.auc == pytest.approx(found.bac)


def test_the_golden_file_has_cases_with_gaps_and_with_ties() -> None:
    assert [len(np.unique(case["scores"])) for case in CASES] == [160, 160, 2]
    assert any(None in row for row in CASES[1]["targets"])


@settings(max_examples=25, deadline=None)
@given(predictions(), st.lists(st.sampled_from(GRID), min_size=5, max_size=5))
def test_figures_are_scikit_learns(pair: Any, cuts: list[float]) -> None:
    scores, labels = pair
    thresholds = np.array(cuts[: labels.shape[1]])
    found, ranked = label_figures(scores, labels, thresholds), 0
    for label, (one, true) in enumerate(columns(scores, labels)):
        said, got = (one > thresholds[label]).astype(int), {}
        if true.size:
            got = {
                "acc": oracle.accuracy_score(true, said),
                "precision": oracle.precision_score(true, said, zero_division=0),
                "recall": oracle.recall_score(true, said, zero_division=0),
                "f1": oracle.f1_score(true, said, zero_division=0),
            }
        if true.size and 0 < true.mean() < 1:
            ranked += 1
            got["bac"] = oracle.balanced_accuracy_score(true, said)
            got["auc"] = oracle.roc_auc_score(true, one)
            got["average_precision"] = oracle.average_precision_score(true, one)
        for name in ("acc", "precision", "recall", "f1", "bac", "auc", "average_precision"):
            value = getattr(found, name)[label]
            assert value == pytest.approx(got.get(name, np.nan), nan_ok=True)
    mean = found.averages()
    assert mean["ranked_labels"] == ranked
    assert ("auc" in mean) == ("bac" in mean) == ("map" in mean) == (ranked > 0)
    assert all(0 <= value <= 1 for name, value in mean.items() if name != "ranked_labels")
    if ranked:
        assert mean["map"] == pytest.approx(np.nanmean(found.average_precision))


@settings(max_examples=40, deadline=None)
@given(predictions(gaps=False))
def test_all_labels_together_are_scikit_learns_micro_figures(pair: Any) -> None:
    scores, labels = pair
    mean, true, said = at_half(scores, labels).averages(), labels.ravel(), scores.ravel() > 0.5
    assert mean["op"] == pytest.approx(oracle.precision_score(true, said, zero_division=0))
    assert mean["or"] == pytest.approx(oracle.recall_score(true, said, zero_division=0))
    assert mean["of1"] == pytest.approx(oracle.f1_score(true, said, zero_division=0))
    # The same numbers as a campaign shows, where both have them.
    shown = evaluation_metrics(Task.MULTI_LABEL, scores, labels.astype(np.int64))
    assert mean["of1"] == pytest.approx(shown["micro_f1"])
    assert mean["cf1_mean"] == pytest.approx(shown["macro_f1"])
    assert mean.get("auc") == pytest.approx(shown.get("macro_auc"))


@settings(max_examples=40, deadline=None)
@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_records_changes_nothing(pair: Any, rng: Any) -> None:
    scores, labels = pair
    order = list(range(len(scores)))
    rng.shuffle(order)
    first, second = at_half(scores, labels), at_half(scores[order], labels[order])
    assert first.averages() == second.averages()
    for per_label in (True, False):
        once = best_thresholds(scores, labels, per_label=per_label)
        again = best_thresholds(scores[order], labels[order], per_label=per_label)
        assert once == pytest.approx(again, rel=0, abs=0)


def test_two_conventions_of_cf1_differ() -> None:
    scores = np.array([[0.9, 0.9], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]])
    labels = np.array([[1.0, 1], [0, 0], [1, 1], [0, 0]])
    mean = at_half(scores, labels).averages()
    # By hand: precision 1 and 1/3, recall 1 and 1/2, F1 1 and 2/5.
    assert mean["cf1_mean"] == pytest.approx(0.7)
    assert mean["cf1_harmonic"] == pytest.approx(2 * (2 / 3) * 0.75 / (2 / 3 + 0.75))


def test_equal_scores_are_one_step_of_the_average_precision() -> None:
    assert average_precision(np.full(4, 0.5), np.array([True, False, False, True])) == 0.5
    assert average_precision(np.array([0.9, 0.1]), np.array([True, False])) == 1.0


def test_labels_without_a_ranking_are_left_out_and_counted() -> None:
    scores = np.array([[0.9, 0.2, 0.7, 0.1], [0.1, 0.3, 0.8, 0.2]])
    labels = np.array([[1.0, 0, 1, np.nan], [0, 0, 1, np.nan]])  # usual, never, always, unknown
    found = at_half(scores, labels)
    assert found.ranked.tolist() == [True, False, False, False]
    assert np.isnan(found.auc).tolist() == [False, True, True, True]
    mean = found.averages()
    assert (mean["auc"], mean["map"], mean["bac"], mean["ranked_labels"]) == (1, 1, 1, 1)
    assert mean["acc"] == 1.0  # over the three labels that are known
    assert mean["cr"] == pytest.approx(2 / 3)  # as everywhere: what never occurs has recall 0


def test_diverged_scores_count_as_nought() -> None:
    labels = np.array([[1.0, 0], [0, 1]])
    broken = at_half(np.array([[np.nan, 0.2], [0.1, np.inf]]), labels)
    assert broken.averages() == at_half(np.array([[0.0, 0.2], [0.1, 0.0]]), labels).averages()


def balanced(scores: Any, labels: Any, thresholds: Any) -> float:
    """Mean balanced accuracy of the labels that have one."""
    return label_figures(scores, labels, thresholds).averages().get("bac", 0.5)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(predictions())
def test_no_threshold_is_better_than_the_best(pair: Any) -> None:
    scores, labels = pair
    count = labels.shape[1]
    tried = [np.full(count, cut) for cut in [-0.1, *GRID, 0.1, 0.35, 0.505, 0.6, 0.9]]
    one, each = (best_thresholds(scores, labels, per_label=split) for split in (False, True))
    assert len(set(one)) == 1
    best = max(balanced(scores, labels, cut) for cut in tried)
    assert balanced(scores, labels, one) == pytest.approx(best, abs=1e-12)
    found = label_figures(scores, labels, each)
    for label in np.flatnonzero(found.ranked):
        others = [label_figures(scores, labels, cut).bac[label] for cut in tried]
        assert found.bac[label] == pytest.approx(max(others), abs=1e-12)
    assert (each[~found.ranked] == 0.5).all()


def test_thresholds_lie_midway_and_unusable_labels_keep_theirs() -> None:
    nan = np.nan
    scores = np.array([[0.1, 0.3, 0.9], [0.2, 0.1, 0.8], [0.6, 0.9, 0.7], [0.7, 0.5, 0.1]])
    labels = np.array([[0.0, 0, 1], [0, nan, 1], [1, 1, 1], [1, 1, nan]])
    assert best_thresholds(scores, labels, per_label=True) == pytest.approx([0.4, 0.4, 0.5])
    assert best_thresholds(scores, labels, per_label=False) == pytest.approx([0.4] * 3)
    nothing = best_thresholds(scores, np.ones((4, 3)), per_label=False)
    assert nothing.tolist() == [0.5] * 3


def test_neighbours_of_floating_point_are_parted() -> None:
    low = 0.3
    scores = np.array([[low], [np.nextafter(low, 1)]])
    labels = np.array([[0], [1]])
    threshold = best_thresholds(scores, labels, per_label=True)
    assert balanced(scores, labels, threshold) == 1.0


def test_scores_that_are_the_wrong_way_round_are_no_better_than_chance() -> None:
    scores, labels = np.array([[0.9], [0.1]]), np.array([[0.0], [1.0]])
    for per_label in (True, False):
        threshold = best_thresholds(scores, labels, per_label=per_label)
        assert balanced(scores, labels, threshold) == 0.5
    same = best_thresholds(np.full((2, 1), 0.2), labels, per_label=True)
    assert same.tolist() == [0.5]  # nothing to choose by


def test_what_cannot_be_judged_is_refused() -> None:
    half, ones = np.full(2, 0.5), np.ones((3, 2))
    for labels in (np.ones((3, 1)), np.ones(3), np.ones((2, 2))):
        with pytest.raises(ParameterError, match="judge scores"):
            label_figures(ones, labels, half)
    with pytest.raises(ParameterError, match="judge scores"):
        best_thresholds(np.ones((0, 2)), np.ones((0, 2)), per_label=True)
    with pytest.raises(ParameterError, match="0, 1 or NaN"):
        label_figures(ones, 2 * ones, half)
    for thresholds in (np.full(3, 0.5), np.array([0.5, np.nan])):
        with pytest.raises(ParameterError, match="one number for each"):
            label_figures(ones, ones, thresholds)
    with pytest.raises(ParameterError, match="to judge"):
        label_figures(ones, np.full((3, 2), np.nan), half)
