"""Everybody's records against one record of each person, under the same promise to persons.

Of each set a fifth of the persons of its training part, chosen by digest, is the validation part:
by it the learning rate of both ways is chosen, and how many records of a person a step reads. Then
fresh runs are judged on the test part, whose persons are in neither. One phase, all persons of the
pool take part, fixed features, logistic regression. What is done stays done and is read first.

    python -m tests.accuracy.groups docs/results/groups.json [SET ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from dpal.config.campaign import parse_config
from dpal.data.groups import count_groups, within_cap
from dpal.data.labeled_records import LabeledSet
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Unit
from dpal.randomness import secure
from dpal.simulation.paired_comparison import estimate_mean
from dpal.training.evaluation import evaluate
from dpal.training.optimizers import build_optimizer
from dpal.training.train_phase import train_dp_sgd
from dpal.training.weight_averaging import WeightAverage
from tests.accuracy.selections import PHYSICAL, features
from tests.conftest import SHARED

EPSILONS = (8.0, 3.0)
RATES = (0.5, 2.0, 8.0)
MOST = (4, 16)  # records of a person in a step
TRIES, RUNS = 2, 5
CHEST_TRIES = CHEST_RUNS = 20  # where five runs tell no gain or loss of two points from chance
PERSONS, TESTED, LARGEST, WIDTH, CLASSES = 1250, 400, 50, 32, 10


@dataclass(frozen=True, eq=False)
class People:
    """Records, and whose they are; no person is in two parts.

    Attributes:
      inputs: (n, *input_shape).
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      persons: (n,) number of each record's person.
      parts: (n,) pool, validation or test.
    """

    inputs: Tensor
    labels: Tensor
    persons: NDArray[np.int64]
    parts: NDArray[np.str_]

    def of(self, part: str) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
        """Inputs, labels and persons of a part."""
        rows = np.flatnonzero(self.parts == part)
        picked = torch.from_numpy(rows)
        return self.inputs[picked], self.labels[picked], self.persons[rows]

    @property
    def task(self) -> Task:
        """What a label is."""
        return Task.MULTI_LABEL if self.labels.ndim > 1 else Task.SINGLE_LABEL

    @property
    def classes(self) -> int:
        """Classes, or labels."""
        several = self.task is Task.MULTI_LABEL
        return self.labels.shape[1] if several else int(self.labels.max()) + 1


def chest(*, several: bool) -> People:
    """NIH chest X-rays by patient, with 14 labels or with one: whether there is any finding."""
    table = pq.read_table(SHARED / "nih-cxr14-small.parquet")
    labels = torch.tensor(table["label"].to_pylist())
    names, persons = np.unique(table["group"].to_pylist(), return_inverse=True)
    parts = [
        "test" if split == "test" else _part(str(names[person]))
        for split, person in zip(table["split"].to_pylist(), persons, strict=True)
    ]
    return People(
        inputs=features(table, (32, "L")),
        labels=labels if several else labels.any(dim=1).long(),
        persons=persons.astype(np.int64),
        parts=np.array(parts),
    )


def made(*, alike: float) -> People:
    """Persons with 1 to 50 records (chances as one over the number), in ten overlapping classes.

    Args:
      alike: standard deviation of what all records of a person share, beside 1 of each record's
        own; above 0, a person's records are of two classes alone.
    """
    rng = np.random.default_rng(28)
    middles = rng.normal(size=(CLASSES, WIDTH)) * 0.45
    chances = 1 / np.arange(1, LARGEST + 1)
    sizes = rng.choice(np.arange(1, LARGEST + 1), size=PERSONS + TESTED, p=chances / chances.sum())
    persons = np.repeat(np.arange(sizes.size), sizes)
    labels = rng.integers(CLASSES, size=persons.size)
    if alike:
        own = rng.integers(CLASSES, size=(sizes.size, 2))
        labels = own[persons, rng.integers(2, size=persons.size)]
    shared = alike * rng.normal(size=(sizes.size, WIDTH))
    inputs = middles[labels] + shared[persons] + rng.normal(size=(persons.size, WIDTH))
    parts = ["test" if person >= PERSONS else _part(str(person)) for person in persons]
    return People(
        inputs=torch.from_numpy(inputs).float(),
        labels=torch.from_numpy(labels).long(),
        persons=persons.astype(np.int64),
        parts=np.array(parts),
    )


def _part(person: str) -> str:
    return "validation" if sha256(person.encode()).digest()[0] % 5 == 0 else "pool"


SETS: dict[str, Callable[[], People]] = {
    "made, records of a person independent": lambda: made(alike=0.0),
    "made, records of a person alike": lambda: made(alike=0.7),
    "chest, any finding": lambda: chest(several=False),
    "chest, 14 labels": lambda: chest(several=True),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to train.

    Attributes:
      most: records of a person in a step; None trains on one record of each alone.
      rate: the learning rate.
    """

    most: int | None
    rate: float

    def plan(self, people: People, epsilon: float) -> Plan:
        """Of a campaign of one phase, in which everybody takes part."""
        inputs, _, persons = people.of("pool")
        count = count_groups(persons)
        grouped = {"unit": "group"} if self.most else {}
        config = parse_config(
            {
                "name": "study",
                "privacy": {"epsilon": epsilon, "secret_draw": False, **grouped},
                "data": {"group_column": "group"} if self.most else {},
                "schedule": {
                    "initial": count, "queries": [], "batch_size": count // 4,
                    "epochs_per_phase": 12, "group_records": self.most or 1,
                },
                "acquisition": "random",
                "model": {"name": "logistic"},
                "training": {
                    "optimizer": "sgd", "learning_rate": self.rate, "momentum": 0.9,
                    "max_grad_norm": 0.1,
                },
            }
        )  # fmt: skip
        spec = config.to_spec(
            pool_size=count,
            input_shape=tuple(inputs.shape[1:]),
            classes=people.classes,
            task=people.task,
            unit=Unit.GROUP if self.most else Unit.RECORD,
        )
        return certified_plan(spec).plan


def run(setting: Setting, plan: Plan, people: People, part: str) -> float:
    """Trains with fresh noise; the headline figure on a part, every record of it alike."""
    inputs, labels, persons = people.of("pool")
    # One record of each person is drawn anew for every run, so that no draw decides the study.
    order = np.random.default_rng().permutation(persons.size)
    if setting.most is None:
        rows = np.sort(order[np.unique(persons[order], return_index=True)[1]])
        owners = None
    else:
        rows = np.argsort(persons, kind="stable")
        owners = within_cap(persons[rows], None)
    chosen, (phase,) = torch.from_numpy(rows), plan.phases
    spec, model = plan.spec, build_model(plan.spec.model)
    average = WeightAverage(model, spec.recipe.averaging, phase.steps)
    train_dp_sgd(
        model,
        build_optimizer(spec.optimizer, model.parameters()),
        LabeledSet(
            inputs=inputs[chosen],
            labels=labels[chosen],
            cohorts=np.zeros(rows.size, dtype=np.int16),
            owners=owners,
        ),
        phase,
        spec.optimizer,
        physical_batch=PHYSICAL,
        rng=secure(),
        recipe=spec.recipe,
        average=average,
        group_records=setting.most or 1,
    )
    model.load_state_dict(average.averaged_state_dict())
    judged, targets, _ = people.of(part)
    figures = evaluate(model, judged, targets, physical_batch=PHYSICAL, task=people.task)
    return next(iter(figures.values()))


def measure(
    people: People, epsilon: float, offered: list[Setting], *, tries: int, runs: int
) -> dict[str, Any]:
    """Chooses a setting on the validation part, then judges fresh runs on the test part.

    Args:
      people: whose records train and judge.
      epsilon: of the campaign.
      offered: settings to choose from.
      tries: runs of each on the validation part.
      runs: of the chosen one on the test part.
    """
    tried: list[tuple[float, Setting]] = []
    for setting in offered:
        plan = setting.plan(people, epsilon)
        reached = [run(setting, plan, people, "validation") for _ in range(tries)]
        tried.append((float(np.mean(reached)), setting))
    known, setting = max(tried, key=lambda one: one[0])
    plan = setting.plan(people, epsilon)
    found = [run(setting, plan, people, "test") for _ in range(runs)]
    mean = estimate_mean(found)
    return {
        "learning_rate": setting.rate,
        "group_records": setting.most,
        "noise": plan.phases[0].training.noise_multiplier,
        "steps": plan.phases[0].steps,
        "validation": known,
        "test": found,
        "mean": mean.mean,
        "half_width_95": mean.half_width,
    }


def gain(every: list[float], one: list[float]) -> dict[str, float]:
    """Mean of all records less that of one each, with Welch's 95 % interval: runs share nothing."""
    interval = stats.ttest_ind(every, one, equal_var=False).confidence_interval(0.95)
    mean = float(np.mean(every) - np.mean(one))
    return {"mean": mean, "low": float(interval.low), "high": float(interval.high)}


def main() -> None:
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    done: dict[str, Any] = json.loads(place.read_text()) if place.is_file() else {}
    arms = {
        "one record each": [Setting(most=None, rate=rate) for rate in RATES],
        "all records": [Setting(most=most, rate=rate) for most in MOST for rate in RATES],
    }
    for name in sys.argv[2:] or SETS:
        people = SETS[name]()
        chest_xrays = name.startswith("chest")
        tries, runs = (CHEST_TRIES, CHEST_RUNS) if chest_xrays else (TRIES, RUNS)
        persons = people.of("pool")[2]
        for epsilon in EPSILONS:
            key = f"{name} | epsilon {epsilon:g}"
            if key in done:
                continue
            cell: dict[str, Any] = {
                "persons": count_groups(persons),
                "records": persons.size,
                **{
                    arm: measure(people, epsilon, offered, tries=tries, runs=runs)
                    for arm, offered in arms.items()
                },
            }
            cell["gain"] = gain(*(cell[arm]["test"] for arm in ("all records", "one record each")))
            done[key] = cell
            print(key, {arm: round(100 * cell[arm]["mean"], 1) for arm in arms}, cell["gain"],
                  flush=True)  # fmt: skip
            place.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
