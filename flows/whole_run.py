"""Flows of kinds that have none of their own: all steps of `dpal.runs` in one go.

`flows.whole_run.NAME` is the flow of the kind of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.runtime import RunConfig
from dpal.ledger.campaign_lock import claim, conducting
from dpal.runs.kinds import KINDS, RunKind, folder_of
from dpal.runs.store_sync import bring_files, keep_files
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.prefect_page import run_name
from tasks.reporting import write_report
from tasks.run_page import tell_end, tell_run
from tasks.tracking.finished import reach_tracking, track_finished
from tasks.tracking.runs import watched
from tasks.training_monitor import leading
from tasks.versioning import version_released
from tasks.whole_run import advance, certify, prepare, tracked_of


def __getattr__(name: str) -> Flow[Any, Any]:
    if name not in KINDS:
        raise AttributeError(name)
    return _flow_of(name)


@cache
def _flow_of(name: str) -> Flow[Any, Any]:
    kind = KINDS[name]

    def run(config: RunConfig) -> State:
        return _run(kind, config)

    run.__doc__ = kind.does
    run.__annotations__ = {"config": kind.settings, "return": State}
    options = {"retries": 0, "flow_run_name": run_name, "validate_parameters": False}
    return flow(name=name, **options)(run)


def _run(kind: RunKind, config: RunConfig | Mapping[str, Any]) -> State:
    """All steps, from where the run stands."""
    if not isinstance(config, RunConfig):
        config = kind.parse(config)
    require_allowed(config)
    root = folder_of(config).root
    with leading(), conducting(root), claim(root), watched(config.runtime):
        bring_files(config.name, config.runtime)
        run = prepare(config)
        reach_tracking(run)
        tell_run(run, "the plan is certified")
        run = advance(run)
        certify(run)
        dvc_hash = version_released(run.runtime, run.released())
        write_report(run)
        track_finished(run, tracked_of(run), dvc_hash)
        keep_files(run)
        last = tell_end(run)
    return Completed(message=last, data=str(root))
