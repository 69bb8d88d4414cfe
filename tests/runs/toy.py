"""A kind of run in one file: a noisy mean of private vectors, released as a model's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from dpal.accounting.events import Charge, NoisyMoments, Release
from dpal.config.guarded_settings import Guarded
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.data.sources import Role, open_source
from dpal.features.spec import ExtractorSpec
from dpal.files.atomic_writes import atomic_write
from dpal.mechanisms.gaussian import noisy_sum
from dpal.models.spec import ModelSpec
from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.runs.kinds import KINDS, RunKind
from dpal.runs.release_list_run import ListedRun, ListedRuns
from dpal.runs.tracked_facts import ServedModel, Tracked


class MeanConfig(RunConfig):
    """The mean of vectors, each clipped to length 1."""

    kind: Literal["mean"] = "mean"
    name: str
    pool: Annotated[Path, Guarded()]  # only the data's owner may widen it
    sigma: float = 4.0
    epsilon: float = 2.0
    runtime: RuntimeConfig = RuntimeConfig()


def vectors(config: MeanConfig) -> np.ndarray:
    rows = np.stack(pq.read_table(config.pool)["features"].to_pylist()).astype(float)
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


class MeanRuns(ListedRuns[MeanConfig]):
    def plan(self, config: MeanConfig) -> ListedRun[MeanConfig]:
        charge = Charge(cohorts=("0",), event=NoisyMoments(noise_multiplier=config.sigma))
        release = Release(name="mean", kind="training", phase=0, charges=(charge,))
        target, size = PrivacyTarget(epsilon=config.epsilon, delta=1e-5), len(vectors(config))
        source = open_source(config.pool, Role.POOL, label_column="label")
        return ListedRun.planned(config, target, [release], source=source, pool_size=size)

    def advance(self, run: ListedRun[MeanConfig], labeler: object = None) -> ListedRun[MeanConfig]:
        def draw() -> None:
            rows = vectors(run.config)
            mean = noisy_sum(rows.sum(0), run.config.sigma, rng=secure()) / len(rows)
            weights = {"1.weight": torch.tensor(np.stack([mean, -mean])).float()}
            with atomic_write(run.model) as temporary:
                temporary.write_bytes(save({**weights, "1.bias": torch.zeros(2)}))

        run.begin()
        run.release_once(draw)
        return run

    def tracked(self, run: ListedRun[MeanConfig]) -> Tracked:
        spec = ModelSpec(name="logistic", input_shape=(8,), classes=2)
        served = ServedModel(weights=run.model, source=run.source, extractor=ExtractorSpec(),
                             spec=spec, class_names=())  # fmt: skip
        return Tracked(parameters={"sigma": run.config.sigma}, figures={}, model=served)


MEAN = KINDS["mean"] = RunKind(
    name="mean", in_sentences="a noisy mean", in_titles="noisy mean", settings=MeanConfig,
    parse=MeanConfig.model_validate,
    entrypoint="flows.whole_run.mean", steps=f"{__name__}.MeanRuns", template="",
    does="Releases a noisy mean.", does_named="Releases the noisy mean {name}.",
)  # fmt: skip
