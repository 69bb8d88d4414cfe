"""What a tracking server is told of runs, beside their promise and their certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpal.accounting.events import to_record
from dpal.data.sources import Source
from dpal.features.spec import ExtractorSpec
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import CampaignSpec, OptimizerSpec


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that is released, and what it takes.

    Attributes:
      weights: its .safetensors file.
      spec: its architecture.
      extractor: what makes its features.
      source: records of the kind that it takes.
      class_names: names in class order; empty when the data has none.
    """

    weights: Path
    spec: ModelSpec
    extractor: ExtractorSpec
    source: Source
    class_names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Public facts of a finished run.

    Attributes:
      parameters: settings worth comparing runs by.
      figures: numbers, among them those on the validation set.
      tags: beside those that every run has.
      records: JSON files by name.
      model: what is registered; None for none.
    """

    parameters: Mapping[str, object]
    figures: Mapping[str, float]
    tags: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    model: ServedModel | None = None


def campaign_parameters(spec: CampaignSpec) -> dict[str, Any]:
    """What a person compares; the rest stands in plan.json."""
    target, schedule = spec.target, spec.schedule
    return {
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.6g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": spec.accountant.value,
        "selection": spec.selection.value,
        "strategy": spec.strategy.value,
        "acquisition": spec.acquisition.value,
        "pool_size": spec.pool_size,
        "initial": schedule.initial,
        "queries": ", ".join(map(str, schedule.queries)) or "none",
        "batch_size": schedule.batch_size,
        "epochs_per_phase": schedule.epochs_per_phase,
        "model": spec.model.name,
        **({} if spec.search is None else {"trials": len(spec.trials)}),
        **_training_parameters(spec),
    }


def _training_parameters(spec: CampaignSpec) -> dict[str, Any]:
    """How models are made: what an optimizer is told, or how a head is fitted."""
    if spec.head is not None:
        return {"method": spec.head.kind.value, "components": spec.head.components}
    return _optimizer_parameters(spec.trials or (spec.optimizer,))


def _optimizer_parameters(tried: Sequence[OptimizerSpec]) -> dict[str, str]:
    """What most decides how a training ends; of a search all values that are tried."""
    return {
        "optimizer": _values(one.name for one in tried),
        "learning_rate": _values(f"{one.learning_rate:g}" for one in tried),
        "max_grad_norm": _values(f"{one.max_grad_norm:g}" for one in tried),
    }


def _values(tried: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(tried))


def phase_parameters(phase: Phase, optimizer: OptimizerSpec) -> dict[str, Any]:
    """What sets a phase apart from the others; all of it as planned, or as a search found it.

    Args:
      phase: of the plan.
      optimizer: that it was trained with.
    """
    training = phase.training
    events = ", ".join(to_record(event)["mechanism"] for event in phase.selection.events)
    return {
        "new_labels": phase.labels,
        "selection": events or ("all that are left" if phase.is_self_training else "by chance"),
        "steps": phase.steps,
        "noise_multiplier": f"{training.noise_multiplier:.6g}",
        "sample_rate_old": f"{training.sample_rate_old:.6g}",
        "sample_rate_new": f"{training.sample_rate_new:.6g}",
        "expected_batch_size": f"{training.expected_batch_size:.6g}",
        **({} if training.statistics else _optimizer_parameters([optimizer])),
    }
