"""Figures on protected groups: what a whole group moves, and what intervals cover."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy.special import expit

from dpal.accounting.events import NoisyFigures
from dpal.accounting.validation_count_sensitivity import MeasuredCounts
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.privacy import Adjacency
from dpal.training.headline_variance import SpreadUnit, spread_of
from dpal.training.metrics import headline_terms
from dpal.training.noisy_metrics import confusion_counts, label_counts
from dpal.training.noisy_validation_counts import (
    ReleasedCounts,
    draw_counts,
    further_figures,
    headline_of,
)
from dpal.training.score_histograms import score_counts
from tests.variants import quick_and_slow

CLASSES = 2
UNITS = [SpreadUnit(figure=f, square=s) for f, s in product((0.0, 0.6, 1.0), (0.01, 1.0, 30.0))]


def contents(task: Task, labels: int):
    """Everything that one record can be."""
    single = task is Task.SINGLE_LABEL
    trues = range(CLASSES) if single else product((-1, 0, 1), repeat=labels)
    for true in trues:
        for said in product((0.1, 0.9), repeat=1 if single else labels):
            yield (1 - said[0], said[0]) if single else said, true


def moved(task, group, counted, unit):
    """All that a group adds to what leaves: counts, histograms, and its share of the spread."""
    said, true = (np.array(column) for column in zip(*group, strict=True))
    single = task is Task.SINGLE_LABEL
    parts = [(confusion_counts if single else label_counts)(said, true).ravel()]
    if counted.auc:
        columns = (said[:, 1:], true[:, None]) if single else (said, true)
        parts.append(score_counts(*columns).ravel())
    hits, whole = headline_terms(task, said, true)
    owners = np.zeros(len(group), np.int64)
    spread = spread_of(hits, whole, unit, owners=owners)
    return np.append(np.concatenate(parts).astype(float), spread)


CASES = [
    (*case, auc, adjacency)
    for case in (
        (Task.SINGLE_LABEL, 1, 2),
        (Task.SINGLE_LABEL, 1, 3),
        (Task.MULTI_LABEL, 1, 2),
        (Task.MULTI_LABEL, 2, 2),
    )
    for auc in (False, True)
    for adjacency in Adjacency
]
LONG = (Adjacency.REPLACE_ONE, 2)  # all pairs of groups, with two labels


@pytest.mark.parametrize(
    ("task", "labels", "most", "auc", "adjacency"),
    quick_and_slow([one for one in CASES if (one[-1], one[1]) != LONG], CASES),
)
def test_a_whole_group_moves_as_much_as_is_paid_for(adjacency, auc, task, labels, most):
    """All groups of up to so many records, against nobody or against all others."""
    counted = MeasuredCounts(labels=labels, auc=auc, group_records=most)
    bound, everything = counted.squared_sensitivity(adjacency), list(contents(task, labels))
    groups = [
        group
        for size in range(1, most + 1)
        for group in combinations_with_replacement(everything, size)
    ]
    farthest, farthest_spread = 0.0, 0.0
    for unit in UNITS:
        vectors = np.array([moved(task, group, counted, unit) for group in groups])
        worlds = vectors if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, vectors.shape[1]))
        for other in worlds:
            squares = (vectors - other) ** 2
            assert squares.sum(axis=1).max() <= bound + 1e-9
            farthest = max(farthest, squares[:, :-1].sum(axis=1).max())
            farthest_spread = max(farthest_spread, squares[:, -1].max())
    assert farthest == bound - 1
    assert farthest_spread == pytest.approx(1.0)


def test_one_record_of_each_group_is_measured_as_a_record():
    alone = MeasuredCounts(labels=3)
    assert MeasuredCounts(labels=3, group_records=1) == alone
    assert not MeasuredCounts(labels=1, group_records=1).has_spread
    assert MeasuredCounts(labels=1, group_records=4).squared_sensitivity(Adjacency.ZERO_OUT) == 17


def drawn(rng, groups, *, most, together):
    """Records of two classes in groups of one to so many, which are right and wrong together."""
    sizes = rng.integers(1, most + 1, groups)
    owners = np.repeat(np.arange(groups), sizes)
    common, own = rng.normal(size=groups)[owners], rng.normal(size=owners.size)
    ease = np.sqrt(together) * common + np.sqrt(1 - together) * own
    labels = (rng.random(groups) < 0.5).astype(np.int64)[owners]
    share = expit((2 * labels - 1) * (ease + 0.84))  # right in 80 of 100
    return np.stack([1 - share, share], axis=1), labels, owners


def covered(bits, *, draws, groups, most, together, noise, task, forget_groups=False):
    """Share of intervals of the headline that hold it, and the least share of other figures'."""
    rng, single = np.random.default_rng(8), task is Task.SINGLE_LABEL
    counted = MeasuredCounts(labels=1, group_records=most)
    event = NoisyFigures(
        noise_multiplier=noise, counts_moved=counted.squared_sensitivity(Adjacency.ZERO_OUT)
    )

    def answers(number):
        said, true, owners = drawn(rng, number, most=most, together=together)
        return (said, true, owners) if single else (said[:, 1:], true[:, None], owners)

    said, true, _ = answers(300_000)
    hits, whole = headline_terms(task, said, true)
    exact = hits.sum() / whole.sum()
    recall = 0.0 if single else float((said[true == 1] > 0.5).mean())
    held, of_recall = 0, 0
    for _ in range(draws):
        said, true, owners = answers(groups)
        told = draw_counts(said, true, event, task=task, counted=counted, owners=owners, rng=bits)
        if forget_groups:
            told = ReleasedCounts(records=told.records, noise=told.noise, counts=told.counts)
        _, interval = headline_of(told)
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
        held += interval.low <= exact <= interval.high
        of_recall += sum(one.low <= recall <= one.high for _, one in further_figures(told))
    return held / draws, of_recall / draws


# 93 to 97 %: intervals that hold with chance 0.95 miss that once in 250 times at 1,000 draws;
# draws are seeded. Recalls take records of a group as one, and may hold more often.
@pytest.mark.slow
@pytest.mark.parametrize("task", Task)
def test_intervals_cover_what_they_say_where_records_go_together(bits, task):
    held, of_recall = covered(
        bits, draws=1000, groups=600, most=5, together=0.7, noise=1.0, task=task
    )
    assert 0.93 <= held <= 0.97
    assert of_recall >= 0.95 or task is Task.SINGLE_LABEL


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize(("together", "noise"), [(0.0, 2.0), (0.95, 0.5), (0.5, 8.0)])
def test_intervals_cover_what_they_say_in_other_places(bits, task, together, noise):
    held, _ = covered(
        bits, draws=4000, groups=1000, most=4, together=together, noise=noise, task=task
    )
    assert 0.93 <= held <= 0.97


def test_intervals_that_take_records_for_independent_are_found_out(bits):
    held, _ = covered(
        bits,
        draws=400,
        groups=1000,
        most=10,
        together=0.9,
        noise=0.05,
        task=Task.SINGLE_LABEL,
        forget_groups=True,
    )
    assert held < 0.8


def test_more_records_of_a_group_than_are_paid_for_are_not_counted(bits):
    rng = np.random.default_rng(1)
    said, true, owners = drawn(rng, 20, most=3, together=0.5)
    event = NoisyFigures(noise_multiplier=1.0, counts_moved=5)
    task, counted = Task.SINGLE_LABEL, MeasuredCounts(labels=1, group_records=2)
    for whose in (owners, None):
        with pytest.raises(ParameterError):
            draw_counts(said, true, event, task=task, counted=counted, owners=whose, rng=bits)


def test_what_is_written_of_groups_is_read_again(bits):
    said, true, owners = drawn(np.random.default_rng(1), 20, most=3, together=0.5)
    event = NoisyFigures(noise_multiplier=1.0, counts_moved=10)
    counted = MeasuredCounts(labels=1, group_records=3)
    task = Task.SINGLE_LABEL
    told = draw_counts(said, true, event, task=task, counted=counted, owners=owners, rng=bits)
    assert (told.groups, told.group_records) == (20, 3)
    again = ReleasedCounts.from_json(told.to_json())
    assert headline_of(again) == headline_of(told)
