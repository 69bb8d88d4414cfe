"""A head is the plain solution where there is no noise, and a sensible one where there is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid

from dpal.config.campaign import parse_config
from dpal.data.labeled_records import LabeledSet
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.mechanisms.head_statistics import CONSTANT, HeadStatistics, HeadSums, with_constant
from dpal.models.build_model import build_model
from dpal.planning.campaign_spec import CampaignSpec, Groups, ProtectedValidation
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.linear_head_spec import HeadKind, LinearHead
from dpal.privacy import Unit
from dpal.training import linear_heads
from dpal.training.linear_heads import FeatureFrame, LinearHeadFit, frame_of, solve

WIDTH, CLASSES = 6, 3
RNG = np.random.default_rng(5)


def blobs(count: int, *, width: int = WIDTH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records around centres that are the same for every seed."""
    centres = np.random.default_rng(7).normal(size=(CLASSES, width))
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    return centres[labels] + rng.normal(size=(count, width)) / 2, labels


def wish(method: str, *, queries: tuple[int, ...] = (), **changes: Any) -> CampaignSpec:
    values: dict[str, Any] = {
        "name": "heads",
        "privacy": {"epsilon": 50, "selection": "visible"},
        "schedule": {
            "initial": 200, "queries": list(queries), "batch_size": 10, "epochs_per_phase": 1,
        },
        "acquisition": "random",
        "model": {"name": "logistic"},
        "training": {"method": method, "components": 4},
    }  # fmt: skip
    spec = parse_config(values).to_spec(pool_size=2000, input_shape=(WIDTH,), classes=CLASSES)
    return replace(spec, **changes)


def quiet(sums: HeadSums) -> HeadSums:
    """As if so little noise were in it that nothing is held back."""
    return replace(sums, variance=1e-20)


def sums_of(features: np.ndarray, labels: np.ndarray, **about: Any) -> HeadSums:
    statistics = HeadStatistics(
        features=features.shape[1],
        **{"classes": CLASSES, "task": Task.SINGLE_LABEL, "moments": True, **about},
    )
    return statistics.of([(features, labels, np.ones(len(features)))])


def test_without_noise_least_squares_is_scikit_learns_ridge():
    rows, labels = blobs(300)
    rows = rows / (2 * np.linalg.norm(rows, axis=1, keepdims=True))
    ridge = 0.7
    sums = sums_of(rows, labels)
    edge = math.sqrt(2 * (WIDTH + 1))
    weights, bias = solve(
        replace(sums, variance=(ridge / edge) ** 2), task=Task.SINGLE_LABEL, labels=300
    )
    codes = HeadStatistics(
        features=WIDTH, classes=CLASSES, task=Task.SINGLE_LABEL, moments=True
    ).codes(labels)
    theirs = Ridge(alpha=ridge, fit_intercept=False, tol=1e-12).fit(with_constant(rows), codes)
    kept = math.sqrt(1 - CONSTANT**2)
    ratio = weights[0, 0] / (kept * theirs.coef_[0, 0])  # of the scale on which it speaks
    assert ratio > 0
    assert weights == pytest.approx(ratio * kept * theirs.coef_.T[:-1], rel=1e-6)
    assert bias == pytest.approx(ratio * CONSTANT * theirs.coef_.T[-1], rel=1e-6)


def test_without_noise_several_labels_are_apart_regressions_and_masked_ones_are_left_out():
    rows, _ = blobs(300)
    rows = rows / (2 * np.linalg.norm(rows, axis=1, keepdims=True))
    labels = (rows[:, :2] > 0).astype(np.int64)
    labels[::3, 1] = -1
    sums = quiet(sums_of(rows, labels, classes=2, task=Task.MULTI_LABEL))
    weights, bias = solve(sums, task=Task.MULTI_LABEL, labels=300)
    u = with_constant(rows)
    signs = np.where(labels == -1, 0, 2 * labels - 1)
    theirs = np.linalg.solve(u.T @ u, u.T @ signs)
    logits = rows @ weights + bias
    assert logits == pytest.approx(4 * u @ theirs, rel=1e-4, abs=1e-4)


def test_without_noise_prototypes_are_scikit_learns_nearest_centroids():
    rows, labels = blobs(400)
    rows = rows / (1.01 * np.linalg.norm(rows, axis=1).max())
    sums = quiet(sums_of(rows, labels, moments=False))
    weights, bias = solve(sums, task=Task.SINGLE_LABEL, labels=400)
    fresh, _ = blobs(500, seed=1)
    fresh = fresh / 6
    theirs = NearestCentroid().fit(rows, labels)
    assert ((fresh @ weights + bias).argmax(axis=1) == theirs.predict(fresh)).all()
    # A class without any record is far from everything, and is no division by zero.
    none = sums_of(rows[labels > 0], labels[labels > 0], moments=False)
    weights, bias = solve(quiet(none), task=Task.SINGLE_LABEL, labels=400)
    assert np.isfinite(weights).all() and np.isfinite(bias).all()


def test_a_noisy_mean_is_not_taken_for_a_far_one():
    """The class with fewest records has the noisiest mean; with its noise it would never win."""
    rng = np.random.default_rng(1)
    width, counts = 1500, np.array([2000, 2000, 40])
    centres = rng.normal(size=(3, width)) / math.sqrt(width) / 2
    labels = np.repeat(np.arange(3), counts)
    rows = centres[labels] + rng.normal(size=(labels.size, width)) / math.sqrt(width) / 2
    sums = sums_of(rows, labels, moments=False)
    noisy = sums.products + rng.normal(size=sums.products.shape)
    guesses = np.repeat(np.arange(3), 300)
    fresh = centres[guesses] + rng.normal(size=(900, width)) / math.sqrt(width) / 2
    hits = {}
    for variance in (1.0, 1e-9):  # as it is, and as if there were none
        told = HeadSums(moments=None, products=noisy, variance=variance)
        weights, bias = solve(told, task=Task.SINGLE_LABEL, labels=labels.size)
        hits[variance] = ((fresh @ weights + bias).argmax(axis=1) == guesses)[600:].mean()
    assert hits[1e-9] < 0.05 < 0.9 < hits[1.0]


@pytest.mark.parametrize("moments", [True, False])
def test_public_records_choose_how_far_a_solution_is_held_back_and_its_scale(moments):
    rows, labels = blobs(400)
    rows = rows / np.linalg.norm(rows, axis=1).max()
    known, answers = blobs(300, seed=2)
    known = known / np.linalg.norm(known, axis=1).max()
    statistics = HeadStatistics(
        features=WIDTH, classes=CLASSES, task=Task.SINGLE_LABEL, moments=moments
    )
    sums = statistics.of([(rows, labels, np.ones(400))])
    noisy = HeadSums(
        moments=None if sums.moments is None else sums.moments + np.diag(RNG.normal(size=7) ** 2),
        products=sums.products + RNG.normal(size=sums.products.shape),
        variance=1.0,
    )

    def loss(public: Any) -> float:
        weights, bias = solve(noisy, task=Task.SINGLE_LABEL, labels=400, public=public)
        chances = torch.softmax(torch.from_numpy(known @ weights + bias), dim=1).numpy()
        return float(-np.log(chances[np.arange(300), answers]).mean())

    assert loss((known, answers)) < loss(None)
    if moments:  # prototypes still take their metric from records that nobody labeled
        assert loss((known, np.full(300, -1))) == loss(None)


def test_a_frame_keeps_the_directions_of_public_records_and_its_inverse_is_exact():
    rows, _ = blobs(200)
    rows = rows * np.array([10, 5, 1, 0.5, 0.1, 0.0])
    head = LinearHead(kind=HeadKind.LEAST_SQUARES, components=3)
    for features in (WIDTH, 300):  # fewer than records, and more
        turned = rows @ np.linalg.qr(RNG.normal(size=(features, WIDTH)))[0].T
        frame = frame_of(head, features, turned)
        assert frame.width == 3
        lengths = np.linalg.norm(frame.apply(turned), axis=1)
        assert np.median(lengths) == pytest.approx(1)
        values = np.sort(np.linalg.svd(turned - turned.mean(axis=0))[1])[::-1][:3]
        kept = np.linalg.norm(frame.apply(turned), axis=0) * frame.length
        assert kept**2 == pytest.approx(values * math.sqrt(200), rel=1e-6)
        weights, bias = RNG.normal(size=(3, CLASSES)), RNG.normal(size=CLASSES)
        whole, shift = frame.unapply(weights, bias)
        assert turned @ whole.T + shift == pytest.approx(frame.apply(turned) @ weights + bias)
    alike = np.ones((20, WIDTH))  # nothing to tell apart
    assert np.isfinite(frame_of(head, WIDTH, alike).apply(alike)).all()


def test_without_public_records_features_stay_as_they_are_and_few_enough():
    head = LinearHead(kind=HeadKind.PROTOTYPES, components=3)
    frame = frame_of(head, 5000, None)
    assert frame.width == 5000
    assert frame.length == pytest.approx(math.sqrt(5000))
    assert frame_of(replace(head, max_feature_norm=2.5), 10, None).length == 2.5
    with pytest.raises(ParameterError):
        frame_of(replace(head, kind=HeadKind.LEAST_SQUARES), linear_heads.MOST_MOMENTS + 1, None)


def labeled(cohorts: np.ndarray, rows: np.ndarray, labels: np.ndarray, **more: Any) -> LabeledSet:
    return LabeledSet(
        inputs=torch.from_numpy(rows).float(),
        labels=torch.from_numpy(labels),
        cohorts=cohorts.astype(np.int16),
        **more,
    )


@pytest.mark.parametrize("method", ["least_squares", "prototypes"])
def test_phases_add_up_and_nobody_is_read_twice(method, bits, monkeypatch):
    """Phase by phase the sums are those of all cohorts, from what was carried over alone."""
    spec = wish(method, queries=(100,))
    plan = certified_plan(spec).plan
    rows, labels = blobs(300)
    cohorts = np.repeat([0, 1], [200, 100])
    known, answers = blobs(250, seed=3)
    public = (torch.from_numpy(known).float(), torch.from_numpy(answers))
    seen: list[int] = []
    real = HeadStatistics.of

    def watched(self, batches):
        def counting():
            for features, of, shares in batches:
                seen.append(len(features))
                yield features, of, shares

        return real(self, counting())

    monkeypatch.setattr(HeadStatistics, "of", watched)
    everyone = labeled(cohorts, rows, labels)
    first = LinearHeadFit(spec, public)
    initial = labeled(cohorts[:200], rows[:200], labels[:200])
    first.add(initial, plan.phases[0], physical_batch=64, rng=bits)
    before = first.state()
    second = LinearHeadFit(spec, public, before)
    second.add(everyone, plan.phases[1], physical_batch=64, rng=bits)
    assert seen == [64, 64, 64, 8, 64, 36]
    after = second.state()
    noises = [phase.training.noise_multiplier for phase in plan.phases]
    statistics = HeadStatistics(
        features=4, classes=CLASSES, task=Task.SINGLE_LABEL, moments=method == "least_squares"
    )
    unit = statistics.sensitivity(spec.target.adjacency)
    assert float(after["variance"]) == pytest.approx(sum((unit * one) ** 2 for one in noises))
    frame = FeatureFrame(
        centre=after["centre"].numpy(),
        directions=after["directions"].numpy(),
        length=float(after["length"]),
    )
    exact = real(statistics, [(frame.apply(rows), labels, np.ones(300))])
    off = (after["products"].numpy() - exact.products) / math.sqrt(float(after["variance"]))
    # 5 x 3 normal values: a chance of 1e-6 of one further out than this.
    assert np.abs(off).max() < 5.5
    model = build_model(spec.model)
    model.load_state_dict(second.weights())
    fresh, truth = blobs(400, seed=4)
    guesses = model(torch.from_numpy(fresh).float()).argmax(1).numpy()
    assert (guesses == truth).mean() > 0.8


def test_a_group_counts_as_one_record_whatever_it_brings(bits, monkeypatch):
    groups = Groups(column="person", records=2)
    spec = wish("least_squares")
    spec = replace(spec, groups=groups, target=replace(spec.target, unit=Unit.GROUP))
    plan = certified_plan(spec).plan
    rows, labels = blobs(9)
    owners = np.array([0, 0, 0, 0, 4, 4, 6, 7, 8])  # of which one brings more than it may
    shares: list[float] = []
    real = HeadStatistics.of

    def watched(self, batches):
        def counting():
            for features, of, each in batches:
                shares.extend(each.tolist())
                yield features, of, each

        return real(self, counting())

    monkeypatch.setattr(HeadStatistics, "of", watched)
    fit = LinearHeadFit(spec, None)
    together = labeled(np.zeros(9), rows, labels, owners=owners)
    fit.add(together, plan.phases[0], physical_batch=3, rng=bits)
    assert sorted(shares) == [0.5, 0.5, 0.5, 0.5, 1, 1, 1]


def test_a_protected_validation_set_is_not_needed(bits):
    spec = wish("prototypes")
    spec = replace(spec, validation=ProtectedValidation(records=100, epsilon=5))
    plan = certified_plan(spec).plan
    rows, labels = blobs(200)
    fit = LinearHeadFit(spec, None)
    fit.add(labeled(np.zeros(200), rows, labels), plan.phases[0], physical_batch=64, rng=bits)
    assert "directions" not in fit.state()
    model = build_model(spec.model)
    model.load_state_dict(fit.weights())
    fresh, truth = blobs(400, seed=4)
    assert (model(torch.from_numpy(fresh).float()).argmax(1).numpy() == truth).mean() > 0.8
