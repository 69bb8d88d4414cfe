"""Ensembles are recognised by their ballots, whatever their teachers are called."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from dpal.voting.ballots import Ballots, Choices
from dpal.voting.same_ensemble import Recognition, recognised

TRUTH_SEED, TEACHERS = 7, 20
NOTHING, ALIKE, SAME = Recognition


def votes(seed: int, *, queries: int = 30, wrong: float = 0.1) -> NDArray[np.uint8]:
    """Good teachers of one task: a seed is an ensemble."""
    truth = np.random.default_rng(TRUTH_SEED).random((queries, 1, 5)) < 0.4
    errors = np.random.default_rng(seed).random((queries, TEACHERS, 5)) < wrong
    return (truth ^ errors).astype(np.uint8)


def ids(start: int, stop: int) -> list[str]:
    return [f"q-{query}" for query in range(start, stop)]


def compared(mine: NDArray[np.uint8], theirs: NDArray[np.uint8], *, first: int = 0) -> Recognition:
    """Of ballots on queries from 0 on, and of others on queries from `first` on."""
    asked = ids(0, len(mine)), Ballots.of(mine)
    return recognised(asked, [(ids(first, first + len(theirs)), Ballots.of(theirs))])


def test_the_same_teachers_are_recognised_in_any_order():
    said = votes(1)
    order = np.random.default_rng(0).permutation(TEACHERS)
    assert compared(said, said) is SAME
    assert compared(said, said[:, order]) is SAME
    shuffled = np.random.default_rng(0).permutation(30)
    one = ids(0, 30), Ballots.of(said)
    other = [ids(0, 30)[at] for at in shuffled], Ballots.of(said[shuffled][:, order])
    assert recognised(one, [other]) is SAME


def test_another_ensemble_of_the_same_task_is_not():
    assert compared(votes(1), votes(2)) is NOTHING


@pytest.mark.parametrize(
    ("kept", "finding"), [(20, SAME), (16, SAME), (14, ALIKE), (11, ALIKE), (8, NOTHING)]
)
def test_a_list_with_some_teachers_more_or_fewer(kept, finding):
    """20 teachers, of whom some are replaced, left out or joined by others."""
    old, new = votes(1), votes(2)
    mixed = np.concatenate([old[:, :kept], new[:, kept:]], axis=1)
    assert compared(mixed, old) is compared(old, mixed) is finding
    fewer = compared(old[:, :kept], old)
    assert fewer is compared(old, old[:, :kept])
    # Few of many may be found by chance, and a person may say so.
    assert fewer is (SAME if kept >= 15 else ALIKE)


def test_only_shared_queries_count():
    said = votes(1)
    assert compared(said[:15], said[15:], first=15) is NOTHING
    assert compared(said[:20], said[15:], first=15) is SAME
    assert compared(said[:20], votes(2)[15:], first=15) is NOTHING


def test_few_or_easy_queries_tell_good_ensembles_apart_from_nobody():
    one, other = votes(1, wrong=0.002), votes(2, wrong=0.002)
    assert compared(one, other) is ALIKE
    assert compared(votes(1)[:1], votes(2)[:1]) is ALIKE
    small = votes(1)[:, :7]
    assert compared(small, small) is ALIKE  # of so few, all may be matched by chance


def test_shared_queries_may_lie_in_several_blocks():
    said, other = Ballots.of(votes(1)), Ballots.of(votes(2))
    asked = ids(0, 30), said
    each = [(ids(at, at + 1), said.rows(slice(at, at + 1))) for at in range(30)]
    assert recognised(asked, each) is SAME
    assert recognised(asked, each[:1]) is ALIKE
    # The same queries may have been asked before, with other answers.
    assert recognised(asked, [(ids(0, 30), other), asked]) is SAME
    assert recognised(asked, [asked, (ids(0, 30), other)]) is SAME
    assert recognised(asked, []) is NOTHING


def test_classes_are_compared_and_other_labels_are_not():
    rng = np.random.default_rng(1)
    one, other = (Choices(rng.integers(0, 3, (30, TEACHERS)), 3) for _ in range(2))
    assert recognised((ids(0, 30), one), [(ids(0, 30), one)]) is SAME
    assert recognised((ids(0, 30), one), [(ids(0, 30), other)]) is NOTHING
    wider = Choices(one.chosen, 4)
    assert recognised((ids(0, 30), one), [(ids(0, 30), wider)]) is NOTHING
    assert recognised((ids(0, 30), one), [(ids(0, 30), Ballots.of(votes(1)))]) is NOTHING


def test_different_ensembles_are_never_the_same_ones():
    """A false alarm of this test has a chance below 6 %, of the worst pairs; seeds are fixed.

    Of the worst kind, answers spread evenly over 1.5 to 2 times as many as there are teachers, none
    of 200,000 simulated pairs of 20 teachers was taken for the same: below 1.5e-5 at 95 %.
    """
    rng = np.random.default_rng(3)
    for spread in (30, 40):
        for _ in range(1_500):
            one, other = (Choices(rng.integers(0, spread, (1, TEACHERS)), spread) for _ in range(2))
            assert recognised((["q"], one), [(["q"], other)]) is not SAME
    found = [
        compared(
            votes(2 * at, queries=1 + at % 9, wrong=wrong),
            votes(2 * at + 1, queries=1 + at % 9, wrong=wrong),
        )
        for at in range(200)
        for wrong in (0.005, 0.02, 0.05, 0.1, 0.3)
    ]
    assert SAME not in found
    assert ALIKE in found and NOTHING in found
    same = [compared(votes(at, queries=9), votes(at, queries=9)[:, ::-1]) for at in range(200)]
    assert set(same) == {SAME}  # has power where teachers differ


def test_memory_does_not_grow_beyond_the_ballots():
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (4_000, 250, 8), dtype=np.uint8)
    said = ids(0, 4_000), Ballots(packed, 64)
    tracemalloc.start()
    try:
        assert recognised(said, [said, said]) is SAME
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * packed.nbytes
