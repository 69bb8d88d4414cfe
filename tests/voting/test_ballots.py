"""Ballots are packed and read back, clipped as charged, counted, and refused in one sentence."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataError, DpalError
from dpal.voting.ballots import Ballots, Choices, cast_of, require_fitting, truncated, votes_for
from dpal.voting.draw_noisy_outcomes import release
from tests.conftest import RepeatableBits, nothing_released, owner_reads

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden" / "voting.json").read_text(encoding="utf-8")
)["analyses"]["inputs"]["ballots_40x50x5"]


def rule(mechanism: Mechanism, teachers: int, labels: int, limit: float | None = None):
    return VotingRule(mechanism=mechanism, teachers=teachers, labels=labels, sigma=1.0, limit=limit)


@st.composite
def votes(draw: st.DrawFn):
    shape = draw(st.tuples(st.integers(0, 6), st.integers(3, 9), st.integers(1, 20)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.random(shape) < draw(st.floats(0, 1))


@given(votes(), st.sampled_from([bool, np.int8, np.int64, np.float32, np.float64]))
def test_packing_loses_nothing(said, kind):
    ballots = Ballots.of(said.astype(kind))
    assert (ballots.queries, ballots.teachers, ballots.labels) == said.shape
    assert ballots.packed.shape[2] == -(-said.shape[2] // 8)
    assert np.array_equal(ballots.unpacked(), said)
    assert np.array_equal(ballots.rows(slice(1, 3)).unpacked(), said[1:3])
    parts = [part.unpacked() for part in ballots.parts()]
    assert not parts or np.array_equal(np.concatenate(parts), said)


def test_packed_ballots_are_small_and_so_is_counting():
    said = np.random.default_rng(1).random((20_000, 50, 20)) < 0.1
    ballots = Ballots.of(said)
    assert ballots.packed.nbytes == 20_000 * 50 * 3  # instead of 20 bytes for 20 labels
    binary = rule(Mechanism.BINARY, 50, 20)
    tracemalloc.start()
    counts = ballots.counts(binary)
    ballots.sets(rule(Mechanism.POWERSET, 50, 20))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(counts, said.sum(axis=1))
    assert most < 200e6  # one part at a time: 2^24 votes, and numbers of eight bytes for sets


@settings(max_examples=60)
@given(votes(), st.floats(1, 5))
def test_scaled_ballots_have_the_norm_that_is_charged(said, limit):
    queries, teachers, labels = said.shape
    for mechanism, order in ((Mechanism.TAU_L1, 1), (Mechanism.TAU_L2, 2)):
        norms = np.linalg.norm(said.astype(float), ord=order, axis=2, keepdims=True)
        scaled = said * np.minimum(1, limit / np.maximum(norms, 1e-9))
        counts = Ballots.of(said).counts(rule(mechanism, teachers, labels, limit))
        assert counts.shape == (queries, labels)
        assert_allclose(counts, scaled.sum(axis=1), rtol=1e-12)


@settings(max_examples=60)
@given(votes(), st.integers(1, 20))
def test_truncated_ballots_keep_their_first_labels(said, limit):
    limit = min(limit, said.shape[2])
    short = truncated(said.astype(np.uint8), limit)
    assert np.all(short.sum(axis=2) == np.minimum(said.sum(axis=2), limit))
    assert np.all(short <= said)
    for ballot, kept in zip(
        said.reshape(-1, said.shape[2]), short.reshape(-1, said.shape[2]), strict=True
    ):
        assert np.array_equal(np.flatnonzero(kept), np.flatnonzero(ballot)[:limit])
    most = rule(Mechanism.TOP_M, said.shape[1], said.shape[2], float(limit))
    assert np.array_equal(Ballots.of(said).counts(most), short.sum(axis=1))
    # Sets beyond a powerset's limit are truncated likewise.
    sets = rule(Mechanism.POWERSET, said.shape[1], said.shape[2], float(limit))
    whole = rule(Mechanism.POWERSET, said.shape[1], said.shape[2])
    assert np.array_equal(Ballots.of(said).sets(sets).codes, Ballots.of(short).sets(whole).codes)


def test_sets_are_the_published_ones():
    places = np.arange(GOLDEN["labels"] - 1, -1, -1)
    ballots = Ballots.of((np.array(GOLDEN["ballots_as_ints"])[:, :, None] >> places) & 1)
    cast = ballots.sets(rule(Mechanism.POWERSET, 50, 5))
    for row, histogram in enumerate(GOLDEN["powerset_histograms_official"]):
        found = np.zeros(32, dtype=int)
        np.add.at(found, cast.codes[row].astype(int), cast.votes[row])
        assert found.tolist() == histogram


@given(st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5), max_size=4))
def test_equal_sets_are_counted_together(rows):
    cast = cast_of(np.array(rows, dtype=np.uint64).reshape(-1, 5))
    for codes, counts, row in zip(cast.codes, cast.votes, rows, strict=True):
        used = counts > 0
        assert dict(zip(codes[used].tolist(), counts[used].tolist(), strict=True)) == {
            one: row.count(one) for one in row
        }
        assert not used[used.argmin() :].any() or used.all()  # the first columns


def test_sixty_two_labels_fit_into_a_number():
    said = np.zeros((1, 3, 62), dtype=bool)
    said[0, 0, 0] = said[0, 1, 61] = True
    cast = Ballots.of(said).sets(rule(Mechanism.POWERSET, 3, 62))
    assert cast.codes[0].tolist() == [0, 1, 1 << 61]


def test_classes_are_counted():
    chosen = np.array([[0, 2, 2, 1], [3, 3, 3, 3]])
    choices = Choices(chosen, 4)
    classes = rule(Mechanism.GNMAX, 4, 4)
    assert votes_for(classes, choices).tolist() == [[1, 1, 2, 0], [0, 0, 0, 4]]
    assert votes_for(classes, choices.rows(slice(1, 2))).tolist() == [[0, 0, 0, 4]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.nan, "teacher 1 on query 0 has no"),
        (2, "query 0 has 2.0 for label 1"),
        (-1, "query 0 has -1.0 for label 1"),
        (0.5, "has 0.5 for label 1"),
        (np.inf, "has inf for label 1"),
    ],
)
def test_what_is_no_vote_is_refused(wrong, says):
    said = np.zeros((2, 4, 3))
    said[0, 1, 1] = wrong
    with owner_reads(DataError, match=says) as refusal:
        Ballots.of(said)
    one_sentence(refusal.value)


def one_sentence(error: DpalError) -> None:
    text = str(error)
    assert nothing_released(error)
    assert "\n" not in text and ". " not in text and len(text) < 200


@pytest.mark.parametrize(
    "votes",
    [
        np.array([[["yes"] * 2] * 3]),
        np.array([[[b"1", b"0"]] * 3]),
        np.array([[[None, 1]] * 3], dtype=object),
        np.array([[[1 + 0j, 0]] * 3]),
        np.zeros((4, 2, 3)),
        np.zeros((4, 0, 3)),
        np.zeros((4, 3, 0)),
        np.zeros((4, 3)),
        np.zeros(4),
        np.zeros((1, 1, 3, 2)),
    ],
    ids=lambda one: f"{one.dtype.kind}{one.shape}",
)
def test_what_is_no_ballot_is_refused(votes):
    with pytest.raises(DataError) as refusal:
        Ballots.of(votes)
    one_sentence(refusal.value)


@pytest.mark.parametrize(
    ("mechanism", "ballots"),
    [
        (Mechanism.BINARY, Ballots.of(np.zeros((2, 5, 4)))),
        (Mechanism.BINARY, Ballots.of(np.zeros((2, 4, 3)))),
        (Mechanism.POWERSET, Ballots.of(np.zeros((2, 5, 4)))),
        (Mechanism.GNMAX, Choices(np.zeros((2, 4), dtype=int), 5)),
        (Mechanism.GNMAX, Ballots.of(np.zeros((2, 5, 3)))),
        (Mechanism.BINARY, Choices(np.zeros((2, 5), dtype=int), 3)),
    ],
)
def test_ballots_of_others_are_refused(mechanism, ballots):
    wanted = rule(mechanism, 5, 3)
    for ask in (
        lambda: require_fitting(wanted, ballots),
        lambda: release(wanted, ballots, rng=RepeatableBits(1)),
    ):
        with pytest.raises(DataError) as refusal:
            ask()
        one_sentence(refusal.value)


@pytest.mark.parametrize("chosen", [[[0, 1, 5]], [[0, -1, 2]], [[0, 1]], [0, 1, 2]])
def test_what_is_no_class_is_refused(chosen):
    with pytest.raises(DataError) as refusal:
        Choices(np.array(chosen), 4)
    one_sentence(refusal.value)
