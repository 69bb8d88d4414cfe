"""Independent parts of a large computation, side by side on the workers of a task runner.

Parts draw no noise and release nothing, so a part whose worker was lost is computed again.
Their results may be private: they come back in memory and are persisted nowhere.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from importlib import import_module
from typing import Any, TypeVar

from prefect import Task
from prefect.client.orchestration import get_client
from prefect.context import TaskRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import TaskRunner

from dpal.config.runtime import RuntimeConfig, TaskRunnerKind
from dpal.errors import RunnerError
from dpal.runs import score_records, teachers
from dpal.runs.progress_logging import notify
from tasks.boundary import task

Part = TypeVar("Part")
Result = TypeVar("Result")

# Neither is a release: both draw no noise, stay in memory, and may be computed twice.
score_shard = task(task_run_name="score-shard-{part.shard.number}")(score_records.score_shard)
train_block = task(task_run_name="train-teachers-{part.number}")(teachers.train_block)
PARTS: dict[Any, Task[[Any], Any]] = {
    score_records.score_shard: score_shard,
    teachers.train_block: train_block,
}

_AHEAD = 2  # parts in flight for each that is worked on: nobody waits for the next one


def run_parts(
    work: Task[[Part], Result], parts: Sequence[Part], runtime: RuntimeConfig
) -> Iterator[Result]:
    """Runs a task on every part and yields its results, in the order of the parts.

    Few parts are ahead of the one whose result is asked for, so that memory holds few results.

    Args:
      work: takes a part, by the name `part`; draws no noise, releases nothing, persists no
        result.
      parts: small; they travel to the workers.
      runtime: says which task runner, and how many parts at a time.

    Raises:
      RunnerError: workers are missing, unfit or were lost too often. Nothing was released.
      DpalError: what the task itself refuses.
    """
    in_flight: deque[Any] = deque()
    with _told(runtime), _runner(runtime) as runner:
        api = _api_url()
        for part in parts:
            in_flight.append(_submit(runner, work, part, api))
            if len(in_flight) == _AHEAD * runtime.shards:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()


def _submit(runner: TaskRunner[Any], work: Task[[Part], Result], part: Part, api: str) -> Any:
    """Submits a part as a task run of the flow, with nothing of the task that asks for it."""

    def submit() -> Any:
        # The context travels along: the parameters of the task we are in hold a campaign.
        TaskRunContext.__var__.set(None)  # type: ignore[arg-type]
        # Workers must find the server of this run, also one that lives as long as the run.
        with temporary_settings({PREFECT_API_URL: api}):
            return runner.submit(work, {"part": part})

    return copy_context().run(submit)


def _api_url() -> str:
    with get_client(sync_client=True) as client:
        return str(client.api_url)


@contextmanager
def _runner(runtime: RuntimeConfig) -> Iterator[TaskRunner[Any]]:
    """A started task runner; one without an address lives as long as the parts."""
    where = runtime.scheduler or f"{_workers(runtime)} workers on this machine"
    notify(f"working on {runtime.task_runner}: {where}")
    open_runner = _OPEN[runtime.task_runner]
    with open_runner(runtime) as runner:
        yield runner


@contextmanager
def _dask(runtime: RuntimeConfig) -> Iterator[TaskRunner[Any]]:
    dask = import_module("prefect_dask")  # an extra: not everyone has it
    if runtime.scheduler is not None:
        runner = dask.DaskTaskRunner(address=runtime.scheduler)
    else:
        runner = dask.DaskTaskRunner(
            cluster_class="distributed.LocalCluster",
            cluster_kwargs={
                "n_workers": _workers(runtime),
                "threads_per_worker": 1,
                "memory_limit": 0,  # none: results are never spilled to a disk
                "dashboard_address": None,
                "silence_logs": logging.CRITICAL,
                # TLS with keys of its own: other users of this machine can reach its ports,
                # and would get our rights.
                "security": True,
            },
        )
    with runner:
        if any(runner.client.run(_may_spill).values()):
            raise RunnerError(
                f"workers of {runtime.scheduler} may write results to their disks, and scores are "
                "private; start them with DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False and "
                "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False"
            )
        yield runner


def _may_spill(dask_worker: Any) -> bool:
    return type(dask_worker.data) is not dict


@contextmanager
def _ray(runtime: RuntimeConfig) -> Iterator[TaskRunner[Any]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_module("prefect_ray")
    local: dict[str, Any] = {
        "num_cpus": _workers(runtime),
        "include_dashboard": False,
        "_system_config": {"automatic_object_spilling_enabled": False},
    }
    options = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if runtime.scheduler is None:
        options |= local
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # no other user here sends it work
    with ray.RayTaskRunner(address=runtime.scheduler, init_kwargs=options) as runner:
        yield runner


_OPEN = {TaskRunnerKind.DASK: _dask, TaskRunnerKind.RAY: _ray}


def _workers(runtime: RuntimeConfig) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(runtime.shards, cores or 1))


@contextmanager
def _told(runtime: RuntimeConfig) -> Iterator[None]:
    """Turns what goes wrong with workers into one sentence."""
    kind = runtime.task_runner
    where = runtime.scheduler or "this machine"
    try:
        yield
    except ImportError as error:
        raise RunnerError(
            f"runtime.task_runner {kind} needs more packages ({error.name} is missing); install "
            f"dpal[{kind}] or use local"
        ) from error
    except BaseException as error:
        if not _is_of_runner(error):
            raise
        raise RunnerError(
            f"the {kind} workers on {where} did not bring a result ({type(error).__name__}: "
            "{said}); run the same command again once they answer, or with runtime.task_runner "
            "local",
            said=(str(error).splitlines() or [""])[0][:200],
        ) from error


def _is_of_runner(error: BaseException) -> bool:
    """Whether an error is one of the cluster's own, not one of the work."""
    package = type(error).__module__.partition(".")[0]
    return package in ("distributed", "dask", "ray") or isinstance(error, OSError | TimeoutError)
