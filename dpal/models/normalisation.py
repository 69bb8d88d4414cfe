"""Public numbers by which records are centred and scaled before a model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from dpal import check
from dpal.errors import ParameterError

if TYPE_CHECKING:  # a description of a model needs no torch
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """A mean and a standard deviation for each channel of images, or for each feature.

    They are constants, or measured on public records (`dpal.data.public_statistics`); those of the
    pool are private, and reading them off would have to be paid for.

    Attributes:
      mean: on the scale of a model's inputs, where pixels run from -1 to 1.
      std: on the same scale.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise ParameterError(
                f"normalisation has {len(self.mean)} means and {len(self.std)} standard "
                "deviations; give one of each for every channel or feature"
            )
        for mean, std in zip(self.mean, self.std, strict=True):
            check.within(-1e9, 1e9, **{"normalisation.mean": mean})
            check.positive(**{"normalisation.std": std})

    @classmethod
    def of_pixels(cls, mean: Sequence[float], std: Sequence[float]) -> Self:
        """From constants as they are usually printed, for pixels that run from 0 to 1."""
        return cls(
            mean=tuple(2 * value - 1 for value in mean), std=tuple(2 * value for value in std)
        )

    def require_fits(self, input_shape: tuple[int, ...]) -> None:
        """Requires as many numbers as records have channels or features.

        Raises:
          ParameterError: there are more or fewer.
        """
        if len(self.mean) != input_shape[0]:
            raise ParameterError(
                f"normalisation has {len(self.mean)} means, and records of shape "
                f"{tuple(input_shape)} have {input_shape[0]} channels or features; give one "
                "mean and one standard deviation for each"
            )

    def apply(self, inputs: Tensor) -> Tensor:
        """Centres and scales (n, channels, ...) or (n, features), record by record.

        Raises:
          ParameterError: the records are no numbers but tokens.
        """
        if not inputs.is_floating_point():
            raise ParameterError(
                "normalisation is for images and features, and these records are texts; leave "
                "it out"
            )
        shape = (-1, *[1] * (inputs.dim() - 2))
        mean, std = (inputs.new_tensor(numbers).reshape(shape) for numbers in (self.mean, self.std))
        return (inputs - mean) / std

    def attach(self, model: nn.Module) -> None:
        """Makes it the first thing that a model does, whoever calls it.

        A hook instead of a layer: parameters keep their names, so that weights with and
        without it are the same files.
        """
        model.register_forward_pre_hook(self._before_forward)

    def _before_forward(self, model: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.apply(arguments[0]), *arguments[1:])
