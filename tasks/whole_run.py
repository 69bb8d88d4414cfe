"""The tasks of runs that go in one piece, whatever kind they are of."""

from __future__ import annotations

from typing import Any

from dpal.config.runtime import RunConfig
from dpal.runs.kinds import KINDS, UseCases, kind_of
from dpal.runs.run import Run
from dpal.runs.tracked import Tracked
from tasks.boundary import releasing_task, task


@task()
def prepare(config: RunConfig) -> Run[Any]:
    """Looks at the data and certifies a plan, before anything is released."""
    return kind_of(config).use_cases().prepare(config)


@releasing_task
def advance(run: Run[Any]) -> Run[Any]:
    """Holds the plan and does everything that is not done yet."""
    return _steps_of(run).advance(run)


@task()
def certify(run: Run[Any]) -> None:
    """Writes certificate.json from what the ledger holds."""
    _steps_of(run).certify(run)


def tracked_of(run: Run[Any]) -> Tracked:
    """What MLflow is told of it."""
    return _steps_of(run).tracked_of(run)


def _steps_of(run: Run[Any]) -> UseCases:
    return KINDS[run.kind].use_cases()
