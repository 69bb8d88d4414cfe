"""NOT PRIVATE: selections that compare records with each other, for the references of a book."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dpal.acquisition.non_private_selection import Floats, Rows, badge, core_set
from dpal.book.methods import BADGE, CORE_SET
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.randomness import seeded
from dpal.simulation.rehearsal import ReferencePick
from dpal.training.embeddings import embed
from dpal.training.predictions import probabilities

_BATCH = 1024  # records per forward pass


def reference_pick(method: str, spec: ModelSpec, *, seed: int) -> ReferencePick | None:
    """How a method selects; None where the highest scores are taken.

    Args:
      method: of the cell.
      spec: of the model.
      seed: of the draws that a method makes; records are public.

    Raises:
      ParameterError: gradients are asked for of several labels.
    """
    if method == BADGE and spec.task is Task.MULTI_LABEL:
        raise ParameterError(
            "method badge takes gradients at the one class that a model believes in, and these "
            "records have several labels; use core_set or exact"
        )
    picks: dict[str, Callable[[nn.Module, Tensor, Tensor, int], Rows]] = {
        CORE_SET: lambda model, unlabeled, labeled, count: (
            core_set(_embedded(model, unlabeled, spec), _embedded(model, labeled, spec), count).rows
        ),
        BADGE: lambda model, unlabeled, labeled, count: (
            badge(
                probabilities(model, unlabeled, physical_batch=_BATCH, task=spec.task),
                _embedded(model, unlabeled, spec),
                count,
                rng=seeded(seed, "badge"),
            ).rows
        ),
    }
    return picks.get(method)


def _embedded(model: nn.Module, inputs: Tensor, spec: ModelSpec) -> Floats:
    embeddings, _ = embed(model, inputs, classes=spec.classes, physical_batch=_BATCH)
    return embeddings
