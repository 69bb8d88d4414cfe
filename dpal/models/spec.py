"""The description of a model, without the weight of importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from dpal import check


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Which architecture is trained, from which public starting point.

    Attributes:
      name: a name registered in `dpal.models.registry`.
      input_shape: shape of one record as the model sees it, such as (1, 28, 28).
      classes: number of classes.
      activation: "tanh" or "relu", where the architecture has one.
      hidden: widths of the hidden layers of an MLP.
      seed: of the initial weights; public.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    activation: str = "tanh"
    hidden: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(2, classes=self.classes)
        check.one_of(("tanh", "relu"), activation=self.activation)
        for size in (*self.input_shape, *self.hidden):
            check.at_least(1, **{"model sizes": size})
