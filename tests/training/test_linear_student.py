"""A linear student of shares of votes: ridge regression whose penalty nobody has to choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.linear_heads import linear_weights
from dpal.training.linear_student import PENALTIES, fit_linear_student

TRUE = np.array([[0.3, -0.2, 0.0, 0.1, 0.0], [0.0, 0.1, 0.25, 0.0, -0.1]])


def made(count, noise, *, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 5)) + 2.0
    return features, 0.5 + (features - 2.0) @ TRUE.T + noise * rng.standard_normal((count, 2))


def test_shares_without_noise_give_the_model_that_made_them():
    features, shares = made(400, 0.0)
    weights, bias = fit_linear_student(features, shares)
    # Logits are 4 for each share, and 0 at a share of one half.
    np.testing.assert_allclose(weights / 4, TRUE, atol=1e-3)
    np.testing.assert_allclose(features @ weights.T + bias, 4 * (shares - 0.5), atol=1e-2)


def test_the_penalty_is_the_one_that_leaves_out_best():
    """By fitting once for every record that is left out, and every penalty."""
    features, shares = made(25, 0.5, seed=3)
    spread = ((features - features.mean(axis=0)) ** 2).sum()

    def fitted(rows, penalty):
        here, there = features[rows], shares[rows]
        centre, middle = here.mean(axis=0), there.mean(axis=0)
        moved = here - centre
        slope = np.linalg.solve(moved.T @ moved + penalty * np.eye(5), moved.T @ (there - middle))
        return slope, middle - centre @ slope

    def left_out(penalty):
        error = 0.0
        for row in range(25):
            slope, start = fitted(np.arange(25) != row, penalty)
            error += ((features[row] @ slope + start - shares[row]) ** 2).sum()
        return error

    penalties = [spread * share for share in PENALTIES]
    best = min(penalties, key=left_out)
    assert best not in (penalties[0], penalties[-1])
    slope, start = fitted(slice(None), best)
    weights, bias = fit_linear_student(features, shares)
    np.testing.assert_allclose(weights.T / 4, slope, rtol=1e-6)
    np.testing.assert_allclose(bias / 4 + 0.5, start, rtol=1e-6)


def test_noise_that_hides_everything_is_not_learned():
    features, _ = made(200, 0.0)
    noise = 50 * np.random.default_rng(5).standard_normal((200, 2))
    free = np.linalg.lstsq(features - features.mean(axis=0), noise, rcond=None)[0]
    weights, _ = fit_linear_student(features, noise)
    assert np.linalg.norm(weights / 4) < 0.6 * np.linalg.norm(free)


def test_labels_may_be_answered_on_records_of_their_own():
    features, shares = made(300, 0.0)
    known = np.random.default_rng(1).random(shares.shape) < 0.5
    weights, _ = fit_linear_student(features, np.where(known, shares, np.nan))
    np.testing.assert_allclose(weights / 4, TRUE, atol=1e-2)
    none = np.where([True, False], shares, np.nan)
    weights, bias = fit_linear_student(features, none)
    assert (weights[1] == 0).all()
    assert bias[1] == -2  # a share of 0: no


@pytest.mark.parametrize("known", [0, 1])
def test_too_few_answers_are_refused(known):
    features, shares = made(9, 0.0)
    shares[known:] = np.nan
    with pytest.raises(ParameterError):
        fit_linear_student(features, shares)


def test_the_weights_are_those_of_the_linear_model():
    features, shares = made(60, 0.1)
    weights, bias = fit_linear_student(features, shares)
    spec = ModelSpec(name="logistic", input_shape=(5,), classes=2, task=Task.MULTI_LABEL)
    model = build_model(spec)
    model.load_state_dict(linear_weights(weights, bias))
    logits = model(torch.from_numpy(features).float()).detach().numpy()
    np.testing.assert_allclose(logits, features @ weights.T + bias, atol=1e-4)
