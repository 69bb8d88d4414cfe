"""Campaigns whose first and last phases learn wrong labels: the one between is the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from dpal.config.campaign import CampaignConfig, parse_config
from tests.conftest import CLASSES, small_values

SCHEDULE = {"initial": 40, "queries": [160, 300, 60], "batch_size": 50, "epochs_per_phase": 4}
RIGHT = range(40, 200)  # labels of phase 1
BOUGHT = 500  # labels of three phases
BEST = 1


class Misled:
    """Answers rightly in phase 1 alone."""

    def __init__(self) -> None:
        rows = pq.read_table("pool.parquet", columns=["id", "label"]).to_pylist()
        self.truth = {row["id"]: row["label"] for row in rows}
        self.asked = 0

    def label(self, ids: Sequence[str]) -> Mapping[str, int | tuple[int, ...]]:
        answers: dict[str, int | tuple[int, ...]] = {}
        for name in ids:
            answers[name] = (self.truth[name] + int(self.asked not in RIGHT)) % CLASSES
            self.asked += 1
        return answers


class Leaving(Misled):
    """The same, and goes away before the last query is answered."""

    def label(self, ids: Sequence[str]) -> Mapping[str, int | tuple[int, ...]]:
        if self.asked >= BOUGHT:
            raise KeyboardInterrupt
        return super().label(ids)


def worsening(**overrides: Any) -> CampaignConfig:
    """Three phases, the last of which buys more labels than the others together."""
    values = {
        "labeler__kind": "file",
        "acquisition": "random",
        "schedule": {**SCHEDULE, "queries": [160, 300]},
        **overrides,
    }
    return parse_config(small_values(**values))


def stopping(**overrides: Any) -> CampaignConfig:
    """Four phases, and a rule that ends after the first that is worse."""
    rule = {"patience": 1, "least_gain": 0.0}
    return worsening(**{"schedule": SCHEDULE, "stop": rule, **overrides})
