"""Which records get labeled next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prefect import task
from prefect.cache_policies import NO_CACHE
from tqdm import tqdm

from dpal.acquisition.scores import Scores, score, score_function
from dpal.acquisition.selection import Selection, select, select_at_random
from dpal.acquisition.thresholds import Rows
from dpal.data.pool import UNLABELED, cohort_column, write_carried, write_selection
from dpal.data.readers import raw_batches, records_of
from dpal.planning.plan import Phase
from dpal.planning.selection import RandomDraw
from dpal.randomness import BitSource, secure
from dpal.training.evaluation import probabilities
from dpal.training.losses import probabilities_of
from dpal.training.mc_dropout import draw_masks, mc_probabilities
from tasks.context import Campaign, say
from tasks.training import load_model


@task(retries=0, cache_policy=NO_CACHE)  # a retry would be a second, unpaid release
def select_records(campaign: Campaign, phase: Phase) -> None:
    """Picks the records of a phase: charged and private, or at random and free."""
    target = campaign.files(phase).selection

    def draw() -> None:
        earlier = campaign.start.earlier
        if phase.index == 0 and earlier is not None and campaign.plan.spec.carries_labels:
            say(f"{phase.name}: starting with the labels of {earlier.folder.name}")
            write_carried(earlier.state, campaign.folder.start, target)
            return
        chosen = draw_records(campaign, phase, rng=secure())
        write_selection(campaign.pool, chosen.rows, chosen.retired, target)

    release = campaign.plan.release(phase.selection_release)
    if release is not None:
        with campaign.ledger() as ledger:
            ledger.settle(
                release, draw, inputs=[_state_before(campaign, phase)], artifacts=[target]
            )
    elif not target.exists():
        draw()


def draw_records(campaign: Campaign, phase: Phase, *, rng: BitSource) -> Selection:
    """Scores the pool and selects from it. Whoever keeps the result pays for it first."""
    spec, size = campaign.plan.spec, phase.cohort_size
    if isinstance(phase.selection, RandomDraw):
        say(f"{phase.name}: selecting {size:,} records at random")
        unlabeled = _unlabeled(campaign, phase)
        return select_at_random((rows[mask] for rows, mask in unlabeled), size, rng=rng)
    say(f"{phase.name}: selecting up to {size:,} records by {spec.acquisition}, {spec.selection}")
    width = score_function(spec.acquisition, task=spec.model.task).width(
        spec.model.classes, clipped=phase.selection.clips_scores
    )
    scored = _scored(campaign, phase, clipped=phase.selection.clips_scores, rng=rng)
    return select(phase.selection, scored, size, width=width, rng=rng)


def _unlabeled(campaign: Campaign, phase: Phase) -> Iterator[tuple[Rows, NDArray[np.bool_]]]:
    """Yields the row numbers of each batch of the pool, and which of them are unlabeled."""
    cohorts = cohort_column(_state_before(campaign, phase))
    for batch in raw_batches(campaign.pool, ["id"]):
        yield batch.rows, cohorts[batch.rows] == UNLABELED


def _state_before(campaign: Campaign, phase: Phase) -> Path:
    """The pool's state that a phase selects from."""
    if phase.index == 0:
        return campaign.folder.start
    return campaign.folder.phase(phase.index - 1).pool


def _scored(
    campaign: Campaign, phase: Phase, *, clipped: bool, rng: BitSource
) -> Iterator[tuple[Rows, Scores]]:
    """Scores the unlabeled pool with the last phase's model, batch by batch, never stored."""
    spec, physical = campaign.plan.spec, campaign.config.runtime.physical_batch
    model = load_model(campaign, phase.index - 1)
    label_task = spec.model.task
    reads_passes = score_function(spec.acquisition, task=label_task).reads_passes
    masks = draw_masks(model, rng=rng) if reads_passes else {}
    content = campaign.pool.content
    batches = zip(
        raw_batches(campaign.pool, [content.value]), _unlabeled(campaign, phase), strict=True
    )
    bar = tqdm(total=spec.pool_size, desc=f"{phase.name} scoring", unit="rec", disable=None,
               leave=False)  # fmt: skip
    with bar:
        for batch, (rows, mask) in batches:
            bar.update(rows.size)
            if not mask.any():
                continue
            # Labeled records go through the model, too: who shares a batch with whom must
            # not depend on who was selected, or another record's rounding would.
            inputs = records_of(campaign.pool, batch.table.column(0), first_row=batch.first_row)
            if reads_passes:
                guesses = mc_probabilities(
                    model,
                    inputs,
                    masks,
                    physical_batch=physical,
                    to_probabilities=probabilities_of(label_task),
                )
                guesses = guesses[:, mask]
            else:
                guesses = probabilities(model, inputs, physical_batch=physical, task=label_task)
                guesses = guesses[mask]
            yield rows[mask], score(spec.acquisition, guesses, task=label_task, clipped=clipped)
