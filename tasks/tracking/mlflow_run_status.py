"""A run in MLflow that is as ours is: running while it runs, failed where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from mlflow.entities import Run as MlflowRun
from prefect.exceptions import Pause

from dpal.errors import TrainingStopped
from dpal.runs.run import Run
from tasks.boundary import is_public
from tasks.tracking.experiment import tell_mlflow
from tasks.tracking.mlflow_connection import TrackingError
from tasks.tracking.mlflow_run import FAILED, KILLED, TrackedRun, day_of_plan, noon

ENDED = "dpal.finished"  # the tag of a run that is told of to its end

Find = Callable[[], MlflowRun | None]


@contextmanager
def live_until_end(run: Run[Any], find: Find) -> Iterator[None]:
    """Within this block a run in MLflow is running; it fails with the block, or is killed.

    A run that waits for people goes on running: it lives for weeks. MLflow is not waited for here;
    whatever is missed is told by the next step.

    Args:
      run: of ours.
      find: finds it in MLflow; None while it is not there.
    """
    with suppress(TrackingError):
        tell_mlflow(run.runtime, partial(_go_on, run, find), patient=False)
    try:
        yield
    except Pause:
        raise
    except BaseException as error:
        with suppress(Exception):  # it may be MLflow that failed, or the ledger
            tell_mlflow(run.runtime, partial(_end, run, find, error), patient=False)
        raise


def is_told_to_its_end(existing: MlflowRun | None) -> bool:
    """Whether MLflow knows all of a run."""
    return existing is not None and existing.data.tags.get(ENDED) == "true"


def plan_day(run: Run[Any]) -> str:
    """The day of the plan; today where nothing is held, as for an audit of mere settings."""
    return day_of_plan([run.name], run.known_entries())


def _go_on(run: Run[Any], find: Find) -> None:
    existing = find()
    if existing is not None and not is_told_to_its_end(existing):
        TrackedRun(run_id=existing.info.run_id, at=noon(plan_day(run))).go_on()


def _end(run: Run[Any], find: Find, error: BaseException) -> None:
    """Ends the run in MLflow, if there is one, with words that are public."""
    existing = find()
    if existing is None or is_told_to_its_end(existing):
        return
    told = is_public(error) and not isinstance(error, TrackingError)  # that one has a time
    stopped = isinstance(error, TrainingStopped) or not isinstance(error, Exception)
    why = str(error) if told else "its flow run's page says more"
    ended = TrackedRun(run_id=existing.info.run_id, at=noon(plan_day(run)))
    ended.set_tags({"dpal.state": f"{'stopped' if stopped else 'failed'}: {why}"})
    ended.end(KILLED if stopped else FAILED)
