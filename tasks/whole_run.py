"""The tasks of runs that go in one piece, whatever kind they are of."""

from __future__ import annotations

from typing import Any

from dpal.config.runtime import RunConfig
from dpal.reports.summary import promise
from dpal.runs.kinds import KINDS, UseCases, kind_of
from dpal.runs.run import Run
from dpal.runs.tracked import Tracked
from tasks.boundary import releasing_task, task
from tasks.prefect_page import Shown, show


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


def tell(run: Run[Any], now: str) -> str:
    """Writes the story of the flow run's page anew; returns it in a line."""
    summary, certified = run.certified.summary(), run.certified
    last = f"{now}: epsilon {certified.epsilon:.4f} of {promise(summary)}"
    lines = [f"# {run.noun.capitalize()} {run.name}", f"**Now:** {last}"]
    key = f"{run.kind}-{run.name.replace('_', '-')}"
    show(Shown(key=key, type="markdown", data="\n\n".join(lines), description=f"{run.name}: {now}"))
    return last


def _steps_of(run: Run[Any]) -> UseCases:
    return KINDS[run.kind].use_cases()
