from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from dpal.acquisition.scores import ENTROPY_CLIP
from dpal.acquisition.selection import Selection, select
from dpal.planning.campaign_spec import Acquisition, SelectionMode
from dpal.planning.certify_campaign import certified_plan
from dpal.simulation import rehearsal
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from dpal.simulation.seeded_bits import SeededBits
from dpal.training.pseudo_labels import fitted_labeler
from dpal.training.train_phase import train_dp_sgd
from tests.conftest import CLASSES, WIDTH, small_spec

LEAST = Acquisition.LEAST_CONFIDENCE


def blobs(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, rows)
    values = 2.0 * np.eye(CLASSES, WIDTH)[labels] + generator.normal(0, 0.5, (rows, WIDTH))
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


DATA = PublicData(*blobs(600, 1), *blobs(300, 2))


@pytest.fixture(scope="module")
def plans():
    spec = small_spec(strategy="naive", acquisition=LEAST.value)
    return {
        method: certified_plan(spec_for(method, spec)).plan
        for method in (RehearsalMethod.RANDOM, RehearsalMethod.VISIBLE, RehearsalMethod.EXACT)
    }


def run(plans, method: RehearsalMethod):
    return rehearse(plans[method], DATA, method, acquisition=LEAST, physical_batch=64)


@pytest.mark.parametrize(
    "method", [RehearsalMethod.RANDOM, RehearsalMethod.VISIBLE, RehearsalMethod.EXACT]
)
def test_a_rehearsal_buys_labels_learns_and_judges(plans, method):
    phases = run(plans, method)
    assert [phase.labels for phase in phases] == [100, 140, 180]
    # Three blobs far apart: chance is a third, and noise costs a few percent.
    assert all(0.6 < phase.figures["accuracy"] <= 1 for phase in phases)
    assert phases[0].quality is None
    for phase in phases[1:]:
        assert (phase.quality.selected, phase.quality.query) == (40, 40)
        assert (phase.quality.hits == 1) == (method is RehearsalMethod.EXACT)
        if method is not RehearsalMethod.VISIBLE:  # retired records leave the pool as well
            left = 500 if phase is phases[1] else 460
            assert phase.quality.chance == pytest.approx(40 / left)


def test_who_was_chosen_or_retired_is_not_offered_again(plans, monkeypatch):
    gone: set[int] = set()
    sizes = []

    def watched(step, scored, count, **named):
        batches = list(scored)
        offered = set(np.concatenate([rows for rows, _ in batches]).tolist())
        assert not offered & gone
        assert len(offered) + len(gone) == 600
        chosen = select(step, iter(batches), count, **named)
        sizes.append(chosen.retired.size)
        # One record more is retired, so that the test does not hang on chance.
        spare = sorted(offered - {*chosen.rows.tolist(), *chosen.retired.tolist()})[:1]
        retired = np.concatenate([chosen.retired, np.array(spare, dtype=np.int64)])
        gone.update([*chosen.rows.tolist(), *retired.tolist()])
        return Selection(chosen.rows, retired)

    monkeypatch.setattr(rehearsal, "select", watched)
    phases = run(plans, RehearsalMethod.VISIBLE)
    assert len(sizes) == 3
    assert phases[-1].labels == 180


def test_the_papers_clip_is_no_part_of_the_judgement():
    """A model that learnt nothing is unsure of all: every entropy lies above the clip of 0.8."""
    spec = small_spec(
        strategy="naive", acquisition="entropy", privacy={"selection": "paper"},
        training__learning_rate=1e-6,
    )  # fmt: skip
    for method in (RehearsalMethod.PAPER, RehearsalMethod.RANDOM):
        plan = certified_plan(spec_for(method, spec)).plan
        entropy = Acquisition.ENTROPY
        phases = rehearse(plan, DATA, method, acquisition=entropy, physical_batch=64)
        for phase in phases[1:]:
            assert phase.quality is not None
            assert phase.quality.mean_score > ENTROPY_CLIP
            assert phase.quality.best_mean_score > phase.quality.mean_score
            # 40 of 500 or 460 are the best: a draw that finds 16 of them has a chance of 1e-7.
            assert phase.quality.hits < 0.4


@pytest.mark.slow
def test_hits_are_of_all_unlabeled_records_and_not_of_candidates():
    spec = small_spec(strategy="naive", acquisition=LEAST.value, schedule__queries=[60, 60],
                      privacy={"selection": "hidden", "candidates": 260})  # fmt: skip
    plan = certified_plan(spec_for(RehearsalMethod.HIDDEN, spec)).plan
    assert plan.spec.candidates == 260
    first, draws = SeededBits(1, "initial cohort"), partial(SeededBits, 1)
    phases = rehearse(plan, DATA, RehearsalMethod.HIDDEN, acquisition=LEAST, physical_batch=64,
                      first_cohort=first, draws=draws)  # fmt: skip
    for before, phase in pairwise(phases):
        assert phase.quality is not None
        # However many coins set aside, all but the bought are unlabeled.
        assert phase.quality.chance == pytest.approx(phase.quality.query / (600 - before.labels))
        assert phase.quality.hits < 0.9
        assert phase.quality.mean_score < phase.quality.best_mean_score


def test_rehearsals_that_are_compared_share_their_first_cohort(plans, monkeypatch):
    cohorts = []

    def watched(step, scored, count, **named):
        chosen = select(step, scored, count, **named)
        cohorts.append(sorted(chosen.rows.tolist()))
        return chosen

    monkeypatch.setattr(rehearsal, "select", watched)
    for method, seed in [("random", 1), ("visible", 1), ("random", 2)]:
        name = RehearsalMethod(method)
        rehearse(plans[name], DATA, name, acquisition=LEAST, physical_batch=64,
                 first_cohort=SeededBits(seed, "initial cohort"))  # fmt: skip
    first, second, other = cohorts[0], cohorts[3], cohorts[6]
    assert first == second != other
    assert cohorts[1] != cohorts[4]  # what follows is drawn anew


def test_rehearsals_are_judged_on_some_records():
    part = DATA.judged_on([5, 2], known=[1, 7])
    assert torch.equal(part.validation_inputs, DATA.validation_inputs[[5, 2]])
    assert torch.equal(part.validation_labels, DATA.validation_labels[[5, 2]])
    assert part.inputs is DATA.inputs


def test_exact_selection_reads_true_scores(plans):
    """Where scores mean something the exact ones are best, and random ones are chance."""
    exact, random = run(plans, RehearsalMethod.EXACT), run(plans, RehearsalMethod.RANDOM)
    for best, chance in zip(exact[1:], random[1:], strict=True):
        assert best.quality.mean_score == best.quality.best_mean_score
        assert chance.quality.mean_score < chance.quality.best_mean_score


@pytest.mark.parametrize("method", RehearsalMethod)
def test_every_method_makes_the_same_promise(method):
    spec = small_spec(schedule__queries=[200], privacy={"selection": "paper"})
    found = spec_for(method, spec)
    assert (found.target, found.schedule) == (spec.target, spec.schedule)
    trains_like_random = method in (RehearsalMethod.RANDOM, RehearsalMethod.EXACT)
    assert found.acquisition.is_random == trains_like_random
    assert found.selection_epsilon == (
        2 if method in (RehearsalMethod.PAPER, RehearsalMethod.VISIBLE) else 0
    )
    if not trains_like_random:
        assert found.selection is SelectionMode(method.value)
    assert method.private == (method is not RehearsalMethod.EXACT)


def test_a_long_tail_thins_classes_geometrically():
    labels = torch.arange(CLASSES).repeat_interleave(4000)
    inputs = torch.arange(labels.numel()).reshape(-1, 1)
    data = PublicData(inputs, labels, DATA.validation_inputs, DATA.validation_labels)
    thinned = data.long_tailed(0.5, rng=np.random.default_rng(3))
    counts = torch.bincount(thinned.labels).tolist()
    assert counts[0] == 4000
    # Standard deviations 31.6 and 27.4; five of them.
    assert counts[1] == pytest.approx(2000, abs=160)
    assert counts[2] == pytest.approx(1000, abs=140)
    assert (thinned.inputs[:, 0] // 4000 == thinned.labels).all()  # records keep their labels
    assert thinned.validation_labels is DATA.validation_labels


def test_the_unlabeled_train_on_labels_that_the_model_gives(monkeypatch):
    """And what weighs them is the campaign's own validation set, not what judges it."""
    spec = small_spec(
        strategy="naive", acquisition="random", self_training={"epochs": 2}, privacy__epsilon=20
    )
    told, trained = [], []

    def fitting(task, guesses, labels):
        told.append(labels)
        return fitted_labeler(task, guesses, labels)

    def training(model, optimizer, labeled, phase, *arguments, **named):
        trained.append((labeled.labels, labeled.cohorts))
        train_dp_sgd(model, optimizer, labeled, phase, *arguments, **named)

    monkeypatch.setattr(rehearsal, "fitted_labeler", fitting)
    monkeypatch.setattr(rehearsal, "train_dp_sgd", training)
    shifted = torch.where(torch.arange(600) % 5 == 0, (DATA.labels + 1) % CLASSES, DATA.labels)
    data = replace(DATA, labels=shifted).judged_on(range(100, 300), known=range(100))
    plan = certified_plan(spec).plan
    phases = rehearse(plan, data, RehearsalMethod.HIDDEN, acquisition=LEAST, physical_batch=64)
    assert [phase.labels for phase in phases] == [100, 140, 180, 180]
    assert phases[-1].quality is None
    assert [labels.tolist() for labels in told] == [DATA.validation_labels[:100].tolist()]
    labels, cohorts = trained[-1]
    assert (cohorts == 3).sum() == 420 and labels.shape == (600,)
    other = (labels != shifted).numpy()
    assert not other[cohorts < 3].any()
    # The model has learnt from four of five: it guesses neither the pool's labels, nor by chance.
    assert 0.1 * 420 < other.sum() < 0.5 * 420
