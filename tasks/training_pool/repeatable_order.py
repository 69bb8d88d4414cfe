"""Trainings without noise, here or on a work pool: teachers, a student, fine-tuning.

They release nothing by themselves. A worker of a pool finds and leaves their files in the folder of
the run, which both machines share; with an object store they stay with the process that leads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel, ConfigDict, Field

from dpal.canonical import digest
from dpal.config.runtime import RunConfig
from dpal.errors import ConfigError, LedgerError
from dpal.files.atomic_writes import write_text
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.devices import require_device
from dpal.runs.kinds import KINDS, folder_of, kind_of, parse_any
from dpal.runs.progress_logging import notify
from dpal.runs.repeatable_training import RepeatableTraining
from dpal.runs.run import ConfiguredRun, Run
from tasks.boundary import task
from tasks.training_pool.order_and_wait import PoolTraining, train_elsewhere, wait_for_ordered
from tasks.training_pool.worker_device import on_worker_device

_TAG = ".training-tag"  # of a run's folder: no other run has it, and no other machine needs it
_ORDER = ".training-order"  # the digest of what was ordered, where only its owner can write it
_PATIENCE_SECONDS = 180.0  # whoever had the run before may be on its way out

Training = RepeatableTraining[Any]


class RepeatableOrder(BaseModel):
    """One training without noise. It may be seen: it says what settings say, and no more.

    Attributes:
      config: settings of the run, with its kind and absolute paths.
      training: which one.
      plan: digest of the run's plan.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: dict[str, Any] = Field(title="Settings")
    training: str = Field(title="What is trained")
    plan: str = Field(title="Digest of the plan")

    @property
    def digest(self) -> str:
        """Commits to all of it."""
        return digest(self.model_dump(mode="json"))

    def settings(self) -> RunConfig:
        """Those of the run, for a machine that trains by itself.

        Raises:
          ConfigError: they are of no kind that is known here, or impossible.
        """
        config = parse_any(self.config)
        alone = config.runtime.model_copy(update={"training_pool": None})
        return config.model_copy(update={"runtime": alone})


def train(run: ConfiguredRun[Any], training: Training) -> None:
    """Trains what is not trained yet: here, or by a worker of `runtime.training_pool`."""
    if _goes_to_pool(run, training):
        train_repeatable_on_pool(run, training)
    else:
        train_here(run, training)


def _goes_to_pool(run: Run[Any], training: Training) -> bool:
    """Whether workers of a pool do it; where they would not find its files, a person is told."""
    if run.runtime.training_pool is None or training.is_done(run):
        return False
    if run.runtime.store is not None:
        notify(
            f"{training.name}: trained in this process, as workers of {run.runtime.training_pool} "
            "find such files in a shared artifacts folder, and runtime.store is set"
        )
        return False
    return True


@task(retries=0, cache_policy=NO_CACHE, task_run_name="{training.name}-on-pool")
def train_repeatable_on_pool(run: ConfiguredRun[Any], training: Training) -> None:
    """Has a worker of the pool train, again if it is lost; it orders again by itself.

    Raises:
      TrainingLost: it failed, or was lost too often without getting any further.
      TrainingStopped: it was cancelled.
    """
    order, root = _order(run, training), run.folder.root
    write_text(root / _ORDER, order.digest)
    train_elsewhere(
        PoolTraining(
            pool=str(run.runtime.training_pool),
            flow="train-repeatable",
            what=training.name,
            order=order.model_dump(mode="json"),
            tags=[_tag(root), training.name],
            standing=lambda: (training.made(run), training.is_done(run)),
            further=lambda _: "",
            keeps="nothing was released by it and nothing but time is lost",
        ),
        root,
    )


def wait_for_earlier_repeatable(config: RunConfig) -> None:
    """Waits for a training that a process of this run ordered before it was killed."""
    pool, root = config.runtime.training_pool, folder_of(config).root
    if pool is not None and (root / _TAG).is_file():
        wait_for_ordered([_tag(root)], pool)


@contextmanager
def following_repeatable_order(order: RepeatableOrder) -> Iterator[tuple[Run[Any], Training]]:
    """Prepares the run that an order is about, and holds its folder.

    Raises:
      ConfigError: it names a training that its kind of run does not have.
      LedgerError: the run did not order this, or the settings or the data make another plan here,
        or what the run holds is about other records.
      CampaignBusy: another process holds the run and does not let go of it.
    """
    config = on_worker_device(order.settings())
    require_device(config.runtime)
    kind, root = kind_of(config), folder_of(config).root
    steps = kind.use_cases()
    trainings = {training.name: training for training in steps.trainings}
    if order.training not in trainings:
        raise ConfigError.before_release(
            f"runs of kind {kind.name} do not train {order.training!r} by themselves; known are: "
            f"{', '.join(trainings) or 'none'}"
        )
    ordered = root / _ORDER
    # Whoever can start this flow can write any order, and not what lies in the folder.
    if not ordered.is_file() or ordered.read_text(encoding="utf-8") != order.digest:
        raise LedgerError.before_release(
            f"run {config.name} in {config.runtime.artifacts} did not order this training; start "
            "the run itself, and let its machine and this one share that folder"
        )
    with lock_folder(root, patience=_PATIENCE_SECONDS):
        run: Run[Any] = steps.prepare(config)
        if run.plan.digest != order.plan:
            raise LedgerError.before_release(
                f"run {config.name} was ordered with plan {order.plan[:12]} and is plan "
                f"{run.plan.digest[:12]} here; use the same data, weights and version of dpal on "
                "both machines"
            )
        training = trainings[order.training]
        training.require(run)
        yield run, training


@task(cache_policy=NO_CACHE, task_run_name="train-{training.name}")
def train_here(run: Run[Any], training: Training) -> None:
    """Trains in this process what is not trained yet."""
    training.train(run)


def _order(run: ConfiguredRun[Any], training: Training) -> RepeatableOrder:
    told = with_absolute_paths(run.config)
    artifacts = {"artifacts": told.runtime.artifacts.resolve()}
    told = told.model_copy(update={"runtime": told.runtime.model_copy(update=artifacts)})
    named = {"kind": KINDS[run.kind].name, **told.model_dump(mode="json", exclude_defaults=True)}
    return RepeatableOrder(config=named, training=training.name, plan=run.plan.digest)


def _tag(root: Path) -> str:
    """What finds the flow runs that train for a run; nobody else has it."""
    path = root / _TAG
    if not path.is_file():
        write_text(path, f"dpal:{secrets.token_hex(16)}")
    return path.read_text(encoding="utf-8")
