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
from dpal.runs.campaign_run import Campaign
from dpal.runs.measured_figures import public_figures, worth_figures
from dpal.runs.notify import notify
from dpal.runs.phase_training import load_model
from dpal.training.evaluation import probabilities
from dpal.training.released_counts import (
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
    event = campaign.plan.figures
    if event is None:
        figures = _on_public_records(campaign, phase)
    else:
        figures = _released(campaign, phase, event)
    name, value = headline(as_metrics(figures))
    between = f" ({percent(figures[LOW])} to {percent(figures[HIGH])})" if LOW in figures else ""
    notify(f"{phase.name}: validation {name} {percent(value)}{between}")
    before = campaign.folder.finished_phases()[: phase.index]
    compared = against_best_before([*before, as_metrics(figures)], len(before))
    if compared is not None and compared.is_worse:
        notify(f"{phase.name}: {compared.words()}")
    return figures


def _on_public_records(campaign: Campaign, phase: Phase) -> dict[str, Any]:
    inputs, labels = load_all(campaign.validation)
    guesses = _guesses(campaign, phase, inputs)
    return public_figures(campaign.plan.spec.model.task, guesses, labels.numpy())


def _released(campaign: Campaign, phase: Phase, event: NoisyFigures) -> dict[str, Any]:
    """Reserves, draws, persists and commits the noisy counts of a phase; reads them if they are."""
    files, release = campaign.files(phase), campaign.plan.release(phase.figures_release)
    validation = campaign.plan.spec.validation
    if release is None or validation is None:
        raise ParameterError(f"{phase.figures_release} is not part of the plan")

    about = campaign.plan.spec.model

    def draw() -> None:
        measured = _measured(campaign, validation)
        drawn = draw_counts(
            _guesses(campaign, phase, measured.inputs),
            measured.labels.numpy(),
            event,
            task=about.task,
            counted=measured_counts(about, validation),
            owners=measured.owners,
            rng=secure(),
        )
        write_text(files.validation, drawn.to_json() + "\n")

    with campaign.ledger() as ledger:
        ledger.release_once(release, draw, inputs=[files.model], artifacts=[files.validation])
    counts = _read(files.validation)
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
class _Measured:
    """Protected records that are measured, and the number of each one's group where it has one."""

    inputs: Tensor
    labels: Tensor
    owners: NDArray[np.int64] | None


def _measured(campaign: Campaign, validation: ProtectedValidation) -> _Measured:
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
    return _Measured(inputs=inputs, labels=labels, owners=owners)


def _guesses(campaign: Campaign, phase: Phase, inputs: Tensor) -> NDArray[np.float64]:
    """Probabilities by the phase's model. Private where the records are."""
    return probabilities(
        load_model(campaign, phase.index),
        inputs,
        physical_batch=campaign.config.runtime.physical_batch,
        task=campaign.plan.spec.model.task,
    )
