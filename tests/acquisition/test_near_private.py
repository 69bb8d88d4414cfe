"""Votes of private records: what one record can change, exhaustively on small data."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from dpal.acquisition.near_private import Poll, choose_supported, count_votes
from dpal.acquisition.principal_projection import Projection
from dpal.acquisition.public_choice import Candidates, ModelOutputs
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import Uncertainty, Voters

# Three public candidates on a line, and what a record can be: certain or unsure, near any of
# them, or blank. The blank record of zero-out adjacency has no finite logits and no vote.
PLACES = (0.0, 1.0, 2.0)
GAPS = (0.1, 1.0, 3.0)  # between the two logits: unsure to certain; candidates are at 1.0
BLANK = None
CONTENTS = (BLANK, *product(PLACES, GAPS))
RECORDS = 3


def poll(voters: Voters) -> Poll:
    return Poll(
        candidates=Candidates(
            rows=np.arange(2),
            uncertainty=np.array([-0.5, -1.0]),
            embeddings=np.array([[0.0], [1.6]]),
            predicted=np.zeros(2, dtype=np.int64),
        ),
        projection=Projection(np.zeros(1), np.eye(1)),
        kind=Uncertainty.MARGIN,
        voters=voters,
        task=Task.SINGLE_LABEL,
    )


def seen(contents) -> ModelOutputs:
    embeddings = np.array([[np.nan if one is None else one[0]] for one in contents])
    gaps = np.array([np.nan if one is None else one[1] for one in contents])
    logits = np.stack([gaps, np.zeros(len(contents))], axis=1)
    return ModelOutputs(np.arange(len(contents)), embeddings, logits)


def every_data_set():
    """All multisets of contents, in one order each, and as many blanks as there may be."""
    return product(range(len(CONTENTS)), repeat=RECORDS)


@pytest.fixture(scope="module", params=list(Voters))
def counted(request):
    """Votes of every data set there is: 10^3 of them."""
    asked = poll(request.param)
    votes = {
        numbers: count_votes(asked, [seen([CONTENTS[number] for number in numbers])])
        for numbers in every_data_set()
    }
    return request.param, votes


def moved(votes, *, to_blank: bool) -> int:
    """The most that the counts change, in L1, over all pairs of neighbours."""
    most = 0
    for numbers, counts in votes.items():
        for at in range(RECORDS):
            for other in (0,) if to_blank else range(len(CONTENTS)):
                neighbour = (*numbers[:at], other, *numbers[at + 1 :])
                most = max(most, int(np.abs(counts - votes[neighbour]).sum()))
    return most


def test_blanking_a_record_moves_as_many_counts_as_are_charged(counted):
    voters, votes = counted
    # Exactly: with the k most uncertain voting, another one comes in, and 1 would be too little.
    assert moved(votes, to_blank=True) == {Voters.THRESHOLD: 1, Voters.TOP_K: 2}[voters]


def test_replacing_a_record_moves_two_counts(counted):
    _, votes = counted
    assert moved(votes, to_blank=False) == 2


def test_no_count_moves_by_more_than_one(counted):
    # The charge is of independent counts that move by one each, not of one that moves by two.
    _, votes = counted
    for numbers, counts in votes.items():
        for at in range(RECORDS):
            neighbour = (*numbers[:at], 0, *numbers[at + 1 :])
            assert np.abs(counts - votes[neighbour]).max() <= 1


def test_batches_make_no_difference():
    generator = np.random.default_rng(3)
    contents = [CONTENTS[one] for one in generator.integers(0, len(CONTENTS), 200)]
    whole = seen(contents)
    parts = [
        ModelOutputs(
            whole.rows[at : at + 7], whole.embeddings[at : at + 7], whole.logits[at : at + 7]
        )
        for at in range(0, 200, 7)
    ]
    for voters in Voters:
        assert (count_votes(poll(voters), [whole]) == count_votes(poll(voters), parts)).all()


def test_a_vote_does_not_depend_on_who_else_is_asked(monkeypatch):
    """Every row of a batch is asked, voters or not: the question's shape says nothing."""
    shapes = []
    ask = NearestNeighbors.kneighbors

    def watched(self, points, **options):
        shapes.append(points.shape)
        return ask(self, points, **options)

    monkeypatch.setattr(NearestNeighbors, "kneighbors", watched)
    unsure, certain = (0.4, 0.1), (0.4, 3.0)
    for contents in ([unsure] * 4, [certain] * 4, [BLANK, unsure, certain, BLANK], [BLANK] * 4):
        count_votes(poll(Voters.THRESHOLD), [seen(contents)])
    assert shapes == [(4, 1)] * 4


def test_votes_go_to_the_nearest_and_only_of_the_unsure():
    unsure, certain = (0.4, 0.1), (0.4, 3.0)
    votes = count_votes(poll(Voters.THRESHOLD), [seen([unsure, certain, (2.0, 1.0), BLANK])])
    assert votes.tolist() == [1, 1]


def test_the_best_supported_are_chosen_and_ties_go_by_row():
    candidates = poll(Voters.THRESHOLD).candidates.rows
    assert choose_supported(candidates, np.array([0.25, 3.5]), 1).rows.tolist() == [1]
    assert choose_supported(candidates, np.array([2.0, 2.0]), 1).rows.tolist() == [0]
    with pytest.raises(ParameterError, match=r"choice\.candidates .*choice\.labels"):
        choose_supported(candidates, np.array([1.0, 2.0]), 3)


def test_embeddings_of_another_width_are_one_sentence():
    wide = ModelOutputs(np.arange(1), np.zeros((1, 3)), np.array([[0.1, 0.0]]))
    with pytest.raises(ParameterError, match=r"shape \(1, 3\)"):
        count_votes(poll(Voters.THRESHOLD), [wide])
