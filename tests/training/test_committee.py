"""A committee is one training's own weights at planned steps, kept through a stop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.training.committee import (
    MEMBERS,
    Committee,
    committee_of,
    committee_probabilities,
    steps_of_members,
)


def moved(model: nn.Linear, step: int) -> None:
    with torch.no_grad():
        model.weight.fill_(float(step))


def weights_of(members: list[nn.Module]) -> list[float]:
    return [float(member.state_dict()["weight"][0, 0]) for member in members]


def trained(steps: range, committee: Committee, model: nn.Linear) -> None:
    for step in steps:
        moved(model, step)
        committee.update(step)


def test_members_are_the_weights_at_planned_steps():
    model = nn.Linear(2, 3)
    committee = Committee(model, 20)
    trained(range(1, 21), committee, model)
    members = committee_of(model, committee.state())
    assert weights_of(members) == [10, 12, 15, 18, 20]
    assert steps_of_members(20) == (10, 12, 15, 18, 20) and len(members) == MEMBERS


def test_a_stop_loses_no_member():
    model = nn.Linear(2, 3)
    committee = Committee(model, 20)
    trained(range(1, 16), committee, model)
    again = Committee(model, 20)
    again.restore(committee.state())
    trained(range(16, 21), again, model)
    assert weights_of(committee_of(model, again.state())) == [10, 12, 15, 18, 20]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 1000])
def test_every_training_of_two_steps_or_more_has_a_committee(steps):
    at = steps_of_members(steps)
    assert at[-1] == steps and all(1 <= step <= steps for step in at)
    assert len(at) >= min(steps, 2)


def test_nobody_who_is_not_asked_is_kept():
    model = nn.Linear(2, 3)
    committee = Committee(model, 20, wanted=False)
    trained(range(1, 21), committee, model)
    assert committee.state() == {}
    with pytest.raises(ParameterError):
        committee_of(model, committee.state())


def test_members_answer_for_each_record_by_itself():
    model = nn.Linear(2, 3)
    committee = Committee(model, 4)
    for step in range(1, 5):
        nn.init.normal_(model.weight)
        committee.update(step)
    members = committee_of(model, committee.state())
    inputs = torch.randn(9, 2)
    whole, part = (
        committee_probabilities(members, records, physical_batch=4, task=Task.SINGLE_LABEL)
        for records in (inputs, inputs[:1])
    )
    assert whole.shape == (len(members), 9, 3)
    assert np.allclose(whole.sum(axis=-1), 1)
    assert (whole[:, :1] == part).all()
