"""Campaigns that fit a head in one release for each phase, as their plans say it in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpal.labels import Task
from dpal.mechanisms.head_statistics import HeadStatistics
from dpal.privacy import Adjacency

_ONCE = {"steps": 1, "sample_rate_old": 0.0, "sample_rate_new": 1.0}
_WHAT = {
    "least_squares": "sums of second moments of features and of their products with labels",
    "prototypes": "sums of features by class",
}


def fitted_statement(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What each phase releases of its records; nothing where steps train.

    Args:
      spec: of a plan.
    """
    head = spec.get("head")
    if head is None:
        return {}
    features = math.prod(spec["model"]["input_shape"])
    if spec.get("validation") is None:
        features = min(features, int(head["components"]))
    sums = HeadStatistics(
        features=features,
        classes=spec["model"]["classes"],
        task=Task(spec["model"]["task"]),
        moments=head["kind"] == "least_squares",
    )
    return {
        "head": {
            "method": head["kind"],
            "released": f"{_WHAT[head['kind']]}, over the records of each phase once, with noise",
            "most_numbers": sums.coordinates,
            "sensitivity": sums.sensitivity(Adjacency(spec["target"]["adjacency"])),
        }
    }


def unsound_fits(plan: Mapping[str, Any]) -> Iterator[str]:
    """Phases that fit a head otherwise than in one release over all of their own records.

    Args:
      plan: as it was held.
    """
    wanted = plan["spec"].get("head") is not None
    for phase in plan["phases"]:
        training = phase["training"]
        if bool(training.get("statistics")) is not wanted:
            yield f"phase {phase['index']} fits a head and the plan does not, or the reverse"
        elif wanted and (
            phase["catch_up"] is not None
            or any(training[name] != value for name, value in _ONCE.items())
        ):
            yield f"phase {phase['index']} fits a head in more than one release of its records"
