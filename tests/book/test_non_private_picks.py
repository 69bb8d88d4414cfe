"""References select what their definitions say, by what the model makes of records."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dpal.book.methods import BADGE, CORE_SET, EXACT
from dpal.book.non_private_picks import reference_pick
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.spec import ModelSpec


def spec(task=Task.SINGLE_LABEL):
    return ModelSpec(name="logistic", input_shape=(2,), classes=2, task=task)


@pytest.fixture
def model():
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        linear.bias.zero_()
    return nn.Sequential(nn.Flatten(), linear)


def test_the_core_set_is_farthest_from_what_is_labeled(model):
    labeled = torch.tensor([[0.0, 0.0]])
    unlabeled = torch.tensor([[1.0, 0.0], [0.0, 9.0], [0.1, 0.0], [7.0, 0.0]])
    pick = reference_pick(CORE_SET, spec(), seed=0)
    assert pick is not None
    assert pick(model, unlabeled, labeled, 2).tolist() == [1, 3]


def test_badge_begins_with_the_longest_gradient(model):
    # Sure records have no gradient; of two that the model is unsure of the longer one leads.
    unlabeled = torch.tensor([[9.0, 0.0], [0.0, 5.0], [0.0, 1.0]])
    pick = reference_pick(BADGE, spec(), seed=0)
    assert pick is not None
    assert pick(model, unlabeled, unlabeled[:0], 2).tolist()[0] == 1


def test_the_highest_scores_need_no_reference_and_gradients_one_class():
    assert reference_pick(EXACT, spec(), seed=0) is None
    with pytest.raises(ParameterError):
        reference_pick(BADGE, spec(Task.MULTI_LABEL), seed=0)
