from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.acquisition import non_private_selection
from dpal.acquisition.non_private_selection import (
    NonPrivateSelection,
    Reference,
    badge,
    committee_disagreement,
    core_set,
    exact_top_k,
)
from dpal.errors import ParameterError
from dpal.randomness import seeded
from tests.conftest import having


def rng():
    return seeded(0, "badge")


def guesses(count: int, classes: int = 3, seed: int = 0):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=count)


def normal(*shape: int, seed: int = 0):
    return np.random.default_rng(seed).normal(size=shape)


def gradients(probabilities, features):
    """Last-layer gradients written out, shape (n, classes * d)."""
    believed = np.eye(probabilities.shape[1])[probabilities.argmax(axis=1)]
    return np.stack(
        [
            np.outer(p - e, h).ravel()
            for p, e, h in zip(probabilities, believed, features, strict=True)
        ]
    )


def test_every_selection_says_that_it_is_not_private():
    selections = [
        exact_top_k(normal(9), 4),
        core_set(normal(9, 2), normal(3, 2), 4),
        badge(guesses(9), normal(9, 2), 4, rng=rng()),
        committee_disagreement(np.stack([guesses(9), guesses(9, seed=1)]), 4),
    ]
    assert [selection.method for selection in selections] == list(Reference)
    for selection in selections:
        assert selection.note == "not private: for comparison on public or simulated data only"
        assert selection.note in repr(selection)
        assert selection.rows.dtype == np.int64
        assert len(set(selection.rows.tolist())) == 4
        with pytest.raises(FrozenInstanceError):
            selection.note = "private"  # type: ignore[misc]  # that is what is refused
    with pytest.raises(TypeError):
        NonPrivateSelection(rows=np.arange(2), method=Reference.BADGE, note="private")  # type: ignore[call-arg]


def test_top_k_by_hand():
    scores = np.array([0.1, 0.7, math.nan, 0.7, math.inf, 0.3])
    assert exact_top_k(scores, 3).rows.tolist() == [1, 3, 5]
    assert exact_top_k(scores, 6).rows.tolist() == [1, 3, 5, 0, 2, 4]  # broken ones last


def test_vote_entropy_by_hand():
    a, b, c = np.eye(3)
    votes = [
        [a, a, a, b],
        [a, a, b, b],
        [a, b, c, c],
        [a, a, a, a],
        [a, b, c, a * math.nan],
    ]
    committee = np.array(votes).transpose(1, 0, 2)
    # Entropies in units of log 3: .51, .63, .95, 0; the last has a broken member.
    assert committee_disagreement(committee, 5).rows.tolist() == [2, 1, 0, 3, 4]


@given(st.integers(0, 10_000))
def test_core_set_equals_its_definition(seed):
    pool, labeled = normal(12, 3, seed=seed), normal(4, 3, seed=seed + 1)
    centres, expected = list(labeled), []
    for _ in range(6):
        distances = [min(np.linalg.norm(x - centre) for centre in centres) for x in pool]
        expected.append(int(np.argmax(distances)))
        centres.append(pool[expected[-1]])
    assert core_set(pool, labeled, 6).rows.tolist() == expected


def test_core_set_covers_within_twice_the_optimum():
    """What greedy promises (Gonzalez 1985), against all subsets."""
    pool, labeled = normal(9, 2, seed=3), normal(2, 2, seed=4)

    def radius(rows):
        centres = np.concatenate([labeled, pool[list(rows)]])
        return np.linalg.norm(pool[:, None] - centres, axis=2).min(axis=1).max()

    best = min(radius(rows) for rows in combinations(range(9), 3))
    found = radius(core_set(pool, labeled, 3).rows)
    assert best <= found <= 2 * best


def test_core_set_does_not_depend_on_blocks_or_the_origin(monkeypatch):
    pool, labeled = normal(50, 3), normal(5, 3, seed=1)
    rows = core_set(pool, labeled, 10).rows
    monkeypatch.setattr(non_private_selection, "_BLOCK", 7)
    assert core_set(pool, labeled, 10).rows.tolist() == rows.tolist()
    # Far from the origin squares lose their digits, unless distances are taken near it.
    assert core_set(pool + 1e8, labeled + 1e8, 10).rows.tolist() == rows.tolist()


def test_duplicates_are_selected_once():
    same, labeled = np.ones((5, 2)), np.ones((1, 2))
    assert sorted(core_set(same, labeled, 5).rows.tolist()) == list(range(5))
    chosen = badge(np.full((5, 2), 0.5), same, 5, rng=rng())
    assert sorted(chosen.rows.tolist()) == list(range(5))


def test_badge_equals_seeding_on_gradients_written_out():
    probabilities, features = guesses(30, 4), normal(30, 5)
    written = gradients(probabilities, features)
    draw = rng()
    expected = [int(np.linalg.norm(written, axis=1).argmax())]
    while len(expected) < 8:
        squared = ((written[:, None] - written[expected]) ** 2).sum(axis=2).min(axis=1)
        expected.append(int(draw.choice(30, p=squared / squared.sum())))
    found = badge(probabilities, features, 8, rng=rng())
    assert found.rows.tolist() == expected


def test_badge_draws_in_proportion_to_squared_distances():
    """2000 draws of the second pick among three at squared distances 0, 1 and 4.

    A share of .8 has standard deviation .0089, so .044 is a 1e-6 alarm; distances that
    are not squared would give 2/3, uniform draws 1/2.
    """
    # Two classes at one half: a gradient is (-h, h) / 2, so distances are those of h.
    probabilities, features = np.full((3, 2), 0.5), np.array([[-3.0], [-2.0], [-1.0]])
    draw, second = rng(), np.zeros(3)
    for _ in range(2000):
        rows = badge(probabilities, features, 2, rng=draw).rows
        assert rows[0] == 0  # the longest gradient
        second[rows[1]] += 1
    assert second[0] == 0
    assert second[2] / 2000 == pytest.approx(0.8, abs=0.044)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ParameterError, match=r"4 records .*3 are"):
        exact_top_k(np.zeros(3), 4)
    with pytest.raises(ParameterError, check=having(parameter="count")):
        core_set(normal(3, 2), normal(1, 2), 0)
    with pytest.raises(ParameterError, check=having(parameter="labeled_records")):
        core_set(normal(3, 2), np.empty((0, 2)), 1)
    with pytest.raises(ParameterError, match=r"2 rows .*fit 3"):
        badge(guesses(3), normal(2, 2), 1, rng=rng())
    with pytest.raises(ParameterError, match="not finite"):
        badge(guesses(3), np.full((3, 2), math.nan), 1, rng=rng())
    with pytest.raises(ParameterError, check=having(parameter="members")):
        committee_disagreement(guesses(3)[None], 1)
