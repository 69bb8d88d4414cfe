"""Ranks within strata: a function of one record, within [0, 1], that takes as many of each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from dpal.acquisition.scores import score, score_function
from dpal.acquisition.strata import Strata, StratumKind, strata_of
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.campaign_spec import Acquisition

RANKED = [Acquisition.CLASS_BALANCED, Acquisition.DIVERSE]


def records(seed: int, count: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and embeddings of made-up records in groups of very unequal size."""
    rng = np.random.default_rng(seed)
    group = rng.choice(classes, size=count, p=np.array([0.8, 0.15, 0.05]))
    embeddings = 10.0 * np.eye(classes)[group] + rng.normal(size=(count, classes))
    logits = 2.0 * np.eye(classes)[group] + rng.normal(size=(count, classes))
    shares = np.exp(logits)
    return shares / shares.sum(axis=1, keepdims=True), embeddings


def fitted(acquisition: Acquisition, seed: int = 0, count: int = 600) -> Strata:
    probabilities, embeddings = records(seed, count)
    function = score_function(acquisition)
    assert function.strata is not None
    return strata_of(
        function.strata,
        score(acquisition, probabilities, clipped=False),
        probabilities,
        embeddings,
        width=function.score_width(3, clipped=False),
    )


def ranked(acquisition: Acquisition, strata: Strata, seed: int, count: int) -> np.ndarray:
    probabilities, embeddings = records(seed, count)
    return score(acquisition, probabilities, clipped=False, strata=strata, embeddings=embeddings)


@pytest.mark.parametrize("acquisition", RANKED)
def test_as_many_of_every_stratum_are_taken(acquisition):
    """The best 300 of 6,000, where the smallest group has some 300 and the largest 4,800."""
    strata = fitted(acquisition)
    probabilities, embeddings = records(1, 6_000)
    ranks = ranked(acquisition, strata, 1, 6_000)
    plain = score(Acquisition.MARGIN, probabilities, clipped=False)
    place = probabilities if acquisition is Acquisition.CLASS_BALANCED else embeddings

    def least_of(scores: np.ndarray) -> int:
        best = np.argsort(scores)[-300:]
        return int(np.bincount(place[best].argmax(axis=1), minlength=3).min())

    # A few tens of public records say where the tenth of a small group lies. By embeddings a group
    # is as likely unsure as another, so that without strata the largest fills the batch.
    assert least_of(ranks) >= 25
    assert least_of(ranks) > least_of(plain) or acquisition is Acquisition.CLASS_BALANCED


@pytest.mark.parametrize("acquisition", RANKED)
def test_among_its_like_the_least_sure_is_wanted_most(acquisition):
    strata = fitted(acquisition)
    probabilities, embeddings = records(2, 400)
    ranks = ranked(acquisition, strata, 2, 400)
    plain = score(Acquisition.MARGIN, probabilities, clipped=False)
    places, _ = strata._places(probabilities, embeddings)
    for stratum in range(len(strata.scores)):
        here = places == stratum
        order = np.argsort(plain[here], kind="stable")
        assert (np.diff(ranks[here][order]) >= -1e-12).all()


@pytest.mark.parametrize("acquisition", RANKED)
@given(seed=st.integers(0, 1_000))
def test_a_rank_reads_its_own_record_only(acquisition, seed):
    strata = fitted(acquisition)
    probabilities, embeddings = records(seed, 5)
    others = probabilities.copy(), embeddings.copy()
    others[0][1:], others[1][1:] = math.nan, math.inf

    def first(probabilities: np.ndarray, embeddings: np.ndarray) -> float:
        ranks = score(
            acquisition, probabilities, clipped=False, strata=strata, embeddings=embeddings
        )
        assert ((ranks >= 0) & (ranks <= 1)).all()
        return float(ranks[0])

    assert first(probabilities, embeddings) == first(*others)


@pytest.mark.parametrize("acquisition", RANKED)
def test_a_record_that_breaks_the_model_is_wanted_least(acquisition):
    strata = fitted(acquisition)
    probabilities, embeddings = records(3, 4)
    probabilities[0] = math.nan
    embeddings[1] = math.inf
    ranks = score(acquisition, probabilities, clipped=False, strata=strata, embeddings=embeddings)
    assert ranks[0] == 0.0
    assert bool(ranks[1] == 0.0) is (acquisition is Acquisition.DIVERSE)


@pytest.mark.parametrize("acquisition", RANKED)
def test_workers_rank_as_whoever_made_the_strata(acquisition):
    strata = fitted(acquisition)
    again = Strata.from_bytes(strata.to_bytes())
    assert again.kind is strata.kind and again.width == strata.width
    assert (ranked(acquisition, again, 4, 50) == ranked(acquisition, strata, 4, 50)).all()


def test_a_class_that_no_public_record_has_is_wanted_most():
    strata = Strata(StratumKind.PREDICTED_CLASS, 1.0, (np.array([0.2, 0.4]), np.empty(0)), None)
    ranks = strata.ranked(np.array([0.3, 0.3]), np.array([[0.9, 0.1], [0.1, 0.9]]), None)
    assert ranks == approx([0.5, 1.0])


def test_clusters_want_embeddings():
    strata = fitted(Acquisition.DIVERSE)
    probabilities, _ = records(5, 4)
    with pytest.raises(ParameterError):
        score(Acquisition.DIVERSE, probabilities, clipped=False, strata=strata)
    with pytest.raises(ParameterError):
        strata_of(StratumKind.CLUSTER, np.zeros(4), probabilities, None, width=1.0)


def test_several_labels_have_no_predicted_class():
    with pytest.raises(ParameterError):
        score_function(Acquisition.CLASS_BALANCED, task=Task.MULTI_LABEL)
    assert score_function(Acquisition.DIVERSE, task=Task.MULTI_LABEL).reads_embeddings
