"""One improvement: label public records for a private model, and learn from them for free."""

from __future__ import annotations

from prefect.client.schemas.objects import State

from dpal.config.improvement import PublicConfig
from dpal.runs.improvement_context import Improving, labeling_job
from dpal.runs.kinds import IMPROVEMENT
from dpal.runs.learn_from_public import FINE_TUNING, ROTATIONS, ask_public_labeler
from dpal.runs.prepare_improvement import is_trained, with_trained_start
from flows.campaign import run_campaign
from flows.whole_run import WHOLE_RUN, conduct
from tasks.boundary import flow
from tasks.generic_page import tell_run
from tasks.improvement import (
    choose_public,
    close_improvement,
    draw_central,
    end_guidance,
    hold_guidance,
    prepare_improvement,
    record_improvement,
    release_components,
    release_support,
)
from tasks.tracking.whole_runs import track_spent
from tasks.training_pool.repeatable_order import train
from tasks.wait_for_people import wait_for_labels


@flow(name="public", **WHOLE_RUN)
def improve_model(config: PublicConfig) -> State:
    """Improves a private model from where it stands, and returns the improvement's folder.

    Steps that are done are skipped; what near_private releases is drawn once.

    Args:
      config: what is wanted; only the name must be given.
    """
    return conduct(IMPROVEMENT, config, _improve)


def _improve(improving: Improving) -> Improving:
    if improving.config.start.rotations is not None:
        train(improving, ROTATIONS)
        improving = prepare_improvement(improving.config)  # the start begins with other weights now
    hold_guidance(improving)
    record_improvement(improving)
    track_spent(improving)
    tell_run(improving, "the plan is certified")
    if improving.start.to_train is not None and not is_trained(improving):
        run_campaign(improving.start.to_train)
    improving = with_trained_start(improving)
    if improving.spec.guidance is not None:
        release_components(improving)
        release_support(improving)
        end_guidance(improving)
        track_spent(improving)
    _learn(improving)
    return improving


def _learn(improving: Improving) -> None:
    """Chooses public records, has them labeled and learns from them; free."""
    choose_public(improving)
    if pending := ask_public_labeler(improving):
        tell_run(improving, "public records wait for people to label them")
        wait_for_labels(labeling_job(improving), improving.files, pending)
    train(improving, FINE_TUNING)
    close_improvement(improving)
    draw_central(improving)
