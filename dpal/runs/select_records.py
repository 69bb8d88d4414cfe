"""Which records get labeled next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpal.acquisition.scores import Scores, score_function
from dpal.acquisition.selection import Selection, select, select_at_random, select_by_coins
from dpal.acquisition.thresholds import Rows
from dpal.canonical import file_digest
from dpal.config.runtime import TaskRunnerKind
from dpal.data.labeling_state import UNLABELED, cohort_column, write_carried, write_selection
from dpal.data.readers import raw_batches
from dpal.data.shards import Shard, shards_of
from dpal.planning.campaign_plan import Phase
from dpal.planning.selection_steps import RandomDraw, SecretRandomDraw
from dpal.randomness import BitSource, secure
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign_run import Campaign
from dpal.runs.host import host
from dpal.runs.notify import notify
from dpal.runs.pseudo_labels import ask_nobody
from dpal.runs.score_records import ScoredBatch, Scoring, ScoringPart, open_scorer, score_shard


def select_records(campaign: Campaign, phase: Phase) -> None:
    """Picks the records of a phase: charged and private, or at random and free."""
    if phase.is_self_training:
        ask_nobody(campaign, phase)
        return
    target = campaign.files(phase).selection

    def draw() -> None:
        earlier = campaign.start.earlier
        if phase.index == 0 and earlier is not None and campaign.plan.spec.carries_labels:
            notify(f"{phase.name}: starting with the labels of {earlier.folder.name}")
            write_carried(earlier.state, campaign.folder.start, target)
            return
        chosen = draw_records(campaign, phase, rng=secure())
        write_selection(campaign.pool, chosen.rows, chosen.retired, target)

    release = campaign.plan.release(phase.selection_release)
    if release is not None:
        with campaign.ledger() as ledger:
            ledger.release_once(
                release, draw, inputs=[_state_before(campaign, phase)], artifacts=[target]
            )
    elif not target.exists():
        draw()


def draw_records(campaign: Campaign, phase: Phase, *, rng: BitSource) -> Selection:
    """Scores the pool and selects from it. Whoever keeps the result pays for it first."""
    spec, size = campaign.plan.spec, phase.cohort_size
    if isinstance(phase.selection, SecretRandomDraw):
        notify(f"{phase.name}: drawing about {size:,} records by secret coins")
        unlabeled = _unlabeled(campaign, phase)
        return select_by_coins((rows[mask] for rows, mask in unlabeled), phase.selection, rng=rng)
    if isinstance(phase.selection, RandomDraw):
        notify(f"{phase.name}: selecting {size:,} records at random")
        unlabeled = _unlabeled(campaign, phase)
        return select_at_random((rows[mask] for rows, mask in unlabeled), size, rng=rng)
    notify(
        f"{phase.name}: selecting up to {size:,} records by {spec.acquisition}, {spec.selection}"
    )
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
    runtime = campaign.config.runtime
    scoring = _scoring(campaign, phase, clipped=clipped, rng=rng)
    shards = shards_of(campaign.pool, runtime.shards)
    cohorts = cohort_column(_state_before(campaign, phase))
    with tqdm(total=cohorts.size, desc=f"{phase.name} scoring", unit="rec", disable=None,
              leave=False) as bar:  # fmt: skip
        for batch in _scored_batches(scoring, shards, campaign):
            rows = batch.rows
            bar.update(rows.size)
            # Who is labeled is known here alone: workers score everyone.
            mask = cohorts[rows] == UNLABELED
            if mask.any():
                yield rows[mask], batch.scores[mask]


def _scored_batches(
    scoring: Scoring, shards: Sequence[Shard], campaign: Campaign
) -> Iterator[ScoredBatch]:
    """Scores of all records in the order of the pool, from here or from workers."""
    if campaign.config.runtime.task_runner is TaskRunnerKind.LOCAL:
        scorer = open_scorer(scoring, campaign.pool)
        return (batch for shard in shards for batch in scorer.scored(shard))
    parts = [ScoringPart(scoring=scoring, shard=shard) for shard in shards]
    results = host().run_parts(score_shard, parts, campaign.config.runtime)
    return (batch for result in results for batch in result)


def _scoring(campaign: Campaign, phase: Phase, *, clipped: bool, rng: BitSource) -> Scoring:
    """How the phase's pool is scored: by the model of the phase before."""
    spec = campaign.plan.spec
    weights = None
    if phase.index > 0:
        weights = campaign.folder.phase(phase.index - 1).model.resolve()
    elif campaign.start.earlier is not None:
        weights = campaign.folder.start_model.resolve()
    passes = score_function(spec.acquisition, task=spec.model.task).reads_passes
    public = spec.model.weights and str(Path(spec.model.weights).resolve())
    return Scoring(
        config=with_absolute_paths(campaign.config).model_dump_json(),
        role=campaign.pool.role,
        model=replace(spec.model, weights=public),
        weights=weights,
        digest=None if weights is None else file_digest(weights),
        acquisition=spec.acquisition,
        clipped=clipped,
        device=campaign.device,
        mask_word=int(rng.words(1)[0]) if passes else None,
    )
