"""Runs that are told of as a whole: what all kinds of them share, around the steps of a kind.

`flows.whole_run.NAME` is the flow of the kind of that name, for kinds that have none of their own:
all steps of `dpal.runs` in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.runtime import RunConfig
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.runs.kinds import KINDS, RunKind, folder_of, parse_as
from dpal.runs.run import Run
from dpal.runs.store_sync import bring_files, keep_files, require_store_for_workers
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.flow_run_page import run_name
from tasks.generic_page import tell_run, tell_run_end
from tasks.generic_steps import advance, certify, prepare, tracked
from tasks.lineage import told_to_lineage
from tasks.tracking.mlflow_connection import watching_server
from tasks.tracking.whole_runs import (
    reach_tracking,
    track_finished,
    track_spent,
    whole_run_tracked,
)
from tasks.training_monitor import watching_for_cancellation
from tasks.training_pool.repeatable_order import wait_for_earlier_repeatable
from tasks.version_with_dvc import require_remote, version_released
from tasks.write_reports import write_report

R = TypeVar("R", bound=Run[Any])

# Settings are checked inside: what is wrong with them is then one sentence on the page.
WHOLE_RUN: Mapping[str, Any] = {
    "retries": 0,
    "flow_run_name": run_name,
    "validate_parameters": False,
}


def conduct(
    kind: RunKind, config: RunConfig | Mapping[str, Any], steps: Callable[[R], R]
) -> State[Any]:
    """A run from where it stands to its certificate, report and tracking.

    Args:
      kind: of the run.
      config: its settings, as they are or as a form sent them.
      steps: hold the plan and do everything that is not done yet; they return the run.
    """
    wanted = parse_as(kind, config)
    require_allowed(wanted)
    require_remote(wanted.runtime)
    if wanted.calls_campaigns:
        require_store_for_workers(wanted.runtime)
    root = folder_of(wanted).root
    with watching_for_cancellation(), leading_process(root):
        wait_for_earlier_repeatable(wanted)
        with lock_folder(root), watching_server(wanted.runtime):
            last = _from_where_it_stands(wanted, steps)
    return Completed(message=last, data=str(root))


def _from_where_it_stands(config: RunConfig, steps: Callable[[R], R]) -> str:
    """All of it, as the one process that has the run's folder; how it ended, in a line."""
    bring_files(config.name, config.runtime)
    run: Any = prepare(config)
    reach_tracking(run)
    with whole_run_tracked(run), told_to_lineage(run, config) as tell_lineage:
        run = steps(run)
        track_spent(run)
        tell_lineage()
        certify(run)
        dvc_hash = version_released(run.runtime, run.released())
        write_report(run)
        track_finished(run, tracked(run), dvc_hash)
    keep_files(run)
    return tell_run_end(run)


def _all_at_once(run: Run[Any]) -> Run[Any]:
    tell_run(run, "the plan is certified")
    return advance(run)


@cache
def _flow_of(name: str) -> Flow[Any, Any]:
    kind = KINDS[name]

    def run(config: RunConfig) -> State:
        return conduct(kind, config, _all_at_once)

    run.__doc__ = kind.does
    run.__annotations__ = {"config": kind.settings, "return": State}
    return flow(name=name, **WHOLE_RUN)(run)


def __getattr__(name: str) -> Flow[Any, Any]:
    if name not in KINDS:
        raise AttributeError(name)
    return _flow_of(name)
