from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.errors import ParameterError
from dpal.simulation.selection_quality import measure_selection

SCORES = np.array([0.1, 0.9, 0.5, 0.7, 0.3])  # true top 2: rows 1 and 3


def measured(chosen, *, query=2, scores=SCORES):
    return measure_selection(np.asarray(scores, float), np.asarray(chosen, np.int64), query=query)


def test_half_of_the_best_found():
    """Rows 1 and 2 where 1 and 3 are best: one in common, three in the union."""
    found = measured([2, 1])
    assert (found.selected, found.query) == (2, 2)
    assert found.hits == 1 / 2
    assert found.iou == 1 / 3
    assert found.mse == pytest.approx(((0.9 - 0.9) ** 2 + (0.7 - 0.5) ** 2) / 2)
    assert found.mean_score == pytest.approx((0.9 + 0.5) / 2)
    assert found.best_mean_score == pytest.approx((0.9 + 0.7) / 2)
    assert found.chance == 2 / 5


def test_all_and_none_of_the_best():
    best, worst = measured([3, 1]), measured([0, 4])
    assert (best.hits, best.iou, best.mse) == (1, 1, 0)
    assert best.mean_score == best.best_mean_score
    assert (worst.hits, worst.iou) == (0, 0)
    assert worst.mse == pytest.approx((0.6**2 + 0.6**2) / 2)  # 0.9 to 0.3, 0.7 to 0.1


def test_a_shortage_counts_among_the_selected_only_in_hits():
    """One of three bought, and it is the best: hits says yes, the union says a third."""
    found = measured([1], query=3)
    assert (found.selected, found.query, found.hits) == (1, 3, 1)
    assert found.iou == 1 / 3
    assert found.mse == 0  # beside the best one, not the best three


def test_nobody_selected_is_no_division_by_zero():
    found = measured([])
    assert (found.selected, found.hits, found.iou, found.mse, found.mean_score) == (0, 0, 0, 0, 0)


def test_ties_at_the_edge_share_its_places():
    """Top 2 of 0.9, 0.5, 0.5, 0.5: one place is left for three ties."""
    scores = [0.9, 0.5, 0.5, 0.5]
    assert measured([0, 3], scores=scores).hits == pytest.approx((1 + 1 / 3) / 2)
    assert measured([1, 3], scores=scores).hits == pytest.approx(2 / 3 / 2)
    # Two of three orders put one of the two into the top 2: one in common, three in the union.
    assert measured([1, 3], scores=scores).iou == pytest.approx(2 / 3 * 1 / 3)


@given(st.data())
def test_ties_are_worth_the_mean_over_all_orders(data):
    """Beside an enumeration of which of the tied records fill the last places."""
    scores = np.array(data.draw(st.lists(st.sampled_from([0.2, 0.5, 0.8]), min_size=1, max_size=7)))
    query = data.draw(st.integers(1, scores.size))
    chosen = data.draw(
        st.lists(st.integers(0, scores.size - 1), unique=True, min_size=1, max_size=query)
    )
    edge = np.sort(scores)[-query]
    above, ties = set(np.flatnonzero(scores > edge)), np.flatnonzero(scores == edge)
    tops = [above | set(rest) for rest in combinations(ties, query - len(above))]
    found = measured(chosen, query=query, scores=scores)
    common = [len(top & set(chosen)) for top in tops]
    assert found.hits == pytest.approx(np.mean(common) / len(chosen))
    unions = [len(top | set(chosen)) for top in tops]
    assert found.iou == pytest.approx(np.mean(np.divide(common, unions)))


def test_equal_scores_make_no_selection_look_good():
    found = measured([2, 3], scores=[0.5] * 10)
    assert found.hits == found.chance == 0.2


@pytest.mark.parametrize("query", [0, 6])
def test_a_query_outside_of_the_pool_is_refused(query):
    with pytest.raises(ParameterError, match="query"):
        measured([1], query=query)


@given(st.data())
def test_it_agrees_with_sets_where_no_scores_tie(data):
    size = data.draw(st.integers(1, 30))
    scores = np.array(data.draw(st.permutations(range(size))), float) / size
    query = data.draw(st.integers(1, size))
    chosen = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=query))
    best = set(np.argsort(scores)[-query:].tolist())
    found = measured(chosen, query=query, scores=scores)
    common = len(best & set(chosen))
    assert found.hits == (common / len(chosen) if chosen else 0)
    assert found.iou == common / len(best | set(chosen))
    assert found.best_mean_score == pytest.approx(scores[list(best)].mean())
