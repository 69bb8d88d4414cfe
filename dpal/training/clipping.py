"""How a record's gradient is bounded, and how much noise goes with the bound.

Kinds are named in `dpal.planning.training_recipe.ClippingKind`.

Source:
  Per layer: McMahan, Ramage, Talwar & Zhang (2018), Sec. 3 (each layer to its share).
  Adaptive: Andrew, Thakkar, McMahan & Ramaswamy (2021), Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dpal import check
from dpal.planning.training_recipe import LEAST_NORM, Clipping, ClippingKind, Precision
from dpal.training.per_record.layer_rules import find_layers

_FURTHEST = 1e6  # an adaptive bound stays within this factor of where it began
_BOUND = "bound"


class Clipper:
    """Weights that keep each record's contribution at or below a bound.

    Records are counted where the bound is adaptive; the count is a sum over records like
    the gradient, and leaves with noise of its own (`PrivateGradient`).
    """

    def __init__(
        self,
        clipping: Clipping,
        *,
        max_grad_norm: float,
        precision: Precision = Precision.FP32,
    ) -> None:
        """Starts at the public bound.

        Args:
          clipping: what is clipped.
          max_grad_norm: the bound C, LEAST_NORM at least; of an adaptive one the start.
          precision: of the passes. Norms may be wrong by its slack, so weights aim below C
            by as much: every contribution stays at C, and the noise multiplier is true.
        """
        check.at_least(LEAST_NORM, max_grad_norm=max_grad_norm)
        self.bound = self._first = max_grad_norm
        self._clipping, self._slack = clipping, precision.slack
        self._whole = 0.0

    @property
    def adaptive(self) -> bool:
        """Whether the bound moves, so that a count must be released."""
        return self._clipping.kind is ClippingKind.ADAPTIVE

    def groups(self, model: nn.Module) -> list[int]:
        """For each parameter that trains, the group it is clipped with.

        Parameters of one layer stay together; shared ones go with their first layer.
        """
        numbers: dict[int, int] = {}
        for number, (_, layer) in enumerate(find_layers(model)):
            for parameter in layer.parameters():
                if parameter.requires_grad:
                    numbers.setdefault(id(parameter), number)
        layer_numbers = [numbers[id(p)] for p in model.parameters() if p.requires_grad]
        if self._clipping.kind is not ClippingKind.PER_LAYER:
            return [0] * len(layer_numbers)
        order = {number: position for position, number in enumerate(dict.fromkeys(layer_numbers))}
        return [order[number] for number in layer_numbers]

    def weigh(self, squared: Tensor) -> Tensor:
        """Weights (groups, n) of records with squared norms (groups, n); 0 if not finite."""
        finite = squared.isfinite().all(dim=0)
        share = self.bound / math.sqrt(len(squared))
        norms = torch.where(finite, squared, 0.0).sqrt()
        if self.adaptive:
            # A half less: a blank record adds 0, so that one record moves the sum by a half.
            whole = (norms[0] <= self.bound) & finite
            self._whole += float(whole.sum()) - 0.5 * float(finite.sum())
        weights = (share / (norms * (1 + self._slack))).clamp(max=1.0)
        return torch.where(finite, weights, 0.0)

    def take_count(self) -> float:
        """Sum over the records weighed since the last call: 1/2 if whole, -1/2 if clipped."""
        count, self._whole = self._whole, 0.0
        return count

    def gradient_noise(self, noise_multiplier: float, *, expected_batch_size: float) -> float:
        """Noise multiplier of the gradient alone, when gradient and count cost as planned.

        Raises:
          ParameterError: the count's noise leaves no room for the gradient.
        """
        return self._clipping.gradient_noise(
            noise_multiplier, expected_batch_size=expected_batch_size
        )

    def count_deviation(self, expected_batch_size: float) -> float:
        """Standard deviation of the noise on the count."""
        return self._clipping.count_noise * expected_batch_size

    def move(self, noisy_count: float, *, expected_batch_size: float) -> None:
        """Moves the bound towards the quantile; `noisy_count` is released by then."""
        share = noisy_count / expected_batch_size + 0.5
        wanted = self._clipping.quantile
        change = -self._clipping.quantile_step * (min(max(share, 0.0), 1.0) - wanted)
        bound = self.bound * math.exp(change)
        self.bound = min(max(bound, self._first / _FURTHEST), self._first * _FURTHEST)

    def state(self) -> dict[str, Tensor]:
        """What a resumed training needs: an adaptive bound, which is released."""
        return {_BOUND: torch.tensor(self.bound, dtype=torch.float64)} if self.adaptive else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` gave."""
        if self.adaptive and _BOUND in state:
            self.bound = float(state[_BOUND])
