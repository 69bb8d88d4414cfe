"""Private training of a configuration's first phase, several times, on real data sets.

The parts of a campaign without its ledger: the data is public. Every run has fresh noise. Choose
settings with `--part validation`, and report with `--part test` what was chosen so; without either
the whole file judges, which is how the shipped settings were chosen and are measured.

    python -m tests.accuracy.harness flows/configs/mnist-scattering.yaml --runs 3 \
      --part validation --set data.pool=.../mnist-train.parquet \
      --set data.validation=.../mnist-test.parquet
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from dpal.config.campaign import CampaignConfig, override, parse_config
from dpal.data.groups import count_groups, read_groups, within_cap
from dpal.data.inspect_rows import inspect, require_match
from dpal.data.labeled_records import LabeledSet, load_labeled
from dpal.data.labeling_state import load_all, read_ids, write_merged, write_start
from dpal.data.readers import raw_batches
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.certify_campaign import certified_plan
from dpal.randomness import secure
from dpal.runs.open_sources import open_sources
from dpal.simulation.evaluation_parts import EvaluationPart, rows_in_part
from dpal.simulation.paired_comparison import estimate_mean
from dpal.training.evaluation import evaluate
from dpal.training.optimizers import build_optimizer
from dpal.training.train_phase import train_dp_sgd
from dpal.training.weight_averaging import WeightAverage
from tests.conftest import ROOT


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What several runs of one plan reached.

    Attributes:
      figures: of each run, by name, the headline first.
      seconds: of training, each run.
      epsilon: certified by PLD.
      delta: of the same promise.
      noise_multiplier: of the phase.
      steps: of the phase.
    """

    figures: tuple[Mapping[str, float], ...]
    seconds: tuple[float, ...]
    epsilon: float
    delta: float
    noise_multiplier: float
    steps: int

    @property
    def headline(self) -> list[float]:
        """The first figure of each run."""
        return [next(iter(one.values())) for one in self.figures]

    @property
    def mean(self) -> float:
        """Mean of the headline."""
        return statistics.fmean(self.headline)

    def __str__(self) -> str:
        name, runs = next(iter(self.figures[0])), len(self.figures)
        half = estimate_mean(self.headline).half_width
        spread = f" ± {100 * half:.2f}" if half is not None else ""
        reached = ", ".join(f"{100 * one:.2f}" for one in self.headline)
        return (
            f"{name} {100 * self.mean:.2f}{spread} % (95 % interval, n = {runs}: {reached}); "
            f"epsilon {self.epsilon:.4f} at delta {self.delta:g}, noise "
            f"{self.noise_multiplier:.4g}, {self.steps:,} steps, "
            f"{statistics.fmean(self.seconds):.0f} s a run"
        )


def configured(name: str, **changes: object) -> CampaignConfig:
    """A shipped configuration; changes have dotted keys."""
    path = ROOT / "flows" / "configs" / f"{name}.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        override(values, key, value)
    return parse_config(values)


def measure(config: CampaignConfig, *, runs: int, part: EvaluationPart | None = None) -> Measured:
    """Plans once, then trains the first phase `runs` times and evaluates it.

    The initial cohort has to be the whole pool, as nothing is selected here: all records, or all
    groups where the settings protect them. The part of the validation file that judges is the one
    of rehearsals; None is the whole file.
    """
    pool, validation = open_sources(config)
    held = inspect(pool)
    judged = inspect(validation)
    require_match(held, judged)
    column = config.data.group_column
    groups = None if column is None else read_groups(pool, column)
    if groups is not None:
        groups = within_cap(groups, config.schedule.group_labels)
    spec = config.to_spec(
        pool_size=held.rows if groups is None else count_groups(groups[groups >= 0]),
        unit=config.privacy.unit,
        input_shape=held.input_shape,
        classes=max(len(validation.class_names or pool.class_names), judged.classes),
        task=held.task,
    )
    certified = certified_plan(spec)
    inputs, labels = load_all(validation)
    if part is not None:
        rows = torch.tensor(rows_in_part(read_ids(validation), part))
        inputs, labels = inputs[rows], labels[rows]
    figures, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "pool.parquet"
        _label_everything(pool, Path(folder) / "start.parquet", state, groups)
        with load_labeled(
            pool, state, cache_mib=config.runtime.cache_mib, scratch=Path(folder) / "scratch"
        ) as labeled:
            assert spec.pool_size == spec.schedule.initial, "schedule.initial is not all"
            for _ in range(runs):
                started = time.monotonic()
                model = train_once(certified, labeled, physical_batch=config.runtime.physical_batch)
                seconds.append(time.monotonic() - started)
                batch = config.runtime.physical_batch
                figures.append(
                    evaluate(model, inputs, labels, physical_batch=batch, task=held.task)
                )
                print(figures[-1], f"{seconds[-1]:.0f} s", flush=True)
    phase = certified.plan.phases[0]
    return Measured(
        figures=tuple(figures),
        seconds=tuple(seconds),
        epsilon=certified.epsilon,
        delta=spec.target.delta,
        noise_multiplier=phase.training.noise_multiplier,
        steps=phase.steps,
    )


def train_once(
    certified: CertifiedPlan, labeled: LabeledSet, *, physical_batch: int
) -> torch.nn.Module:
    """Trains a fresh model as a campaign does, and gives the averaged weights."""
    plan = certified.plan
    phase, spec, recipe = plan.phases[0], plan.spec.optimizer, plan.spec.recipe
    model = build_model(plan.spec.model)
    optimizer = build_optimizer(spec, model.parameters())
    average = WeightAverage(model, recipe.averaging, phase.steps)

    train_dp_sgd(
        model,
        optimizer,
        labeled,
        phase,
        spec,
        physical_batch=physical_batch,
        rng=secure(),
        recipe=recipe,
        average=average,
        group_records=1 if plan.spec.groups is None else plan.spec.groups.records,
    )
    model.load_state_dict(average.averaged_state_dict())
    return model


def _label_everything(
    pool: Any, start: Path, state: Path, groups: NDArray[np.int64] | None
) -> None:
    write_start(pool, start, groups=groups)
    takes_part = None if groups is None else set(np.flatnonzero(groups >= 0).tolist())
    names = (name for batch in raw_batches(pool, ["id"]) for name in batch.table[0].to_pylist())
    part = {name for row, name in enumerate(names) if takes_part is None or row in takes_part}
    labels = {
        name: label
        for batch in raw_batches(pool, ["id", pool.label_column])
        for name, label in zip(*(one.to_pylist() for one in batch.table.columns), strict=True)
        if name in part
    }
    write_merged(start, labels, 0, state)


def main() -> None:
    """Measures a configuration from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--part", type=EvaluationPart, choices=list(EvaluationPart))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    given = parser.parse_args()
    values = yaml.safe_load(given.config.read_text(encoding="utf-8"))
    for change in given.changes:
        key, _, value = change.partition("=")
        override(values, key, yaml.safe_load(value))
    print(measure(parse_config(values), runs=given.runs, part=given.part))


if __name__ == "__main__":
    main()
