"""Heads on fixed features: DP-SGD, least squares and prototypes, at few labels and many.

Scattering features of three public sets, one phase of labels by chance, secret draws as campaigns
have them. Of each training part 1,000 records are the public validation set, the others the pool;
the test part is looked at once, by the numbers that are written down. Learning rates of DP-SGD are
those of `dpal init`. What least squares and prototypes leave open (50 directions, halfway whitened,
the constant, both parts of the sums weighted alike) was chosen on USPS, which is none of the sets,
after early looks at a few cells of all of them (epsilon 1, 100 to 300 labels).

    python -m tests.accuracy.heads docs/results/heads.json [SET ...]
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpal.config.campaign import parse_config
from dpal.features.extractors import CoarseScatteringExtractor, ScatteringExtractor
from dpal.labels import Task
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import Acquisition, ProtectedValidation
from dpal.planning.certify_campaign import certified_plan
from dpal.runs.linear_step_and_clipping import linear_rates
from dpal.simulation.paired_comparison import estimate_mean
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse
from dpal.training.evaluation import evaluate
from tests.accuracy.study_sources import SETS, StudySet, pixels

NAMES = ("mnist", "notmnist", "bloodcells")
ROWS, JUDGED, VALIDATION = 10_000, 2_000, 1_000
EPSILONS = (1.0, 8.0, 3.0)
LABELS = (100, 300, 1000, 3000)
RUNS, PHYSICAL = 3, 2048
# Method, and whether validation records are protected, so that nothing is known of features.
ARMS = {
    "dp_sgd": ("dp_sgd", False),
    "least_squares": ("least_squares", False),
    "prototypes": ("prototypes", False),
    "prototypes, validation protected": ("prototypes", True),
}


def features_and_labels(of: StudySet, part: str) -> tuple[Tensor, Tensor]:
    """Scattering features of a part, on the scale on which models read them."""
    table = of.train if part == "train" else of.test
    pictures = torch.from_numpy(pixels(table))
    records = pictures[:, None] if pictures.ndim == 3 else pictures.permute(0, 3, 1, 2)
    extract = CoarseScatteringExtractor() if max(records.shape[2:]) > 40 else ScatteringExtractor()
    made = [extract(records[start : start + 256]) for start in range(0, len(records), 256)]
    return torch.cat(made).float(), torch.tensor(table["label"].to_pylist())


def planned(arm: str, epsilon: float, labels: int, data: PublicData) -> CertifiedPlan:
    """The plan of an arm: one phase, and of DP-SGD 120 steps on half of the labels each."""
    method, protected = ARMS[arm]
    shape, classes = tuple(data.inputs.shape[1:]), 1 + int(data.labels.max())
    pool = len(data.labels)

    def asked(**training: Any) -> CertifiedPlan:
        config = parse_config(
            {
                "name": "heads",
                "privacy": {"epsilon": epsilon, "delta": 0.1 / pool},
                "schedule": {
                    "initial": labels, "queries": [], "batch_size": labels // 2,
                    "epochs_per_phase": 60,
                },
                "acquisition": "random",
                "model": {"name": "logistic"},
                "training": training,
            }
        )  # fmt: skip
        spec = config.to_spec(pool_size=pool, input_shape=shape, classes=classes)
        if protected:
            measured = ProtectedValidation(records=VALIDATION, epsilon=epsilon)
            spec = replace(spec, validation=measured)
        return certified_plan(spec)

    if method != "dp_sgd":
        return asked(method=method)
    width = int(np.prod(shape))
    rates = linear_rates(asked().plan, width=width, momentum=0.9, logit_noise=4.0)
    return asked(learning_rate=rates.learning_rate, max_grad_norm=rates.max_grad_norm)


def measure(
    arm: str, epsilon: float, labels: int, data: PublicData, test: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    """Accuracy and balanced accuracy on the test set, of fresh draws and noise."""
    certified = planned(arm, epsilon, labels, data)
    found: list[tuple[float, float]] = []

    def look(model: nn.Module) -> None:
        figures = evaluate(model, *test, physical_batch=PHYSICAL, task=Task.SINGLE_LABEL)
        with torch.no_grad():
            guesses = torch.cat([model(part).argmax(1) for part in test[0].split(PHYSICAL)])
        hits = (guesses == test[1]).double()
        each = [float(hits[test[1] == label].mean()) for label in test[1].unique()]
        found.append((figures["accuracy"], float(np.mean(each))))

    for _ in range(RUNS):
        rehearse(
            certified.plan, data, RehearsalMethod.RANDOM, acquisition=Acquisition.MARGIN,
            physical_batch=PHYSICAL, on_model=look,
        )  # fmt: skip
    mean = estimate_mean([accuracy for accuracy, _ in found])
    return {
        "arm": arm,
        "epsilon": epsilon,
        "labels": labels,
        "delta": certified.plan.spec.target.delta,
        "certified": [certified.epsilon_pld, certified.epsilon_oracle],
        "noise": certified.plan.phases[0].training.noise_multiplier,
        "test_accuracy": [accuracy for accuracy, _ in found],
        "balanced_accuracy": [balanced for _, balanced in found],
        "mean": mean.mean,
        "half_width_95": mean.half_width,
    }


def load(name: str) -> tuple[PublicData, tuple[Tensor, Tensor]]:
    """The same division of the training part for everybody, and the test part."""
    of = replace(SETS[name], rows=ROWS, judged=JUDGED)
    inputs, labels = features_and_labels(of, "train")
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    known, pool = order[:VALIDATION], order[VALIDATION:]
    data = PublicData(inputs[pool], labels[pool], inputs[known], labels[known])
    return data, features_and_labels(of, "test")


def main() -> None:
    torch.set_num_threads(1)
    records = []
    for name in sys.argv[2:] or NAMES:
        data, test = load(name)
        for epsilon in EPSILONS:
            for labels in (count for count in LABELS if count < len(data.labels)):
                for arm in ARMS:
                    record: dict[str, Any] = {"set": name, "pool": len(data.labels)}
                    record |= measure(arm, epsilon, labels, data, test)
                    records.append(record)
                    print(
                        f"{name}, epsilon {epsilon:g}, {labels:,} labels, {arm}: "
                        f"{100 * record['mean']:.1f} +- {100 * record['half_width_95']:.1f}",
                        flush=True,
                    )
                    told = json.dumps(records, indent=1) + "\n"
                    Path(sys.argv[1]).write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
