"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

from functools import partial

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.voting import PateConfig, parse_pate
from dpal.ledger.campaign_lock import claim, conducting
from dpal.runs.baselines import CAMPAIGNS, KNN, NON_PRIVATE, Judge, compare
from dpal.runs.kinds import folder_of
from dpal.runs.store_sync import bring_files, keep_files
from dpal.runs.voting import tracked_of
from flows.campaign import run_campaign
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.prefect_page import run_name
from tasks.reporting import write_report
from tasks.run_page import tell_end, tell_run
from tasks.tracking.finished import reach_tracking, track_finished
from tasks.tracking.runs import watched
from tasks.training_monitor import leading
from tasks.versioning import version_files
from tasks.voting import (
    certify_student,
    close_student,
    deal_records,
    hold_ensemble,
    judge_campaign,
    judge_non_private,
    judge_private_knn,
    prepare_ensemble,
    record_ensemble,
    release_labels,
    train_on_votes,
    train_teachers,
)

JUDGES: dict[str, Judge] = {
    CAMPAIGNS: judge_campaign,
    NON_PRIVATE: judge_non_private,
    KNN: judge_private_knn,
}


# Settings are checked inside: what is wrong with them is then one sentence on the page.
@flow(name="pate", retries=0, flow_run_name=run_name, validate_parameters=False)
def vote_and_learn(config: PateConfig) -> State:
    """Trains teachers, releases their votes once, and returns the folder of the student.

    Steps that are done are skipped; votes are drawn once.

    Args:
      config: what is wanted; only the name must be given.
    """
    if not isinstance(config, PateConfig):
        config = parse_pate(config)
    require_allowed(config)
    root = folder_of(config).root
    with leading(), conducting(root):
        last = _vote(config)
    return Completed(message=last, data=str(root))


def _vote(config: PateConfig) -> str:
    """All steps, as the one process that holds the claim; how it ended, in a line."""
    with claim(folder_of(config).root), watched(config.runtime):
        bring_files(config.name, config.runtime)
        ensemble = prepare_ensemble(config)
        reach_tracking(ensemble)
        hold_ensemble(ensemble)
        record_ensemble(ensemble)
        tell_run(ensemble, "the plan is certified; teachers are trained")
        deal_records(ensemble)
        train_teachers(ensemble)
        release_labels(ensemble)
        tell_run(ensemble, "votes are released; the student learns")
        train_on_votes(ensemble)
        close_student(ensemble)
        compare(ensemble, run_campaign, judges=JUDGES, tell=partial(tell_run, ensemble))
        certify_student(ensemble)
        dvc_hash = version_files(config.runtime, ensemble.files.root)
        write_report(ensemble)
        track_finished(ensemble, tracked_of(ensemble), dvc_hash)
        keep_files(ensemble)
        return tell_end(ensemble)
