"""Which records get labeled next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from prefect import task
from prefect.cache_policies import NO_CACHE
from tqdm import tqdm

from dpal.accounting.events import Release
from dpal.acquisition.scores import SCORES, score
from dpal.acquisition.selection import select_at_random, select_by_noisy_score
from dpal.data.pool import UNLABELED, cohort_column, write_selection
from dpal.data.readers import decode, raw_batches
from dpal.planning.plan import Phase
from dpal.randomness import secure
from dpal.training.evaluation import probabilities
from tasks.context import Campaign, say
from tasks.training import load_model

Rows = NDArray[np.int64]


@task(retries=0, cache_policy=NO_CACHE)  # a retry would be a second, unpaid release
def select_records(campaign: Campaign, phase: Phase) -> None:
    """Picks the records of a phase: charged and private, or at random and free."""
    target = campaign.files(phase).selection
    release = campaign.plan.release(phase.selection_release)
    if release is None:
        if not target.exists():
            say(f"{phase.name}: selecting {phase.cohort_size:,} records at random")
            unlabeled = _unlabeled(campaign, phase)
            chosen = select_at_random(
                (rows[mask] for rows, mask in unlabeled), phase.cohort_size, rng=secure()
            )
            write_selection(campaign.pool, chosen, target)
        return
    _select_privately(campaign, phase, release, target)


def _select_privately(campaign: Campaign, phase: Phase, release: Release, target: Path) -> None:
    acquisition = campaign.plan.spec.acquisition

    def draw() -> None:
        say(
            f"{phase.name}: selecting {phase.cohort_size:,} records by {acquisition}, "
            f"epsilon {phase.selection_epsilon:g}"
        )
        chosen = select_by_noisy_score(
            _scored(campaign, phase),
            phase.cohort_size,
            width=SCORES[acquisition].width(campaign.plan.spec.model.classes),
            epsilon=phase.selection_epsilon,
            rng=secure(),
        )
        write_selection(campaign.pool, chosen, target)

    with campaign.ledger() as ledger:
        ledger.settle(release, draw, inputs=[_state_before(campaign, phase)], artifacts=[target])


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


def _scored(campaign: Campaign, phase: Phase) -> Iterator[tuple[Rows, NDArray[np.float64]]]:
    """Scores the unlabeled pool with the last phase's model, batch by batch, never stored."""
    spec, runtime = campaign.plan.spec, campaign.config.runtime
    model = load_model(campaign, phase.index - 1)
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
            column = batch.table.column(0).filter(pa.array(mask))
            inputs = decode(content, column, first_row=batch.first_row)
            guesses = probabilities(model, inputs, physical_batch=runtime.physical_batch)
            yield rows[mask], score(spec.acquisition, guesses)
