"""Records whose inclusion can be read off a gradient, and crews to train on them."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from typing import cast

import numpy as np
import torch
from torch import nn

from dpal.data.labeled_records import LabeledSet
from dpal.data.process_share import Share
from dpal.errors import DataError
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.selection_steps import RandomDraw
from dpal.planning.training_recipe import Recipe
from dpal.randomness import secure
from dpal.training.distributed import worker
from dpal.training.distributed.messages import LoadRecords, send
from dpal.training.distributed.worker_handle import WorkerHandle
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.train_phase import train_dp_sgd
from tests.training.gradients import flat_gradient

RECORDS = 64
C = 0.5  # below the norm of every gradient, sqrt(1/2): all are clipped to it
BATCH = 16.0
STILL = OptimizerSpec(name="sgd", learning_rate=1e-30, momentum=0.0, max_grad_norm=C)

# Record i is the i-th unit vector, so that column i of a linear model's gradient is its own.
UNITS = LabeledSet(
    inputs=torch.eye(RECORDS),
    labels=torch.zeros(RECORDS, dtype=torch.int64),
    cohorts=(np.arange(RECORDS) < RECORDS // 2).astype(np.int16),
)
LOAD = in_memory(UNITS)


def phase(steps: int, *, noise: float, old: float = 0.5, new: float = 0.5) -> Phase:
    training = TrainingPhase(
        steps=steps,
        noise_multiplier=noise,
        sample_rate_old=old,
        sample_rate_new=new,
        expected_batch_size=BATCH,
    )
    return Phase(index=1, cohort_size=RECORDS // 2, selection=RandomDraw(), training=training)


def gradients(
    one: Phase,
    crew: WorkerPool | None = None,
    *,
    model: nn.Module | None = None,
    spec: OptimizerSpec = STILL,
    recipe: Recipe | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> np.ndarray:
    """Released sums over C, of a model whose weights stay 0 unless said otherwise.

    Returns:
      (steps, parameters); for the linear model (steps, 2, RECORDS).
    """
    linear = model is None
    if model is None:
        model = nn.Linear(RECORDS, 2, bias=False)
        nn.init.zeros_(model.weight)
    seen: list[np.ndarray] = []

    def keep(done: int) -> None:
        flat = flat_gradient(model)
        seen.append(flat.double().numpy() * BATCH / C)
        on_step(done)

    train_dp_sgd(
        model,
        torch.optim.SGD(model.parameters(), lr=spec.learning_rate),
        LOAD(share=crew.share) if crew else UNITS,
        one,
        spec,
        physical_batch=32,
        rng=secure(),
        recipe=recipe,
        crew=crew,
        on_step=keep,
    )
    found = np.stack(seen)
    return found.reshape(-1, 2, RECORDS) if linear else found


def signals(released: np.ndarray) -> np.ndarray:
    """(steps, RECORDS): 1 where a record is in the batch and else 0, plus noise."""
    return (released[:, 1] - released[:, 0]) / np.sqrt(2)


def noises(released: np.ndarray) -> np.ndarray:
    """(steps, RECORDS): where records contribute nothing; noise over C."""
    return (released[:, 1] + released[:, 0]) / np.sqrt(2)


class Beside:
    """A helper's process that is a thread here, so that a fault can be planted in it."""

    def __init__(self, thread: threading.Thread, ours: Connection) -> None:
        self.thread, self.ours = thread, ours

    def poll(self) -> int | None:
        return None if self.thread.is_alive() else 0

    def kill(self) -> None:
        self.ours.close()

    def wait(self, timeout: float | None = None) -> int:
        self.thread.join(timeout)
        if timeout is not None and self.thread.is_alive():
            raise subprocess.TimeoutExpired("helper", timeout)
        return 0


def hire_thread(start: LoadRecords) -> WorkerHandle:
    """Runs what a helper's process would run."""
    ours, theirs = Pipe()
    descriptor = os.dup(theirs.fileno())
    theirs.close()
    thread = threading.Thread(target=worker.run_worker, args=(descriptor,), daemon=True)
    thread.start()
    send(ours, start)
    return WorkerHandle(
        share=start.share, process=cast("subprocess.Popen[bytes]", Beside(thread, ours)), link=ours
    )


class Refusing:
    """A loader that works at rank 0 only."""

    def __call__(self, *, share: Share) -> LabeledSet:
        if share.rank:
            raise DataError("row {row} has no image; remove the row or fill it in", row=7)
        return LOAD(share=share)


class Failing:
    def __call__(self, *, share: Share) -> LabeledSet:
        if share.rank:
            raise RuntimeError("the name of somebody")
        return LOAD(share=share)


class Greedy:
    """A loader that gives everybody everything."""

    def __call__(self, *, share: Share) -> LabeledSet:
        return LOAD(share=share) if share.rank == 0 else UNITS


class Mislabeling:
    """A loader of records that no loss can be computed of, at ranks above 0."""

    def __call__(self, *, share: Share) -> LabeledSet:
        one = LOAD(share=share)
        return replace(one, labels=one.labels + 5 * share.rank)
