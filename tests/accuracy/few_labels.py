"""Few labels at small epsilon: what a secret draw and self-training are worth on MNIST.

16,000 training digits are the private pool, 4,000 others the validation set, by which the learning
rate of every arm is chosen and whose best phase is taken; the 10,000 test digits are looked at once
that is done. Scattering features, logistic regression, labels by chance. Noise is always fresh.

    python -m tests.accuracy.few_labels docs/results/few-labels.json [ARM ...]
    python -m tests.accuracy.few_labels --all docs/results/few-labels-all.json [ARM ...]

With --all the pool is 56,000 digits, and 5,000 labels are bought at epsilon 3.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from dpal.config.campaign import parse_config
from dpal.features.extractors import ScatteringExtractor
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelfTraining
from dpal.planning.certify_campaign import certified_plan
from dpal.simulation.paired_comparison import estimate_mean
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse
from dpal.training.evaluation import accuracy
from tests.conftest import SHARED

VALIDATION = 4_000
PHYSICAL = 2048
RUNS = 5
RANDOM = Acquisition.RANDOM
MARGIN = Acquisition.MARGIN
PSEUDO = SelfTraining(epochs=6)
# Secret draw, self-training, by what the second half of the labels is chosen, and out of how many
# candidates for each of them (None: all records).
ARMS: dict[str, tuple[bool, SelfTraining | None, Acquisition, int | None]] = {
    "draw known": (False, None, RANDOM, None),
    "secret draw": (True, None, RANDOM, None),
    "self-training": (False, PSEUDO, RANDOM, None),
    "both": (True, PSEUDO, RANDOM, None),
    "both, half by margin": (True, PSEUDO, MARGIN, None),
    "half by margin": (False, None, MARGIN, None),
    "half by margin of 10": (True, None, MARGIN, 10),
    "half by margin of 4": (True, None, MARGIN, 4),
    "both, half by margin of 10": (True, PSEUDO, MARGIN, 10),
    "both, half by margin of 4": (True, PSEUDO, MARGIN, 4),
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is tried: pools, settings of epsilon and labels, and learning rates with their tries."""

    pool: int
    settings: tuple[tuple[float, int], ...]
    rates: tuple[float, ...]
    tries: int


FEW = Study(
    pool=16_000,
    settings=((1.0, 500), (1.0, 1000), (2.0, 1000), (8.0, 500), (8.0, 1000)),
    rates=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    tries=3,
)
ALL = Study(pool=56_000, settings=((3.0, 5000),), rates=(0.3, 1.0, 3.0, 10.0, 30.0), tries=2)


@dataclass(frozen=True, eq=False)
class Digits:
    """The pool with its validation set, and the test set apart."""

    data: PublicData
    test: tuple[Tensor, Tensor]


def wish(
    epsilon: float, labels: int, arm: str, rate: float, shape: tuple[int, ...], pool: int
) -> CampaignSpec:
    """A campaign of an arm: one phase of labels, or two of half of them; 60 steps at rate 1/2."""
    secret, self_training, acquisition, choice = ARMS[arm]
    initial = labels if acquisition is RANDOM else labels // 2
    config = parse_config(
        {
            "name": "few",
            "privacy": {"epsilon": epsilon, "selection": "hidden", "delta": 0.1 / pool},
            "schedule": {
                "initial": initial,
                "queries": [labels - initial] if initial < labels else [],
                "batch_size": initial // 2,
                "epochs_per_phase": 30,
            },
            "strategy": "step_amplification",
            "acquisition": acquisition.value,
            "model": {"name": "logistic"},
            "training": {
                "optimizer": "sgd", "learning_rate": rate, "momentum": 0.9, "max_grad_norm": 0.1,
            },
        }
    )  # fmt: skip
    spec = config.to_spec(pool_size=pool, input_shape=shape, classes=10)
    candidates = None if choice is None else choice * (labels - initial)
    return replace(spec, secret_draw=secret, self_training=self_training, candidates=candidates)


def run(plan: Plan, digits: Digits) -> tuple[float, float]:
    """Accuracy of the phase that is best on the validation set: there, and on the test set."""
    tested: list[float] = []

    def look(model: nn.Module) -> None:
        inputs, labels = digits.test
        tested.append(accuracy(model, inputs, labels, physical_batch=PHYSICAL))

    score = plan.spec.acquisition
    phases = rehearse(
        plan, digits.data, RehearsalMethod.HIDDEN, acquisition=MARGIN if score is RANDOM else score,
        physical_batch=PHYSICAL, on_model=look,
    )  # fmt: skip
    figures = [phase.figures["accuracy"] for phase in phases]
    best = int(np.argmax(figures))
    return figures[best], tested[best]


def features(name: str) -> tuple[Tensor, Tensor]:
    """Scattering features and labels of a file of digits."""
    table = pq.read_table(SHARED / f"mnist-{name}.parquet", columns=["image", "label"])
    extract, parts = ScatteringExtractor(), []
    for start in range(0, table.num_rows, 500):
        pictures = [
            np.asarray(Image.open(io.BytesIO(content)))
            for content in table["image"][start : start + 500].to_pylist()
        ]
        parts.append(extract(torch.from_numpy(np.stack(pictures))[:, None]).float())
    return torch.cat(parts), torch.tensor(table["label"].to_pylist())


def load(pool_size: int) -> Digits:
    """The same division of the training digits for everybody."""
    inputs, labels = features("train")
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    pool, known = order[:pool_size], order[pool_size : pool_size + VALIDATION]
    data = PublicData(inputs[pool], labels[pool], inputs[known], labels[known])
    return Digits(data=data, test=features("test"))


def measure(study: Study, epsilon: float, labels: int, arm: str, digits: Digits) -> dict[str, Any]:
    """Chooses the rate by the validation set, and measures with fresh noise."""
    shape = tuple(digits.data.inputs.shape[1:])

    def runs(rate: float, count: int) -> list[tuple[float, float]]:
        plan = certified_plan(wish(epsilon, labels, arm, rate, shape, study.pool)).plan
        return [run(plan, digits) for _ in range(count)]

    rate = max(
        study.rates, key=lambda rate: np.mean([known for known, _ in runs(rate, study.tries)])
    )
    certified = certified_plan(wish(epsilon, labels, arm, rate, shape, study.pool))
    tested = [test for _, test in runs(rate, RUNS)]
    mean = estimate_mean(tested)
    return {
        "epsilon": epsilon,
        "delta": certified.plan.spec.target.delta,
        "labels": labels,
        "arm": arm,
        "learning_rate": rate,
        "noise": [phase.training.noise_multiplier for phase in certified.plan.phases],
        "certified": [certified.epsilon_pld, certified.epsilon_oracle],
        "test_accuracy": tested,
        "mean": mean.mean,
        "half_width_95": mean.half_width,
    }


def main() -> None:
    torch.set_num_threads(1)
    study, arguments = (ALL, sys.argv[2:]) if sys.argv[1] == "--all" else (FEW, sys.argv[1:])
    place, arms = Path(arguments[0]), arguments[1:] or list(ARMS)
    digits, records = load(study.pool), []
    for epsilon, labels in study.settings:
        for arm in arms:
            record = measure(study, epsilon, labels, arm, digits)
            records.append(record)
            print(
                f"epsilon {epsilon:g}, {labels:,} labels, {arm}: {100 * record['mean']:.1f} "
                f"+- {100 * record['half_width_95']:.1f} (rate {record['learning_rate']:g})",
                flush=True,
            )
            place.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
