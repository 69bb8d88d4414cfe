"""What a Prefect server should know of dpal: work pools, deployments, schedules, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dpal
from dpal import check
from dpal.config.capc_retraining import RetrainingConfig
from dpal.config.runtime import RunConfig
from dpal.config.watch import WatchConfig
from dpal.errors import ConfigError
from dpal.runs import kinds
from dpal.runs.kinds import KINDS, kind_of
from flows.cli.any_settings import load_any
from tasks.training_monitor import HEARTBEAT_SECONDS as HEARTBEAT_SECONDS

CAMPAIGNS = "campaigns"
TRAINING = "gpu"
TAG = "dpal"
MARK = "Made by dpal deploy."

# Where a container has its data set mounted; a process works where `dpal deploy` was called.
_IN_CONTAINER = Path("/work")
_CAMPAIGNS_AT_ONCE = 4
_TRAININGS_AT_ONCE = 1

# What every run is told, on whatever machine it starts.
ENVIRONMENT = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "GIT_PYTHON_REFRESH": "quiet",
}


@dataclass(frozen=True, kw_only=True)
class WorkPool:
    """A work pool.

    Attributes:
      name: as workers are started for it.
      type: process, docker or kubernetes.
      limit: runs at once; in the pool `campaigns` it counts campaigns and audits only, so that
        short ones (watch, collect-labels) never queue behind them.
      asked: whether a person asked for this limit; else one that is set already stays.
    """

    name: str
    type: str = "process"
    limit: int
    asked: bool = False

    def __post_init__(self) -> None:
        check.at_least(1, limit=self.limit)

    @property
    def queue(self) -> str | None:
        """The work queue that the limit is set on, where it is not the whole pool."""
        return CAMPAIGNS if self.name == CAMPAIGNS else None


@dataclass(frozen=True, kw_only=True)
class DeploymentSchedule:
    """When a deployment runs by itself: by cron, or every so often.

    Attributes:
      cron: such as "0 6 * * 1"; None goes by the interval.
      timezone: that the cron is read in.
      interval: between two runs.
    """

    cron: str | None = None
    timezone: str = "UTC"
    interval: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One flow, ready to be started on a pool.

    Attributes:
      flow: name of the flow.
      name: of the deployment; both together are what Prefect calls it by.
      entrypoint: module path of the flow function, in the installed package.
      pool: whose workers run it.
      queue: of that pool; None is its default one.
      about: a sentence for the page.
      parameters: what a run starts with, unless told otherwise.
      schedule: when it runs by itself.
      folder: in which it works, on the worker's machine.
      alone: whether a run that would begin while another one runs is cancelled: looks that are
        slow, or were missed while no worker was there, do not pile up.
    """

    flow: str
    name: str
    entrypoint: str
    pool: str
    about: str
    queue: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    schedule: DeploymentSchedule | None = None
    folder: Path = Path()
    alone: bool = False

    @property
    def full_name(self) -> str:
        """As in `prefect deployment run`."""
        return f"{self.flow}/{self.name}"

    @property
    def pull_steps(self) -> list[dict[str, Any]]:
        """What a worker does first; the code itself is installed there."""
        folder = {"directory": str(self.folder)}
        return [{"prefect.deployments.steps.set_working_directory": folder}]


# One of each kind of run that asks for everything in a form.
_RUNS = {
    kind.name: Deployment(
        flow=kind.name,
        name=kind.name,
        entrypoint=kind.entrypoint,
        pool=CAMPAIGNS,
        queue=CAMPAIGNS,
        about=kind.does,
    )
    for kind in KINDS.values()
}
CAMPAIGN = _RUNS[kinds.CAMPAIGN.name]
_TRAIN_PHASE = Deployment(
    flow="train-phase",
    name=TRAINING,
    entrypoint="flows.train_phase.train_phase",
    pool=TRAINING,
    about="Trains one phase. Campaigns start it; a person has no reason to.",
)
_TRAIN_MODEL = Deployment(
    flow="train-repeatable",
    name=TRAINING,
    entrypoint="flows.train_repeatable.train_repeatable",
    pool=TRAINING,
    about="Trains teachers, a student or public weights. Runs start it; a person need not.",
)
_ON_POOLS = (_TRAIN_PHASE, _TRAIN_MODEL)
_AUDIT = Deployment(
    flow="audit",
    name="audit",
    entrypoint="flows.audit.audit_run",
    pool=CAMPAIGNS,
    queue=CAMPAIGNS,
    about="Attacks what a campaign does to records, with its own code. Charges nothing.",
)
_COLLECT = Deployment(
    flow="collect-labels",
    name="collect-labels",
    entrypoint="flows.collect_labels.collect_labels",
    pool=CAMPAIGNS,
    about="Resumes the campaigns whose labels are complete, once; dpal desk does so by itself.",
    alone=True,
)
_WATCH = Deployment(
    flow="watch",
    name="watch",
    entrypoint="flows.watch.watch",
    pool=CAMPAIGNS,
    about="Looks for new Parquet files once, and starts a rerun where the budget allows.",
    alone=True,
)
# Short ones first: what people look for.
_NEW = tuple(
    Deployment(
        flow=f"new-{kind.name}",
        name=f"new-{kind.name}",
        entrypoint=f"flows.new_run.new_{kind.name}",
        pool=CAMPAIGNS,
        about=f"Starts {kind.in_sentences}: a short form, from which all settings follow.",
    )
    for kind in KINDS.values()
    if kind.short_form is not None
)
_CAPC = Deployment(
    flow="capc",
    name="capc",
    entrypoint="flows.capc.buy_and_learn",
    pool=CAMPAIGNS,
    queue=CAMPAIGNS,
    about="Asks sites that do not trust each other, and learns from the labels that they give.",
)
_DEPLOYED = (*_NEW, *_RUNS.values(), _CAPC, *_ON_POOLS, _AUDIT, _COLLECT, _WATCH)
# Which function runs a flow: all that a worker of ours ever runs.
ENTRYPOINTS = {deployment.flow: deployment.entrypoint for deployment in _DEPLOYED}
FLOWS = tuple(ENTRYPOINTS)
# What a process imports ahead that may become a training: the flows, and what these import late
# (torch._dynamo: by torch itself, with the first optimizer that is made).
TRAINING_MODULES = (
    *(deployment.entrypoint.rpartition(".")[0] for deployment in _ON_POOLS),
    "dpal.accounting.second_opinion",
    "pandas",
    "scipy.optimize",
    "sqlalchemy.dialects.sqlite",
    "torch._dynamo",
)


def usual(pools: Sequence[WorkPool]) -> list[Deployment]:
    """A deployment for every flow; of those that train, one for each pool that trains."""
    training = [pool.name for pool in pools if pool.name != CAMPAIGNS]
    deployments: list[Deployment] = []
    for deployment in _DEPLOYED:
        if deployment in _ON_POOLS:
            deployments += [replace(deployment, name=pool, pool=pool) for pool in training]
        else:
            deployments.append(deployment)
    return deployments


def from_file(file: Path) -> Deployment:
    """The deployment of the configuration of a run of any kind, of a retraining, or of a watch.

    Raises:
      ConfigError: the file says something impossible, or holds a password.
    """
    config = load_any(file)
    if isinstance(config, WatchConfig):
        return _of_watch(config)
    if isinstance(config, RetrainingConfig):
        return _named(
            _CAPC, config, f"Buys labels of sites as {config.name}, and learns from them."
        )
    kind = kind_of(config)
    return _named(_RUNS[kind.name], config, kind.does_named.format(name=config.name))


def pools_of(
    types: Mapping[str, str], limits: Mapping[str, int], deployments: Sequence[Deployment] = ()
) -> list[WorkPool]:
    """The usual two pools, those that were named, and those that configurations train on."""
    names = dict.fromkeys([CAMPAIGNS, TRAINING, *types, *map(_trains_on, deployments)])
    made = []
    for name in filter(None, names):
        usually = _CAMPAIGNS_AT_ONCE if name == CAMPAIGNS else _TRAININGS_AT_ONCE
        limit, asked = limits.get(name, usually), name in limits
        made.append(WorkPool(name=name, type=types.get(name, "process"), limit=limit, asked=asked))
    return made


def folder_for(pool: WorkPool, folders: Mapping[str, Path], here: Path) -> Path:
    """Where the runs of a pool work: as told, else here, or where a container has its data."""
    usually = here if pool.type == "process" else _IN_CONTAINER
    return folders.get(pool.name, folders.get("", usually))


def worker_command(pool: str, kind: str = "process") -> str:
    """What starts a worker for a pool; Prefect's own starts containers.

    >>> worker_command("gpu"), worker_command("gpu", "docker")
    ('dpal worker gpu', 'prefect worker start --pool gpu')
    """
    return f"dpal worker {pool}" if kind == "process" else f"prefect worker start --pool {pool}"


def version() -> str:
    """What deployments are marked with; `dpal doctor` compares it."""
    return dpal.__version__


def shown_parameters(config: RunConfig) -> dict[str, Any]:
    """Settings as the parameters of a flow run, which stand on pages.

    Raises:
      ConfigError: a password is among them.
    """
    uri = config.runtime.mlflow_uri
    _no_password(uri, "runtime.mlflow_uri", "MLFLOW_TRACKING_PASSWORD")
    return {"config": config.model_dump(mode="json")}


def _named(usual_one: Deployment, config: RunConfig, about: str) -> Deployment:
    """The deployment of one configuration, beside the one that asks for everything."""
    if config.name == usual_one.name:
        raise ConfigError(
            f"name: {config.name} is the deployment that asks for everything in a form; choose "
            "another name"
        )
    cron, zone = config.runtime.cron, config.runtime.timezone or "UTC"
    return replace(
        usual_one,
        name=config.name,
        about=about,
        parameters=shown_parameters(config),
        schedule=DeploymentSchedule(cron=cron, timezone=zone) if cron else None,
    )


def _of_watch(config: WatchConfig) -> Deployment:
    # No schedule: a look is no run that people should see. The desk looks as these settings say.
    return replace(
        _WATCH,
        name=config.name,
        about=f"Looks for new Parquet files in {config.folder}; dpal desk does so {config.rhythm}.",
        parameters={"config": config.model_dump(mode="json")},
    )


def _trains_on(deployment: Deployment) -> str | None:
    config = deployment.parameters.get("config", {})
    pool = config.get("campaign", config).get("runtime", {}).get("training_pool")
    return str(pool) if pool else None


def _no_password(url: str | None, key: str, variable: str) -> None:
    if urlsplit(url or "").password is not None:
        raise ConfigError(
            f"{key} holds a password, and a deployment's settings are shown on pages; leave it "
            f"out and put it into the environment variable {variable} of the workers"
        )
