"""An improvement: label public records for a private model, and learn from them for free."""

from __future__ import annotations

from dpal.files.artifacts import CampaignFolder
from dpal.labelers import Labeler
from dpal.reports.improvement import cost_table, improvement_table, pollution_table
from dpal.runs.execute import run
from dpal.runs.fine_tuning import (
    ask_public_labeler,
    choose_public,
    close_improvement,
    fine_tune_model,
    pretrain_on_rotations,
)
from dpal.runs.improvement_report import certify_improved as certify
from dpal.runs.improvement_report import draw_central, record_improvement
from dpal.runs.improvement_run import Improving
from dpal.runs.improvement_run import tracked_of as tracked_of
from dpal.runs.near_private_hold import end_guidance, hold_guidance
from dpal.runs.near_private_release import release_components, release_support
from dpal.runs.prepare_improvement import is_trained, with_trained_start
from dpal.runs.prepare_improvement import plan_improvement as plan
from dpal.runs.prepare_improvement import prepare_improvement as prepare
from dpal.runs.results import Shown

__all__ = ["advance", "certify", "plan", "prepare", "results", "tracked_of"]


def advance(improving: Improving, labeler: Labeler | None = None) -> Improving:
    """Holds the plan, trains the start where it is not trained, releases, and learns.

    Raises:
      LabelsPending: people have to label first.
    """
    if improving.config.start.rotations is not None:
        pretrain_on_rotations(improving)
        improving = prepare(improving.config)  # the start begins with other weights now
    hold_guidance(improving)
    record_improvement(improving)
    if improving.start.to_train is not None and not is_trained(improving):
        run(improving.start.to_train)
    improving = with_trained_start(improving)
    if improving.spec.guidance is not None:
        release_components(improving)
        release_support(improving)
        end_guidance(improving)
    choose_public(improving)
    if pending := ask_public_labeler(improving, labeler):
        raise pending
    fine_tune_model(improving)
    close_improvement(improving)
    draw_central(improving)
    return improving


def results(folder: CampaignFolder) -> Shown:
    """Accuracy before and after, and what private records have spent."""
    summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
    found = [improvement_table(summary, metrics), cost_table(summary)]
    return [*found, pollution_table(metrics)] if "irrelevant_chosen" in metrics else found
