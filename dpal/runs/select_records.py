"""Which records get labeled next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpal.acquisition.noisy_threshold_search import Rows
from dpal.acquisition.scores import Passes, Scores, score_function
from dpal.acquisition.selection import (
    QueryHistory,
    Selection,
    select,
    select_at_random,
    select_by_coins,
)
from dpal.acquisition.strata import Strata
from dpal.canonical import file_digest
from dpal.config.runtime import TaskRunnerKind
from dpal.data.file_shards import Shard, shards_of
from dpal.data.groups import rows_of_groups
from dpal.data.labeling_state import (
    UNLABELED,
    cohort_column,
    group_column,
    read_retired,
    read_selection,
    read_selection_notes,
    write_carried,
    write_selection,
)
from dpal.data.readers import raw_batches
from dpal.data.sources import Role
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.selection_steps import RandomDraw, SecretRandomDraw, starts_at_validation
from dpal.randomness import BitSource, secure
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign import Campaign
from dpal.runs.host import host
from dpal.runs.progress_logging import notify
from dpal.runs.pseudo_labels import ask_nobody
from dpal.runs.score_records import (
    ScoredBatch,
    Scoring,
    ScoringPart,
    open_scorer,
    score_shard,
    strata_among,
)


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
            seen = campaign.plan.spec.selection is not SelectionMode.HIDDEN
            write_carried(earlier.state, campaign.folder.start, target, ids_are_seen=seen)
            return
        chosen = draw_records(campaign, phase, rng=secure())
        # Of a group its first record was drawn, and all of it is labeled.
        groups = group_column(campaign.folder.start)
        write_selection(
            campaign.pool,
            chosen.rows if groups is None else rows_of_groups(groups, chosen.rows),
            chosen.retired,
            target,
            candidates=chosen.candidates,
            noted=_noted(campaign, phase, chosen),
        )

    release = campaign.plan.release(phase.selection_release)
    if release is not None:
        with campaign.ledger() as ledger:
            inputs = [_state_before(campaign, phase), *_counted_before(campaign, phase)]
            ledger.release_once(release, draw, inputs=inputs, artifacts=[target])
    elif not target.exists():
        draw()


def draw_records(campaign: Campaign, phase: Phase, *, rng: BitSource) -> Selection:
    """Scores the pool and selects from it. Whoever keeps the result pays for it first."""
    spec, size, step = campaign.plan.spec, phase.cohort_size, phase.selection
    what = f"{spec.target.unit}s"
    if isinstance(step, SecretRandomDraw):
        notify(f"{phase.name}: drawing about {size:,} {what} by secret coins")
        unlabeled = _unlabeled(campaign, phase)
        return select_by_coins((rows[mask] for rows, mask in unlabeled), step, rng=rng)
    if isinstance(step, RandomDraw):
        notify(f"{phase.name}: selecting {size:,} {what} at random")
        unlabeled = _unlabeled(campaign, phase)
        return select_at_random((rows[mask] for rows, mask in unlabeled), size, rng=rng)
    asked = phase.records_in_words
    notify(f"{phase.name}: selecting {asked} {what} by {spec.acquisition}, {spec.selection}")
    width = score_function(spec.acquisition, task=spec.model.task).width(
        spec.model.classes, clipped=step.clips_scores
    )
    scoring = _scoring(campaign, phase, clipped=step.clips_scores, rng=rng)
    if score_function(spec.acquisition, task=spec.model.task).strata is not None:
        scoring = replace(scoring, strata=_strata(campaign, phase, scoring).to_bytes())
    history = None
    if starts_at_validation(step):
        history = _history(campaign, phase, scoring)
    scored = _scored(campaign, phase, scoring)
    return select(step, scored, size, width=width, rng=rng, history=history)


_COUNT, _PUBLIC, _PASSED = "noisy_count", "public_passed", "passed"


def _noted(campaign: Campaign, phase: Phase, chosen: Selection) -> dict[str, Any] | None:
    """What a gate tells later queries: released values, what follows from them, and the cap's."""
    if chosen.counted is None:
        return None
    left = _public_left(campaign, phase)
    noted = {
        _COUNT: chosen.counted.noisy_count,
        _PUBLIC: left[chosen.counted.public_passed].tolist(),
    }
    if campaign.plan.spec.groups is not None:
        # The selection names all records of a group. As confidential as the file.
        noted[_PASSED] = chosen.rows.size + chosen.retired.size
    return noted


def _counted_before(campaign: Campaign, phase: Phase) -> list[Path]:
    """Selections of earlier phases whose gates counted, in order."""
    return [
        campaign.files(earlier).selection
        for earlier in campaign.plan.phases[: phase.index]
        if starts_at_validation(earlier.selection)
    ]


def _public_left(campaign: Campaign, phase: Phase) -> Rows:
    """Rows of the validation set that passed no earlier gate, as the pool's records left it."""
    passed = [
        row
        for path in _counted_before(campaign, phase)
        for row in read_selection_notes(path)[_PUBLIC]
    ]
    rows = [batch.rows for batch in raw_batches(campaign.public_records, ["id"])]
    return np.setdiff1d(np.concatenate(rows), passed)


def _strata(campaign: Campaign, phase: Phase, scoring: Scoring) -> Strata:
    """Strata of the validation set, without those that passed an earlier gate."""
    scorer = open_scorer(replace(scoring, role=Role.VALIDATION), campaign.public_records)
    return strata_among(
        scorer, shards_of(campaign.public_records, 1), _public_left(campaign, phase)
    )


def _history(campaign: Campaign, phase: Phase, scoring: Scoring) -> QueryHistory:
    """What was counted and selected before, and the validation set's scores."""
    before = _counted_before(campaign, phase)
    noisy_count = sum(int(read_selection_notes(path)[_COUNT]) for path in before)
    selected = sum(_passed(path) for path in before)
    scorer = open_scorer(replace(scoring, role=Role.VALIDATION), campaign.public_records)
    batches = [
        batch.scores
        for shard in shards_of(campaign.public_records, 1)
        for batch in scorer.scored(shard)
    ]
    spec = campaign.plan.spec
    return QueryHistory(
        left=spec.offered_to_queries - noisy_count,
        noisy_count=noisy_count,
        selected=selected,
        public_scores=np.concatenate(batches)[_public_left(campaign, phase)],
    )


def _passed(selection: Path) -> int:
    """How many records, or groups, passed a gate. Confidential."""
    noted = read_selection_notes(selection)
    if _PASSED in noted:
        return int(noted[_PASSED])
    return len(read_selection(selection)) + len(read_retired(selection))


def _unlabeled(campaign: Campaign, phase: Phase) -> Iterator[tuple[Rows, NDArray[np.bool_]]]:
    """Yields the row numbers of each batch of the pool, and which of them are unlabeled."""
    cohorts = cohort_column(_state_before(campaign, phase))
    for batch in raw_batches(campaign.pool, ["id"], large=True):
        yield batch.rows, cohorts[batch.rows] == UNLABELED


def _state_before(campaign: Campaign, phase: Phase) -> Path:
    """The pool's state that a phase selects from."""
    if phase.index == 0:
        return campaign.folder.start
    return campaign.folder.phase(phase.index - 1).pool


def _scored(campaign: Campaign, phase: Phase, scoring: Scoring) -> Iterator[tuple[Rows, Scores]]:
    """Scores the unlabeled pool with the last phase's model, batch by batch, never stored."""
    runtime = campaign.config.runtime
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
    passes = score_function(spec.acquisition, task=spec.model.task).passes
    carried = None
    if passes is Passes.COMMITTEE and phase.index > 0:
        path = campaign.folder.phase(phase.index - 1).optimizer.resolve()
        carried = (path, file_digest(path))
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
        mask_word=int(rng.words(1)[0]) if passes is Passes.DROPOUT else None,
        carried=carried,
    )
