"""Random, noisy scores, hidden selection before and now, on public data sets.

Of each set a fifth of the training part, chosen by the digest of every id, is the validation set:
by it the learning rate of every arm is chosen, the phase that is released, and, of hidden selection
now, the score. The pool is the rest, and the test part is looked at once that is done. Fixed
features, logistic regression, fresh noise. What is done stays done: results are read first.

    python -m tests.accuracy.selections docs/results/selections.json [SET ...]
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from dpal.config.campaign import parse_config
from dpal.errors import DpalError
from dpal.features.extractors import ScatteringExtractor
from dpal.labels import Task
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, LabelCap, ThresholdStart
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.simulation.paired_comparison import (
    ComparisonVerdict,
    compare_with_reference,
    estimate_mean,
)
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from dpal.training.evaluation import evaluate
from tests.conftest import SHARED

RATES = (0.1, 0.5, 2.0, 8.0)
TRIES, RUNS, PHYSICAL = 2, 5, 4096
SCORES = (
    Acquisition.ENTROPY,
    Acquisition.MARGIN,
    Acquisition.CLASS_BALANCED,
    Acquisition.DIVERSE,
    Acquisition.COMMITTEE,
)


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A public set, and how many labels of it are bought.

    Attributes:
      files: of its training and test part.
      initial: labels by chance.
      queries: labels of each query.
      picture: side to which pictures are resized, and their mode; None for features.
      tail: chance with which a record of class c is kept, to the power of c; of the pool alone.
      epsilons: at which it is measured.
    """

    files: tuple[str, ...]
    initial: int
    queries: tuple[int, ...]
    picture: tuple[int, str] | None = None
    tail: float | None = None
    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0)


SETS = {
    "digits, long tail": DataSet(
        files=("mnist-train", "mnist-test"), initial=600, queries=(200, 200, 200),
        picture=(28, "L"), tail=0.62,
    ),
    "digits, long tail, 5,000 labels": DataSet(
        files=("mnist-train", "mnist-test"), initial=1000, queries=(1000, 1000, 1000, 1000),
        picture=(28, "L"), tail=0.62, epsilons=(8.0,),
    ),
    "digits, 5,000 labels": DataSet(
        files=("mnist-train", "mnist-test"), initial=3000, queries=(500, 500, 500, 500),
        picture=(28, "L"), epsilons=(3.0,),
    ),
    "letters": DataSet(
        files=("notmnist-10k",), initial=500, queries=(200, 200), picture=(28, "L")
    ),
    "blood cells": DataSet(
        files=("bloodcells-pbc",), initial=600, queries=(200, 200, 200), picture=(24, "RGB")
    ),
    "chest": DataSet(
        files=("nih-cxr14-small",), initial=300, queries=(150, 150), picture=(32, "L")
    ),
    "adult": DataSet(files=("adult",), initial=1500, queries=(750, 750)),
    "scene": DataSet(files=("scene",), initial=250, queries=(150, 100)),
    "yeast": DataSet(files=("yeast",), initial=300, queries=(150, 150)),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Loaded:
    """A pool with its validation set, and the test set apart."""

    data: PublicData
    test: tuple[Tensor, Tensor]
    task: Task
    classes: int


def load(about: DataSet) -> Loaded:
    """Divides a set; the same way every time."""
    inputs, labels, parts = [], [], []
    for name in about.files:
        table = pq.read_table(SHARED / f"{name}.parquet")
        split = table["split"].to_pylist()
        ids = table["id"].to_pylist()
        inputs.append(features(table, about.picture))
        labels.append(torch.tensor(table["label"].to_pylist()))
        parts += [
            part if part == "test" else _part(row_id)
            for part, row_id in zip(split, ids, strict=True)
        ]
    every, targets, where = torch.cat(inputs), torch.cat(labels), np.array(parts)
    chosen = {part: torch.from_numpy(np.flatnonzero(where == part)) for part in set(parts)}
    data = PublicData(
        every[chosen["pool"]],
        targets[chosen["pool"]],
        every[chosen["validation"]],
        targets[chosen["validation"]],
    )
    if about.tail is not None:
        data = data.long_tailed(about.tail, rng=np.random.default_rng(0))
    several = targets.ndim > 1
    return Loaded(
        data=data,
        test=(every[chosen["test"]], targets[chosen["test"]]),
        task=Task.MULTI_LABEL if several else Task.SINGLE_LABEL,
        classes=targets.shape[1] if several else int(targets.max()) + 1,
    )


def _part(row_id: str) -> str:
    return "validation" if sha256(row_id.encode()).digest()[0] % 5 == 0 else "pool"


def features(table: Any, picture: tuple[int, str] | None) -> Tensor:
    if picture is None:
        return torch.tensor(np.stack(table["features"].to_numpy()), dtype=torch.float32)
    (side, mode), extract, made = picture, ScatteringExtractor(), []
    contents = table["image"].to_pylist()
    for start in range(0, len(contents), 500):
        pixels = [
            np.asarray(Image.open(io.BytesIO(content)).convert(mode).resize((side, side)))
            for content in contents[start : start + 500]
        ]
        stacked = torch.from_numpy(np.stack(pixels))
        records = stacked[:, None] if mode == "L" else stacked.permute(0, 3, 1, 2)
        made.append(extract(records.contiguous()).flatten(1).float())
    return torch.cat(made)


def wish(about: DataSet, loaded: Loaded, epsilon: float, rate: float) -> CampaignSpec:
    """The campaign as settings have it today: secret draws, and candidates of queries."""
    labels = about.initial + sum(about.queries)
    config = parse_config(
        {
            "name": "study",
            "privacy": {"epsilon": epsilon, "selection": "hidden"},
            "schedule": {
                "initial": about.initial, "queries": list(about.queries),
                "batch_size": labels // 4, "epochs_per_phase": 12,
            },
            "acquisition": "entropy",
            "model": {"name": "logistic"},
            "training": {
                "optimizer": "sgd", "learning_rate": rate, "momentum": 0.9, "max_grad_norm": 0.1,
            },
        }
    )  # fmt: skip
    return config.to_spec(
        pool_size=len(loaded.data.labels),
        input_shape=tuple(loaded.data.inputs.shape[1:]),
        classes=loaded.classes,
        task=loaded.task,
    )


def openly(spec: CampaignSpec) -> CampaignSpec:
    """As of version 0.2.0: draws that everybody knows, a reserve for every query."""
    return replace(
        spec,
        secret_draw=False,
        candidates=None,
        threshold_start=ThresholdStart.PLAIN,
        label_cap=LabelCap.QUERY,
    )


ARMS: dict[str, tuple[RehearsalMethod, Callable[[CampaignSpec], CampaignSpec], bool]] = {
    # How it selects, how it differs from today's settings, and whether the score is chosen.
    "random, before": (RehearsalMethod.RANDOM, openly, False),
    "random": (RehearsalMethod.RANDOM, lambda spec: spec, False),
    "paper": (RehearsalMethod.PAPER, openly, False),
    "hidden, before": (RehearsalMethod.HIDDEN, openly, False),
    "hidden": (RehearsalMethod.HIDDEN, lambda spec: spec, True),
}


def run(plan: Plan, loaded: Loaded, method: RehearsalMethod, score: Acquisition) -> Any:
    """The headline figure of the phase that is best on the validation set: there, and on tests."""
    tested: list[float] = []

    def look(model: nn.Module) -> None:
        figures = evaluate(model, *loaded.test, physical_batch=PHYSICAL, task=loaded.task)
        tested.append(next(iter(figures.values())))

    phases = rehearse(
        plan,
        loaded.data,
        method,
        acquisition=score,
        physical_batch=PHYSICAL,
        on_model=look,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    known = [next(iter(phase.figures.values())) for phase in phases]
    best = int(np.argmax(known))
    return known[best], tested[best], phases[-1].labels


def measure(about: DataSet, loaded: Loaded, epsilon: float, arm: str) -> dict[str, Any]:
    """Chooses rate and score by the validation set, then measures with fresh noise."""
    method, changed, chooses = ARMS[arm]
    scores = [score for score in SCORES if not _undefined(score, loaded.task)]
    offered = scores if chooses else [Acquisition.ENTROPY]

    def planned(rate: float, score: Acquisition) -> Plan:
        spec = replace(wish(about, loaded, epsilon, rate), acquisition=score)
        return certified_or_next_best(spec_for(method, changed(spec))).plan

    tried: list[tuple[float, float, Acquisition]] = []
    for score in offered:
        for rate in RATES:
            plan = planned(rate, score)
            reached = [run(plan, loaded, method, score)[0] for _ in range(TRIES)]
            tried.append((float(np.mean(reached)), rate, score))
    _, rate, score = max(tried)
    plan = planned(rate, score)
    found = [run(plan, loaded, method, score) for _ in range(RUNS)]
    mean = estimate_mean([test for _, test, _ in found])
    return {
        "validation": [known for known, *_ in found],
        "learning_rate": rate,
        "acquisition": score.value if method is not RehearsalMethod.RANDOM else "random",
        "strategy": plan.spec.strategy.value,
        "candidates": plan.spec.candidates,
        "noise": plan.phases[0].training.noise_multiplier,
        "steps": sum(phase.steps for phase in plan.phases),
        "labels": [labels for *_, labels in found],
        "test": [test for _, test, _ in found],
        "mean": mean.mean,
        "half_width_95": mean.half_width,
    }


def chosen(random: dict[str, Any], hidden: dict[str, Any]) -> str:
    """Which of the two `acquisition: auto` would take: the score, if it is ahead beyond noise."""
    if "refused" in hidden:
        return "random"
    figures = {
        name: dict(enumerate(cell["validation"]))
        for name, cell in (("random", random), ("hidden", hidden))
    }
    verdict = compare_with_reference(figures, "random")["hidden"].verdict
    return "hidden" if verdict is ComparisonVerdict.BETTER else "random"


def _undefined(score: Acquisition, task: Task) -> bool:
    rivals = (Acquisition.MARGIN, Acquisition.CLASS_BALANCED)
    return task is Task.MULTI_LABEL and score in rivals


def cells(names: list[str]) -> Iterator[tuple[str, float, str]]:
    """Every cell of the table."""
    for name in names or SETS:
        for epsilon in SETS[name].epsilons:
            for arm in ARMS:
                yield name, epsilon, arm


def main() -> None:
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    done: dict[str, Any] = json.loads(place.read_text()) if place.is_file() else {}
    opened: dict[str, Loaded] = {}
    for name, epsilon, arm in cells(sys.argv[2:]):
        key = f"{name} | epsilon {epsilon:g} | {arm}"
        if key in done:
            continue
        if name not in opened:
            opened.clear()
            opened[name] = load(SETS[name])
        try:
            done[key] = measure(SETS[name], opened[name], epsilon, arm)
            print(f"{key}: {100 * done[key]['mean']:.1f}", done[key]["acquisition"], flush=True)
        except DpalError as refused:
            done[key] = {"refused": str(refused)}
            print(f"{key}: refused, {refused}", flush=True)
        now = [done.get(f"{name} | epsilon {epsilon:g} | {one}") for one in ("random", "hidden")]
        if arm == "hidden" and now[0] and now[1]:
            done[key]["auto"] = chosen(now[0], now[1])
        place.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
