"""Runs of any kind, from settings to certificate and report: no server, no tracking.

What is finished is skipped: run again after a crash, it goes on from where it stands.
"""

from __future__ import annotations

from typing import Any

from dpal.config.runtime import RunConfig
from dpal.files.artifacts import CampaignFolder
from dpal.labeling import Labeler
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.runs.calibrate_model import calibrate_released
from dpal.runs.host import host
from dpal.runs.kinds import folder_of, kind_of, recorded_kind
from dpal.runs.make_report import write_reports
from dpal.runs.manage_data_sets import end_early
from dpal.runs.run import Run
from dpal.runs.store_sync import bring_files, keep_files


def plan_run(config: RunConfig) -> Run[Any]:
    """Looks at the data and certifies a plan. Releases nothing, writes nothing.

    Raises:
      PlanRejected: the promise does not cover it.
      DataError, ConfigError, ParameterError: data and settings do not fit.
    """
    return kind_of(config).use_cases().plan(config)


def execute_run(config: RunConfig, *, labeler: Labeler | None = None) -> CampaignFolder:
    """Runs what settings say, or continues it, and returns its folder.

    Args:
      config: settings of any kind.
      labeler: answers the queries of a campaign whose settings say `labeler.kind: file`; None for
        those that the settings name.

    Raises:
      LabelsPending: people have to label first; deliver their labels and run again.
      CampaignBusy: another process runs it.
      PlanRejected, BudgetExceeded, DataBudgetExceeded: the promise does not cover it.
      DpalError: as each step says. What is persisted is not lost.
    """
    host().require_runnable(config.runtime)
    use_cases, root = kind_of(config).use_cases(), folder_of(config).root
    with leading_process(root), lock_folder(root):
        bring_files(config.name, config.runtime)
        begun = use_cases.prepare(config)
        finished = use_cases.advance(begun, labeler)
        use_cases.certify(finished)
        calibrate_released(finished)
        write_reports(finished.folder)
        keep_files(finished)
    return finished.folder


def end(folder: CampaignFolder) -> None:
    """Ends a run before its plan is done; what it held of a data set and did not use flows back.

    Its certificate, where it has one, is written anew: it tells of the end.

    Raises:
      LedgerError: the run never held a plan, so that there is nothing to end.
    """
    use_cases = recorded_kind(folder).use_cases()
    end_early(folder, use_cases.said_at_end)
    use_cases.certify_again(folder)
