"""Which public records are chosen: uncertain ones, diverse ones, chance ones."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from dpal.acquisition.diverse_public import choose_diverse, spread_out
from dpal.acquisition.principal_projection import Projection
from dpal.acquisition.public_choice import (
    Candidates,
    ModelOutputs,
    most_uncertain,
    random_choice,
    uncertainty,
)
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.public_selection import ChoiceSpec, PublicSelectionMethod, Uncertainty


def spec(**changes) -> ChoiceSpec:
    values = {
        "method": PublicSelectionMethod.DIVERSE_PUBLIC,
        "labels": 12,
        "candidates": 24,
        "components": 2,
        "clusters": 4,
        "each": 3,
        "uncertainty": Uncertainty.ENTROPY,
    }
    return ChoiceSpec(**{**values, **changes})


def stream(rows: int, *, seed: int = 0, batch: int = 7, width: int = 5) -> list[ModelOutputs]:
    generator = np.random.default_rng(seed)
    embeddings, logits = generator.normal(size=(rows, width)), generator.normal(size=(rows, 3))
    return [
        ModelOutputs(np.arange(at, min(at + batch, rows)), embeddings[at : at + batch],
             logits[at : at + batch])
        for at in range(0, rows, batch)
    ]  # fmt: skip


def test_uncertainty_is_entropy_or_the_gap_of_logits():
    logits = np.array([[0.0, 0.0], [5.0, 0.0], [1.0, 0.0], [np.nan, 0.0]])
    entropy = uncertainty(logits, Uncertainty.ENTROPY, task=Task.SINGLE_LABEL)
    assert entropy[0] == pytest.approx(np.log(2))
    assert (np.argsort(-entropy) == [0, 2, 1, 3]).all()
    assert entropy[3] == -np.inf
    gap = uncertainty(logits, Uncertainty.MARGIN, task=Task.SINGLE_LABEL)
    assert gap.tolist()[:3] == [0.0, -5.0, -1.0]
    several = uncertainty(logits[:2], Uncertainty.ENTROPY, task=Task.MULTI_LABEL)
    assert several[0] == pytest.approx(2 * np.log(2))
    with pytest.raises(ParameterError, match=r"uncertain_margin .*rival"):
        uncertainty(logits, Uncertainty.MARGIN, task=Task.MULTI_LABEL)


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_a_stream_gives_what_sorting_all_of_it_gives(batch):
    parts = stream(300, batch=batch)
    found = most_uncertain(parts, 40, Uncertainty.ENTROPY, task=Task.SINGLE_LABEL)
    logits = np.concatenate([part.logits for part in parts])
    values = uncertainty(logits, Uncertainty.ENTROPY, task=Task.SINGLE_LABEL)
    assert found.rows.tolist() == np.lexsort((np.arange(300), -values))[:40].tolist()
    assert (found.predicted == logits.argmax(axis=1)[found.rows]).all()


def test_memory_does_not_grow_with_the_public_pool():
    def parts(count):
        for at in range(count):
            part = stream(200, seed=at, batch=200, width=64)[0]
            yield ModelOutputs(part.rows + 200 * at, part.embeddings, part.logits)

    def peak(count):
        tracemalloc.start()
        most_uncertain(parts(count), 50, Uncertainty.ENTROPY, task=Task.SINGLE_LABEL)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    # All would be 4.6 MB more. Threads of other tests in this process may allocate some, too.
    assert peak(100) - peak(10) < 1 << 20


def test_too_few_public_records_are_one_sentence():
    with pytest.raises(ParameterError, match=r"50 of .*30"):
        most_uncertain(stream(30), 50, Uncertainty.ENTROPY, task=Task.SINGLE_LABEL)
    with pytest.raises(ParameterError, match=r"50 labels .*30"):
        random_choice(30, 50, seed=0)


def test_chance_is_uniform_and_repeats():
    drawn = [random_choice(20, 5, seed=seed).rows for seed in range(2000)]
    assert (random_choice(20, 5, seed=3).rows == drawn[3]).all()
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert all(len(set(one.tolist())) == 5 for one in drawn[:50])


def test_every_cluster_gives_its_share():
    choice = choose_diverse(stream(400), spec(candidates=200), task=Task.SINGLE_LABEL)
    assert len(set(choice.rows.tolist())) == 12
    assert choice.clusters is not None
    assert choice.central is not None
    assert np.bincount(choice.clusters).tolist() == [3, 3, 3, 3]
    assert sorted(choice.central.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    again = choose_diverse(stream(400), spec(candidates=200), task=Task.SINGLE_LABEL)
    assert (again.rows == choice.rows).all()


def candidates_at(points: list[float]) -> tuple[Candidates, Projection]:
    count = len(points)
    found = Candidates(
        rows=np.arange(100, 100 + count),
        uncertainty=np.zeros(count),
        embeddings=np.array(points)[:, None],
        predicted=np.zeros(count, dtype=np.int64),
    )
    return found, Projection(np.zeros(1), np.eye(1))


def test_those_nearest_to_the_centre_are_taken():
    points = [0.0, 0.2, -0.2, 3.0, -3.0, 50.0, 50.1, 49.9, 53.0, 47.0]
    found, projection = candidates_at(points)
    choice = spread_out(found, projection, spec(labels=6, clusters=2, each=3, candidates=10))
    assert sorted(choice.rows.tolist()) == [100, 101, 102, 105, 106, 107]
    assert choice.central is not None
    centres = {row for row, rank in zip(choice.rows.tolist(), choice.central, strict=True)
               if rank == 0}  # fmt: skip
    assert centres == {100, 105}


def test_short_and_empty_clusters_are_filled_up_by_the_others():
    found, projection = candidates_at([0.0, 50.0, 50.1, 50.2, 50.3])
    choice = spread_out(found, projection, spec(labels=4, clusters=2, each=2, candidates=5))
    assert choice.clusters is not None
    assert sorted(np.bincount(choice.clusters).tolist()) == [1, 3]
    same, projection = candidates_at([1.0] * 6)  # one place, four clusters: three are empty
    choice = spread_out(same, projection, spec(labels=4, clusters=4, each=1, candidates=6))
    assert choice.rows.tolist() == [100, 101, 102, 103]  # ties go by row


def test_impossible_choices_are_one_sentence():
    with pytest.raises(ParameterError, match=r"clusters 5 x choice.each 3 is 15 and .*labels is"):
        spec(clusters=5)
    with pytest.raises(ParameterError, match=r"choice.candidates 5 .*choice.labels 12"):
        spec(candidates=5)
    with pytest.raises(ParameterError, match=r"9 components .*5 wide"):
        choose_diverse(stream(400), spec(components=9), task=Task.SINGLE_LABEL)
    with pytest.raises(ParameterError, match=r"shape \(3, 4\) .*2 columns"):
        Projection(np.zeros(2), np.eye(2))(np.zeros((3, 4)))


def test_broken_public_records_are_wanted_least():
    parts = stream(60)
    parts[0].logits[0] = np.nan
    parts[0].embeddings[1] = np.inf
    choice = choose_diverse(parts, spec(candidates=50), task=Task.SINGLE_LABEL)
    assert 0 not in choice.rows
