"""What a phase's model can do: figures on public records, or noisy ones on protected records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.accounting.events import NoisyFigures
from dpal.data.groups import measured_owners
from dpal.data.labeling_state import load_all
from dpal.errors import DataError, ParameterError
from dpal.files.artifacts import damaged
from dpal.files.atomic_writes import write_text
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import ProtectedValidation
from dpal.planning.measured_phases import measured_counts
from dpal.randomness import secure
from dpal.reports.validation_figures import (
    HIGH,
    LOW,
    RECORDS,
    STANDARD_ERROR,
    against_best_before,
    as_metrics,
    headline,
    interval_ends,
    percent,
)
from dpal.runs.campaign import Campaign
from dpal.runs.phase_training import model_with
from dpal.runs.progress_logging import notify
from dpal.runs.public_model_figures import public_figures, worth_figures
from dpal.training.evaluation import probabilities
from dpal.training.noisy_validation_counts import (
    ReleasedCounts,
    draw_counts,
    further_figures,
    headline_of,
    worth_of,
)


def measure(campaign: Campaign, phase: Phase) -> dict[str, Any]:
    """Figures of the phase's model on the validation set.

    Where that is protected they are charged to its records before they are drawn, once for each
    phase; all else here follows from what was released.

    Raises:
      LedgerError: the release of a protected phase is not what it was, or not planned.
    """
    files = campaign.files(phase)
    measured = Measured(
        name=phase.name,
        weights=files.model,
        released=files.validation,
        release=phase.figures_release,
    )
    figures = figures_of(campaign, measured)
    before = campaign.folder.finished_phases()[: phase.index]
    compared = against_best_before([*before, as_metrics(figures)], len(before))
    if compared is not None and compared.is_worse:
        notify(f"{phase.name}: {compared.words()}")
    return figures


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A model whose figures are wanted.

    Attributes:
      name: for people, such as phase-2.
      weights: file of its weights.
      released: where the noisy counts of a protected validation set lie.
      release: in the plan, that charges them.
    """

    name: str
    weights: Path
    released: Path
    release: str


def figures_of(campaign: Campaign, measured: Measured) -> dict[str, Any]:
    """Figures of a model on the validation set; noisy ones, and charged, where that is protected.

    Raises:
      LedgerError: as `measure`.
    """
    event = campaign.plan.figures
    if event is None:
        figures = _on_public_records(campaign, measured)
    else:
        figures = _released(campaign, measured, event)
    name, value = headline(as_metrics(figures))
    between = f" ({percent(figures[LOW])} to {percent(figures[HIGH])})" if LOW in figures else ""
    notify(f"{measured.name}: validation {name} {percent(value)}{between}")
    return figures


def _on_public_records(campaign: Campaign, measured: Measured) -> dict[str, Any]:
    inputs, labels = load_all(campaign.validation)
    guesses = _guesses(campaign, measured, inputs)
    return public_figures(campaign.plan.spec.model.task, guesses, labels.numpy())


def _released(campaign: Campaign, model: Measured, event: NoisyFigures) -> dict[str, Any]:
    """Reserves, draws, persists and commits the noisy counts of a model; reads them if they are."""
    release, validation = campaign.plan.release(model.release), campaign.plan.spec.validation
    if release is None or validation is None:
        raise ParameterError(f"{model.release} is not part of the plan")

    about = campaign.plan.spec.model

    def draw() -> None:
        records = _records(campaign, validation)
        drawn = draw_counts(
            _guesses(campaign, model, records.inputs),
            records.labels.numpy(),
            event,
            task=about.task,
            counted=measured_counts(about, validation),
            owners=records.owners,
            rng=secure(),
        )
        write_text(model.released, drawn.to_json() + "\n")

    with campaign.ledger() as ledger:
        ledger.release_once(release, draw, inputs=[model.weights], artifacts=[model.released])
    counts = _read(model.released)
    name, interval = headline_of(counts)
    return {
        name: interval.value,
        LOW: interval.low,
        HIGH: interval.high,
        RECORDS: float(counts.records),
        STANDARD_ERROR: interval.standard_error,
        **worth_figures(worth_of(counts)),
        **{
            key: value
            for figure, told in further_figures(counts)
            for key, value in {
                **interval_ends(figure, told.low, told.high),
                **({f"{figure}_binning": told.hidden} if told.hidden else {}),
            }.items()
        },
    }


def _read(path: Path) -> ReleasedCounts:
    try:
        return ReleasedCounts.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path) from error


@dataclass(frozen=True, kw_only=True)
class _Records:
    """Protected records that are measured, and the number of each one's group where it has one."""

    inputs: Tensor
    labels: Tensor
    owners: NDArray[np.int64] | None


def _records(campaign: Campaign, validation: ProtectedValidation) -> _Records:
    """Loads the records that are charged for: all, or the first of each group.

    Raises:
      DataError: they are not as many as were planned for.
    """
    (inputs, labels), owners = load_all(campaign.validation), None
    column = campaign.group_column
    if column is not None:
        kept = measured_owners(campaign.validation, column, validation.group_records)
        rows = torch.from_numpy(kept.rows)
        inputs, labels, owners = inputs[rows], labels[rows], kept.owners
    if len(labels) != validation.records:
        raise DataError(
            f"{campaign.validation.name} has other records than the plan was made for; restore it"
        )
    return _Records(inputs=inputs, labels=labels, owners=owners)


def _guesses(campaign: Campaign, measured: Measured, inputs: Tensor) -> NDArray[np.float64]:
    """Probabilities by a model. Private where the records are."""
    return probabilities(
        model_with(campaign, measured.weights),
        inputs,
        physical_batch=campaign.config.runtime.physical_batch,
        task=campaign.plan.spec.model.task,
    )
