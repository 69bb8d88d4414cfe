"""What a phase's model can do: figures on public records, or noisy ones on protected records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import NoisyFigures
from dpal.data.labeling_state import load_all
from dpal.errors import ParameterError
from dpal.files.artifacts import damaged
from dpal.files.atomic_writes import write_text
from dpal.planning.campaign_plan import Phase
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
    guesses, labels = _predicted(campaign, phase)
    return public_figures(campaign.plan.spec.model.task, guesses, labels)


def _released(campaign: Campaign, phase: Phase, event: NoisyFigures) -> dict[str, Any]:
    """Reserves, draws, persists and commits the noisy counts of a phase; reads them if they are."""
    files, release = campaign.files(phase), campaign.plan.release(phase.figures_release)
    validation = campaign.plan.spec.validation
    if release is None or validation is None:
        raise ParameterError(f"{phase.figures_release} is not part of the plan")

    about = campaign.plan.spec.model

    def draw() -> None:
        guesses, labels = _predicted(campaign, phase)
        drawn = draw_counts(
            guesses,
            labels,
            event,
            task=about.task,
            counted=measured_counts(about, validation),
            records=validation.records,
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


def _predicted(campaign: Campaign, phase: Phase) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities and labels of all validation records. Private where those are."""
    inputs, labels = load_all(campaign.validation)
    guesses = probabilities(
        load_model(campaign, phase.index),
        inputs,
        physical_batch=campaign.config.runtime.physical_batch,
        task=campaign.plan.spec.model.task,
    )
    return guesses, labels.numpy()
