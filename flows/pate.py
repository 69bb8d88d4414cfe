"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

from functools import partial

from prefect.client.schemas.objects import State

from dpal.config.pate import PateConfig
from dpal.runs.baselines import CAMPAIGNS, KNN, NON_PRIVATE, Judge, run_baselines
from dpal.runs.kinds import VOTING
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.public_model import PUBLIC_MODEL
from dpal.runs.query_rounds import CHOOSER
from dpal.runs.student import STUDENT
from dpal.runs.teachers import TEACHERS
from flows.campaign import run_campaign
from flows.whole_run import WHOLE_RUN, conduct
from tasks.boundary import flow
from tasks.generic_page import tell_run
from tasks.pate import (
    choose_queries,
    close_student,
    deal_records,
    embed_records,
    hold_ensemble,
    judge_campaign,
    judge_non_private,
    judge_private_knn,
    record_ensemble,
    release_labels,
)
from tasks.tracking.whole_runs import track_spent
from tasks.training_pool.repeatable_order import train

JUDGES: dict[str, Judge] = {
    CAMPAIGNS: judge_campaign,
    NON_PRIVATE: judge_non_private,
    KNN: judge_private_knn,
}


@flow(name="pate", **WHOLE_RUN)
def vote_and_learn(config: PateConfig) -> State:
    """Trains teachers, releases their votes once, and returns the folder of the student.

    Steps that are done are skipped; votes are drawn once.

    Args:
      config: what is wanted; only the name must be given.
    """
    return conduct(VOTING, config, _vote_and_learn)


def _vote_and_learn(ensemble: Ensemble) -> Ensemble:
    hold_ensemble(ensemble)
    record_ensemble(ensemble)
    track_spent(ensemble)
    embed_records(ensemble)
    tell_run(ensemble, "the plan is certified; teachers are trained")
    deal_records(ensemble)
    train(ensemble, TEACHERS)
    train(ensemble, PUBLIC_MODEL)
    for number in ensemble.rounds:
        train(ensemble, CHOOSER)
        choose_queries(ensemble, number)
        release_labels(ensemble, number)
        track_spent(ensemble)
    tell_run(ensemble, "votes are released; the student learns")
    train(ensemble, STUDENT)
    close_student(ensemble)
    run_baselines(ensemble, run_campaign, judges=JUDGES, tell=partial(tell_run, ensemble))
    return ensemble
