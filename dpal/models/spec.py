"""The description of a model, without the weight of importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpal import check
from dpal.canonical import LATER, PLACE
from dpal.labels import Task as Task
from dpal.models.normalisation import Normalisation

ADAPTED = ("query", "value")  # of attention, as Hu et al. (2022) do


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Which architecture is trained, from which public starting point.

    Attributes:
      name: a name registered in `dpal.models.architectures`.
      input_shape: shape of one record as the model sees it, such as (1, 28, 28).
      classes: number of classes, or of labels in a multi-label task.
      task: what a record's label is.
      activation: "tanh" or "relu", where the architecture has one.
      hidden: widths of the hidden layers of an MLP.
      dropout: chance that a unit is dropped in training, where the architecture drops any.
      weights: local file or folder of public pretrained weights, or None for fresh ones;
        where it lies is no part of a plan.
      weights_digest: of what lies there, by `dpal.canonical.place_digest`; part of a plan.
      trainable: prefixes of the parameters that train; empty for all of them.
      normalisation: public numbers by which inputs are centred and scaled, or None.
      seed: of the initial weights; public.
      adapter_rank: of low-rank adapters that train in place of the layers they stand beside; 0 for
        none.
      adapted_layers: last parts of the names of linear layers that get one.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    task: Task = Task.SINGLE_LABEL
    activation: str = "tanh"
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    weights: str | None = field(default=None, metadata=PLACE)
    weights_digest: str | None = None
    trainable: tuple[str, ...] = ()
    normalisation: Normalisation | None = None
    seed: int = 0
    adapter_rank: int = field(default=0, metadata=LATER)
    adapted_layers: tuple[str, ...] = field(default=ADAPTED, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(1 if self.task is Task.MULTI_LABEL else 2, classes=self.classes)
        check.within(0, 0.99, dropout=self.dropout)
        check.within(0, 1024, adapter_rank=self.adapter_rank)
        check.one_of(("tanh", "relu"), activation=self.activation)
        for size in (*self.input_shape, *self.hidden):
            check.at_least(1, **{"model sizes": size})
        if self.normalisation is not None:
            self.normalisation.require_fits(self.input_shape)


def spec_from(record: Mapping[str, Any]) -> ModelSpec:
    """Reads a description that was written as JSON (`dpal.canonical.plain`); without weights.

    Public weights that training began with need not be here: the trained ones follow.
    """
    sizes: dict[str, Any] = {
        key: tuple(value) for key, value in record.items() if isinstance(value, list)
    }
    public = record.get("normalisation")
    if public is not None:
        sizes["normalisation"] = Normalisation(**{k: tuple(v) for k, v in public.items()})
    about = {**record, **sizes, "task": Task(record["task"])}
    return ModelSpec(**{**about, "weights": None, "weights_digest": None})
