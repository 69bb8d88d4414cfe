"""The last phase of a campaign that trains itself: its model labels whom nobody labeled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.labeling_state import (
    cohort_column,
    load_all,
    write_labels,
    write_pseudo_labeled,
    write_selection,
)
from dpal.data.readers import apply_extractor, raw_batches
from dpal.labels import Task
from dpal.planning.campaign_plan import Phase
from dpal.randomness import secure
from dpal.runs.campaign import Campaign
from dpal.runs.phase_training import load_model
from dpal.runs.progress_logging import notify
from dpal.training.augmentation import view_generator
from dpal.training.pseudo_labels import (
    PseudoLabeler,
    fitted_labeler,
    probabilities_over_views,
    unweighted_labeler,
)

_NOBODY = np.empty(0, dtype=np.int64)

Predict = Callable[[torch.Tensor], NDArray[np.float64]]


def ask_nobody(campaign: Campaign, phase: Phase) -> None:
    """Writes a selection and answers in which nobody is: who is left trains without being asked."""
    files = campaign.files(phase)
    if not files.labels.exists():  # the answers first: no query is open at any moment
        write_labels({}, files.labels)
    if not files.selection.exists():
        write_selection(campaign.pool, _NOBODY, _NOBODY, files.selection)


def label_remaining(campaign: Campaign, phase: Phase) -> None:
    """Lets all that are left enter the pool as a cohort, with the labels that the model gives them.

    The model is the one of the phase before, which is released. A record's pseudo-label depends on
    it, on public records and on that record alone. Records that annotators skipped and that left
    the pool stay out.
    """
    files = campaign.files(phase)
    if files.pool.exists():
        return
    notify(f"{phase.name}: the model of phase {phase.index - 1} labels all records that are left")
    model, about = load_model(campaign, phase.index - 1), campaign.plan.spec.model.task
    batch, generator = campaign.config.runtime.physical_batch, view_generator(secure())

    def predict(inputs: torch.Tensor) -> NDArray[np.float64]:
        return probabilities_over_views(
            model,
            inputs,
            augmentation=campaign.plan.spec.recipe.augmentation,
            generator=generator,
            physical_batch=batch,
            task=about,
        )

    if campaign.plan.figures is None:
        inputs, labels = load_all(campaign.public_records)
        labeler = fitted_labeler(about, predict(inputs), labels.numpy())
    else:  # how often each class comes is known of no public records
        labeler = unweighted_labeler(about, campaign.plan.spec.model.classes)
    before = campaign.folder.phase(phase.index - 1).pool
    guessed = _guessed(campaign, predict, labeler, rows=cohort_column(before).size)
    write_pseudo_labeled(before, guessed, phase.index, files.pool)


def _guessed(
    campaign: Campaign, predict: Predict, labeler: PseudoLabeler, *, rows: int
) -> NDArray[np.int16]:
    """Pseudo-labels of all rows of the pool's file, the labeled as well: (n,) or (n, labels).

    Who shares a batch with whom must not depend on who was selected, or another record's rounding
    would.
    """
    model = campaign.plan.spec.model
    several = model.task is Task.MULTI_LABEL
    guessed = np.empty((rows, model.classes) if several else rows, dtype=np.int16)
    content = campaign.pool.content.value
    with tqdm(total=rows, desc="pseudo-labels", unit="rec", disable=None, leave=False) as bar:
        for batch, decoded in decoded_ahead(campaign.pool, raw_batches(campaign.pool, [content])):
            inputs = apply_extractor(campaign.pool, decoded)
            guessed[batch.rows] = labeler.label(predict(inputs))
            bar.update(batch.rows.size)
    return guessed
