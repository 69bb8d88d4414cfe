"""One improvement: label public records for a private model, and learn from them for free."""

from __future__ import annotations

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.improvement import PublicConfig, parse_public
from dpal.ledger.campaign_lock import claim, conducting
from dpal.runs.fine_tuning import ask_public_labeler, labeling_job
from dpal.runs.improvement import tracked_of
from dpal.runs.improvement_run import Improving
from dpal.runs.kinds import folder_of
from dpal.runs.prepare_improvement import is_trained, with_trained_start
from dpal.runs.store_sync import bring_files, keep_files
from flows.campaign import run_campaign
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.improvement import (
    certify_improved,
    choose_public,
    close_improvement,
    draw_central,
    end_guidance,
    fine_tune_model,
    hold_guidance,
    prepare_improvement,
    pretrain_on_rotations,
    record_improvement,
    release_components,
    release_support,
)
from tasks.prefect_page import run_name
from tasks.reporting import write_report
from tasks.run_page import tell_end, tell_run
from tasks.tracking.finished import reach_tracking, track_finished
from tasks.tracking.runs import watched
from tasks.training_monitor import leading
from tasks.versioning import version_files
from tasks.wait import wait_for_labels


# Settings are checked inside: what is wrong with them is then one sentence on the page.
@flow(name="public", retries=0, flow_run_name=run_name, validate_parameters=False)
def improve_model(config: PublicConfig) -> State:
    """Improves a private model from where it stands, and returns the improvement's folder.

    Steps that are done are skipped; what near_private releases is drawn once.

    Args:
      config: what is wanted; only the name must be given.
    """
    if not isinstance(config, PublicConfig):
        config = parse_public(config)
    require_allowed(config)
    root = folder_of(config).root
    with leading(), conducting(root):
        last = _improve(config)
    return Completed(message=last, data=str(root))


def _improve(config: PublicConfig) -> str:
    """All steps, as the one process that holds the claim; how it ended, in a line."""
    with claim(folder_of(config).root), watched(config.runtime):
        bring_files(config.name, config.runtime)
        improving = prepare_improvement(config)
        if config.start.rotations is not None:
            pretrain_on_rotations(improving)
            improving = prepare_improvement(config)  # the start begins with other weights now
        reach_tracking(improving)
        hold_guidance(improving)
        record_improvement(improving)
        tell_run(improving, "the plan is certified")
        if improving.start.to_train is not None and not is_trained(improving):
            run_campaign(improving.start.to_train)
        improving = with_trained_start(improving)
        if improving.spec.guidance is not None:
            release_components(improving)
            release_support(improving)
            end_guidance(improving)
        _learn(improving)
        certify_improved(improving)
        draw_central(improving)
        dvc_hash = version_files(config.runtime, improving.files.root)
        write_report(improving)
        track_finished(improving, tracked_of(improving), dvc_hash)
        keep_files(improving)
        return tell_end(improving)


def _learn(improving: Improving) -> None:
    """Chooses public records, has them labeled and learns from them; free."""
    choose_public(improving)
    if pending := ask_public_labeler(improving):
        tell_run(improving, "public records wait for people to label them")
        wait_for_labels(labeling_job(improving), improving.files, pending)
    fine_tune_model(improving)
    close_improvement(improving)
