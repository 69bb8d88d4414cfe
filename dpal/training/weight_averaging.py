"""Averages of the weights over steps: made of released numbers, so they cost nothing.

The averaged weights are the model; training goes on from the last, raw ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dpal import check
from dpal.errors import ParameterError
from dpal.planning.training_recipe import Averaging, AveragingKind

_COUNT, _KEY = "updates", "weights."  # names of what a state holds: a number, and tensors


class WeightAverage:
    """The average of a model's trained weights over the steps of a phase.

    Frozen parameters and buffers are the model's own. The arithmetic is that of the weights,
    and the whole state is in `state`, so that going on from a checkpoint changes no digit.

    Source:
      Exponential: Polyak & Juditsky (1992); with a decay that grows at first, De et al.
      (2022), Sec. 3.2. Tail: Shejwalkar et al. (2022), "Recycling scraps".
    """

    def __init__(self, model: nn.Module, averaging: Averaging, steps: int) -> None:
        """Starts at the model's present weights.

        Args:
          model: whose weights are followed, in place.
          averaging: which average.
          steps: of the phase, all of its parts together.
        """
        check.at_least(1, steps=steps)
        self._model, self._averaging, self._steps = model, averaging, steps
        self._first = steps - max(1, round(averaging.tail * steps)) + 1  # step of the tail
        self._updates = self._last = 0
        self._average: dict[str, Tensor] = {}
        if averaging.kind is not AveragingKind.NONE:
            self._average = {name: value.clone() for name, value in self._followed()}

    @property
    def averages(self) -> bool:
        """Whether the average is anything but the last weights."""
        return self._averaging.kind is not AveragingKind.NONE

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after a step.

        Args:
          step: its number within the phase, from 1; each is told once.
        """
        check.within(self._last + 1, self._steps, step=step)
        self._last = step
        match self._averaging.kind:
            case AveragingKind.NONE:
                return
            case AveragingKind.EXPONENTIAL:
                count = self._updates
                new = 1.0 - min(self._averaging.decay, (1 + count) / (10 + count))
            case AveragingKind.TAIL:
                if step < self._first:
                    return
                new = 1.0 / (self._updates + 1)
        self._updates += 1
        for name, value in self._followed():
            self._average[name].lerp_(value, new)

    def state(self) -> dict[str, Tensor]:
        """All that a checkpoint needs to hold; nothing where nothing is averaged."""
        if not self.averages:
            return {}
        count = {_COUNT: torch.tensor(self._updates, dtype=torch.int64)}
        return count | {f"{_KEY}{name}": value.clone() for name, value in self._average.items()}

    def carried(self) -> dict[str, Tensor]:
        """What the next phase begins with: the exponential average goes on over phases."""
        return self.state() if self._averaging.kind is AveragingKind.EXPONENTIAL else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` took out.

        Raises:
          ParameterError: it is the state of another model's average, or of none.
        """
        if state.keys() != self.state().keys():
            raise ParameterError(
                "the stored average of the weights does not belong to this model and its "
                "training.averaging; go on with the settings that the campaign was started with"
            )
        for name, value in self._average.items():
            value.copy_(state[f"{_KEY}{name}"])
        if self.averages:
            self._updates = int(state[_COUNT])

    def averaged_state_dict(self) -> dict[str, Tensor]:
        """The model's state with averaged weights; the last ones before any step counts."""
        weights = {name: value.detach() for name, value in self._model.state_dict().items()}
        return weights | self._average if self._updates else weights

    def _followed(self) -> list[tuple[str, Tensor]]:
        """Name and present value of every parameter that trains."""
        named = self._model.named_parameters()
        return [(name, value.detach()) for name, value in named if value.requires_grad]
