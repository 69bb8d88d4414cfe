"""A committee of models: one training's weights at a few of its last steps.

All iterates of a private training are released by its account, so that members cost nothing.
They differ by the noise of the steps between them, and so disagree on records that noise decides.

Source: snapshots as an ensemble: Huang et al. (2017), "Snapshot ensembles: train 1, get M for
free"; votes of a committee: Seung, Opper & Sompolinsky (1992).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal import check
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.training.evaluation import probabilities

MEMBERS = 5
_BETWEEN = "."  # of a member's number and a tensor's name


class Committee:
    """The weights of a training at `MEMBERS` steps of its second half, the last one among them."""

    def __init__(self, model: nn.Module, steps: int, *, wanted: bool = True) -> None:
        """Starts without a member.

        Args:
          model: that trains, in place.
          steps: of the phase.
          wanted: whether anybody will ask it; otherwise it keeps nothing.
        """
        check.at_least(1, steps=steps)
        self._model = model
        self._at = steps_of_members(steps) if wanted else ()
        self._members: dict[int, dict[str, Tensor]] = {}

    def update(self, step: int) -> None:
        """Takes a member in after its step; others pass by."""
        if step in self._at:
            self._members[self._at.index(step)] = {
                name: value.detach().cpu().clone()
                for name, value in self._model.state_dict().items()
            }

    def state(self) -> dict[str, Tensor]:
        """The members so far, for a checkpoint or whoever selects next."""
        return {
            f"{index}{_BETWEEN}{name}": value
            for index, member in self._members.items()
            for name, value in member.items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` took out."""
        self._members = members_in(state)


def steps_of_members(steps: int) -> tuple[int, ...]:
    """Which steps have a member, ascending; fewer where a training has few steps."""
    return tuple(sorted({round(steps * at) for at in np.linspace(0.5, 1.0, MEMBERS)} - {0}))


def members_in(state: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Members by number, of what `Committee.state` took out."""
    members: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        index, _, name = key.partition(_BETWEEN)
        members.setdefault(int(index), {})[name] = value
    return members


def committee_of(model: nn.Module, state: Mapping[str, Tensor]) -> list[nn.Module]:
    """The members as models.

    Args:
      model: of the same architecture, on the device that they are wanted on.
      state: of a finished training's committee.

    Raises:
      ParameterError: there are fewer than two, who could not disagree.
    """
    found = members_in(state)
    if len(found) < 2:
        raise ParameterError(
            f"acquisition committee asks 2 models or more, and this training left {len(found)}; "
            "use another acquisition"
        )
    members = []
    for _, weights in sorted(found.items()):
        member = copy.deepcopy(model)
        member.load_state_dict(weights)
        members.append(member.eval())
    return members


def committee_probabilities(
    members: Sequence[nn.Module], inputs: Tensor, *, physical_batch: int, task: Task
) -> NDArray[np.float64]:
    """What each member says of each record, shape (members, n, classes).

    Args:
      members: from records to logits.
      inputs: (n, *input_shape) decoded records.
      physical_batch: records per forward pass.
      task: what a label is.
    """
    with torch.no_grad():
        return np.stack(
            [
                probabilities(member, inputs, physical_batch=physical_batch, task=task)
                for member in members
            ]
        )
