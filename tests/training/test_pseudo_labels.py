"""Labels that a model gives."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dpal.labels import Task
from dpal.planning.training_recipe import Augmentation
from dpal.training.pseudo_labels import fitted_labeler, probabilities_over_views

SHARES = [0.6, 0.3, 0.1]


def guesses_of(labels: np.ndarray, *, bias: list[float], rng: np.random.Generator) -> np.ndarray:
    """Probabilities of a model that prefers some classes."""
    logits = 2.0 * np.eye(3)[labels] + rng.normal(0, 1, (len(labels), 3)) + np.array(bias)
    scores = np.exp(logits)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def test_classes_come_as_often_as_they_should():
    rng = np.random.default_rng(3)
    public, private = (rng.choice(3, size=4000, p=SHARES) for _ in range(2))
    bias = [2.0, 0.0, -2.0]
    seen = guesses_of(public, bias=bias, rng=rng)
    labeler = fitted_labeler(Task.SINGLE_LABEL, seen, public)
    guesses = guesses_of(private, bias=bias, rng=rng)
    given, raw = labeler.label(guesses), guesses.argmax(axis=1)
    assert (given == private).mean() > (raw == private).mean() + 0.05
    assert np.abs(np.bincount(given, minlength=3) / 4000 - SHARES).max() < 0.1
    assert np.bincount(raw, minlength=3)[0] > 0.8 * 4000, "the model prefers one class"


def test_a_model_without_preferences_is_left_alone():
    rng = np.random.default_rng(4)
    public = rng.choice(3, size=4000)
    guesses = guesses_of(public, bias=[0.0, 0.0, 0.0], rng=rng)
    labeler = fitted_labeler(Task.SINGLE_LABEL, guesses, public)
    assert (labeler.label(guesses) == guesses.argmax(axis=1)).mean() > 0.97


def test_a_class_that_is_never_seen_or_never_named_keeps_weights_finite():
    guesses = np.tile([1.0, 0.0, 0.0], (10, 1))
    labeler = fitted_labeler(Task.SINGLE_LABEL, guesses, np.array([0] * 5 + [1] * 5))
    assert np.isfinite(labeler.weights).all() and (labeler.weights > 0).all()


def test_several_labels_are_said_where_they_are_likelier_than_not():
    guesses = np.array([[0.2, 0.5], [0.9, 0.49]])
    labeler = fitted_labeler(Task.MULTI_LABEL, guesses, np.array([[0, 1], [1, 0]]))
    assert labeler.label(guesses).tolist() == [[0, 1], [1, 0]]


def test_a_record_gets_one_label_for_all_of_its_views():
    """A model that looks at one side says 1/2 of a picture that is mirrored half of the time."""

    class LeftSide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1))

        def forward(self, pictures: Tensor) -> Tensor:
            lit = pictures[:, 0, :, 0].mean(dim=1)
            return 100 * torch.stack([lit, -lit], dim=1)

    pictures = torch.zeros(500, 1, 4, 4)
    pictures[:, :, :, 0], pictures[:, :, :, -1] = 1.0, -1.0
    means = {
        flip: probabilities_over_views(
            LeftSide(),
            pictures,
            augmentation=Augmentation(flip=flip),
            generator=torch.Generator().manual_seed(1),
            physical_batch=64,
            task=Task.SINGLE_LABEL,
        )[:, 0]
        for flip in (False, True)
    }
    assert (means[False] > 0.99).all()
    assert 0.4 < means[True].mean() < 0.6 and len(np.unique(means[True].round(2))) == 5
