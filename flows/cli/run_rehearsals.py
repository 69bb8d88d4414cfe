"""What `dpal rehearse` runs and shows: ways of selecting, side by side, on public data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpal.config.campaign import CampaignConfig
from dpal.config.validation import require_public
from dpal.data.inspect_rows import Inventory, inspect, require_match
from dpal.data.labeling_state import load_all, read_ids
from dpal.errors import DpalError
from dpal.planning.certify_campaign import certified_plan
from dpal.randomness import seeded
from dpal.reports.plots.rehearsal import rehearsal_figure
from dpal.reports.plots.style import save
from dpal.runs.devices import device_here
from dpal.runs.open_sources import open_sources
from dpal.runs.plan_new_campaign import require_unregistered
from dpal.simulation.evaluation_parts import EvaluationPart, rows_in_part
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from dpal.simulation.seeded_bits import SeededBits

Records = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One campaign to rehearse.

    Attributes:
      config: the campaign; its pool is public and fully labeled.
      method: how to select.
      run: number of the repetition; chooses initial weights, the initial cohort and the subset,
        the same for every method, and no noise.
      long_tail: keep a record of class c with chance long_tail**c; 1.0 keeps all.
      part: of the validation file, which figures are of.
    """

    config: CampaignConfig
    method: RehearsalMethod
    run: int
    long_tail: float
    part: EvaluationPart


def run_rehearsals(
    wanted: Sequence[Rehearsal],
    *,
    jobs: int,
    on_records: Callable[[Records], None] = lambda records: None,
) -> tuple[Records, dict[str, str]]:
    """Runs all of them in `jobs` processes.

    Returns:
      One record each, and by method why it has no plan.

    `on_records` is told all records so far after each run: hours of work may be cut short.
    """
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes,
        tqdm(total=len(wanted), desc="rehearsing", unit="campaign", disable=None) as bar,
    ):
        running = [
            processes.submit(_run, rehearsal, 1 if jobs > 1 else None) for rehearsal in wanted
        ]
        records: Records = []
        refused: dict[str, str] = {}
        for done in as_completed(running):
            record = done.result()
            bar.update()
            if "refused" in record:
                refused[record["method"]] = record["refused"]
                continue
            records.append(record)
            records.sort(key=lambda row: (list(RehearsalMethod).index(row["method"]), row["run"]))
            on_records(records)
    return records, refused


def write_figure(records: Records, folder: Path) -> Path:
    """Draws accuracy by labels and returns the figure's path."""
    first, path = records[0], folder / f"rehearsal-{records[0]['campaign']}.png"
    below = (
        f"epsilon {first['target_epsilon']:g}, delta {first['delta']:.3g}, adjacency "
        f"{first['adjacency']}, unit {first['unit']}; pool of about {first['pool']:,}, public"
    )
    figure = rehearsal_figure(records, f"Ways of selecting: {first['campaign']}", below)
    save(figure, path)
    return path


def _run(wanted: Rehearsal, threads: int | None) -> dict[str, Any]:
    import torch

    if threads:
        torch.set_num_threads(threads)
    config, started = wanted.config, time.monotonic()
    data, holds = _load(config, wanted.part)
    if wanted.long_tail < 1:
        rng = seeded(wanted.run, "long tail")
        data = data.long_tailed(wanted.long_tail, rng=rng)
    shape = tuple(data.inputs.shape[1:])
    spec = config.to_spec(
        pool_size=len(data.labels), input_shape=shape, classes=holds.classes, task=holds.task
    )
    acquisition = spec.acquisition
    spec = replace(spec, model=replace(spec.model, seed=spec.model.seed + wanted.run))
    try:
        certified = certified_plan(spec_for(wanted.method, spec))
    except DpalError as error:
        return {"method": wanted.method.value, "refused": str(error)}
    phases = rehearse(
        certified.plan,
        data,
        wanted.method,
        acquisition=acquisition,
        physical_batch=config.runtime.physical_batch,
        first_cohort=SeededBits(wanted.run, "initial cohort"),
        device=device_here(config.runtime),
    )
    return {
        "campaign": config.name,
        "method": wanted.method.value,
        "selection_is_private": wanted.method.private,
        "run": wanted.run,
        "judged_on": f"{wanted.part} part",
        "judged_records": len(data.validation_labels),
        "pool": len(data.labels),
        "target_epsilon": spec.target.epsilon,
        "epsilon": certified.epsilon,
        "delta": spec.target.delta,
        "adjacency": spec.target.adjacency.value,
        "unit": spec.target.unit.value,
        "noise_multiplier": certified.plan.phases[0].training.noise_multiplier,
        "steps": sum(phase.steps for phase in certified.plan.phases),
        "phases": [
            {
                "labels": phase.labels,
                **phase.figures,
                "quality": asdict(phase.quality) if phase.quality else None,
            }
            for phase in phases
        ],
        "seconds": round(time.monotonic() - started, 1),
    }


def _load(config: CampaignConfig, part: EvaluationPart) -> tuple[PublicData, Inventory]:
    require_public(config)
    pool, validation = open_sources(config)
    for source in (pool, validation):
        require_unregistered(config.runtime, source)  # said to be public, and is not
    holds = inspect(validation)
    require_match(inspect(pool), holds)
    data = PublicData(*load_all(pool), *load_all(validation))
    ids = read_ids(validation)
    known = rows_in_part(ids, EvaluationPart.VALIDATION)
    return data.judged_on(rows_in_part(ids, part), known=known), holds
