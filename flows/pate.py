"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.voting import PateConfig, parse_pate
from dpal.errors import DataBudgetExceeded, DpalError, ParameterError, RecordsRegistered
from dpal.ledger.campaign_lock import claim, conducting
from dpal.runs.ensemble import Ensemble
from dpal.runs.kinds import folder_of
from dpal.runs.notify import notify
from flows.campaign import run_campaign
from tasks.allow_list import require_allowed
from tasks.baselines import (
    KNN,
    NON_PRIVATE,
    baseline_settings,
    is_campaign,
    is_judged,
    judge_campaign,
    judge_non_private,
    judge_private_knn,
)
from tasks.boundary import flow
from tasks.pate_report import certify_student, tell_voting, tell_voting_end
from tasks.prefect_page import run_name
from tasks.prepare_voting import prepare_ensemble
from tasks.reporting import write_report
from tasks.student import (
    close_student,
    hold_ensemble,
    record_ensemble,
    release_labels,
    train_on_votes,
)
from tasks.teachers import deal_records, train_teachers
from tasks.tracking.runs import watched
from tasks.tracking.voting import reach_tracking, track_student
from tasks.training_monitor import leading
from tasks.versioning import version_files


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
        ensemble = prepare_ensemble(config)
        reach_tracking(ensemble)
        hold_ensemble(ensemble)
        record_ensemble(ensemble)
        tell_voting(ensemble, "the plan is certified; teachers are trained")
        deal_records(ensemble)
        train_teachers(ensemble)
        release_labels(ensemble)
        tell_voting(ensemble, "votes are released; the student learns")
        train_on_votes(ensemble)
        close_student(ensemble)
        _compare(ensemble)
        certify_student(ensemble)
        dvc_hash = version_files(config.runtime, ensemble.files)
        write_report(ensemble)
        track_student(ensemble, dvc_hash)
        return tell_voting_end(ensemble)


def _compare(ensemble: Ensemble) -> None:
    """Other ways to learn from the same records, each under an account of its own."""
    for name in ensemble.config.baselines.run:
        if is_judged(ensemble, name):
            continue
        tell_voting(ensemble, f"for comparing: {name}")
        try:
            _judge(ensemble, name)
        except RecordsRegistered as refusal:  # since the votes were held
            _leave_out(name, refusal)
        except (DataBudgetExceeded, ParameterError) as refusal:
            if ensemble.data is None:
                raise
            _leave_out(name, refusal)


def _leave_out(name: str, refusal: DpalError) -> None:
    """Votes were released already: their student is certified all the same."""
    notify(f"{name} is left out: {refusal}")


def _judge(ensemble: Ensemble, name: str) -> None:
    if is_campaign(name):
        run_campaign(baseline_settings(ensemble, name))
        judge_campaign(ensemble, name)
    elif name == NON_PRIVATE:
        judge_non_private(ensemble)
    elif name == KNN:
        judge_private_knn(ensemble)
