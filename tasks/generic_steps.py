"""The tasks of runs that go in one piece, whatever kind they are of."""

from __future__ import annotations

from typing import Any

from dpal.config.runtime import RunConfig
from dpal.runs.kinds import KINDS, kind_of
from dpal.runs.run import Run
from dpal.runs.tracked_facts import Tracked
from dpal.runs.use_cases import UseCases
from tasks.boundary import releasing_task, task


@task()
def plan(config: RunConfig) -> Run[Any]:
    """Looks at the data and certifies a plan; writes nothing."""
    return kind_of(config).use_cases().plan(config)


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


def tracked(run: Run[Any]) -> Tracked:
    """What MLflow is told of it."""
    return _steps_of(run).tracked(run)


def _steps_of(run: Run[Any]) -> UseCases[Any, Run[Any]]:
    return KINDS[run.kind].use_cases()
