"""One campaign: buy labels phase by phase and train on them under one budget."""

from __future__ import annotations

from collections.abc import Sequence

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.campaign import CampaignConfig
from dpal.errors import TrainingStopped
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.planning.campaign_plan import Phase
from dpal.runs.campaign import Campaign
from dpal.runs.close_phase import is_finished
from dpal.runs.early_stopping import phases_to_run
from dpal.runs.kinds import CAMPAIGN, folder_of, parse_as
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.store_sync import bring_files, keep_files, require_store_for_workers
from flows.train_phase import train_phase
from flows.whole_run import WHOLE_RUN
from tasks.allow_list import require_allowed
from tasks.await_prefect_server import await_server
from tasks.boundary import flow
from tasks.campaign import (
    ask_labeler,
    certify,
    close_phase,
    embed_records,
    end_campaign,
    hold_budget,
    measure,
    merge_labels,
    prepare_campaign,
    publish_plan,
    reach_teachers,
    search_settings,
    select_records,
    start_over,
)
from tasks.campaign_page import (
    open_page,
    page_until_end,
    tell_campaign_end,
    tell_phase,
    tell_selection,
    tell_training,
    tell_waiting,
)
from tasks.lineage import Tell, told_to_lineage
from tasks.tracking.campaign_runs import (
    track_campaign,
    track_ledger,
    track_phase,
    tracked_to_its_end,
)
from tasks.tracking.mlflow_connection import watching_server
from tasks.tracking.whole_runs import reach_tracking
from tasks.training_monitor import watching_for_cancellation, without_heart
from tasks.training_pool.phase_files import at_hand, order_training, receipt_of, take_over
from tasks.training_pool.phase_order import train_on_pool, wait_for_earlier
from tasks.version_with_dvc import require_remote, version_phase
from tasks.wait_for_people import wait_for_labels
from tasks.write_reports import write_report


@flow(name="campaign", **WHOLE_RUN)
def run_campaign(config: CampaignConfig, redraw: tuple[str, ...] = ()) -> str | State:
    """Runs a campaign from where it stands and returns its folder.

    Finished phases are skipped; a phase that was interrupted goes on with whatever it
    had persisted, under the reservation that it had. Trainings named in `redraw` throw that
    away and are charged a second time, if the promise has room for it. A campaign that is
    cancelled stops after the step that it is in.

    Args:
      config: what is wanted; only the name must be given.
      redraw: trainings to throw away and pay again, such as phase-2/training; usually none.
    """
    config = parse_as(CAMPAIGN, config)
    require_allowed(config)
    require_remote(config.runtime)
    require_store_for_workers(config.runtime)
    with watching_for_cancellation(), leading_process(folder_of(config).root):
        wait_for_earlier(config)
        last = _run(config, tuple(redraw))
    return Completed(message=last, data=str(folder_of(config).root))


def _run(config: CampaignConfig, redraw: Sequence[str]) -> str:
    """All phases, as the one process that holds the campaign's claim; how it ended, in a line."""
    folder = folder_of(config)
    with lock_folder(folder.root), watching_server(config.runtime):
        bring_files(config.name, config.runtime)
        campaign = prepare_campaign(config)
        publish_plan(campaign)
        reach_tracking(campaign)
        reach_teachers(campaign)
        hold_budget(campaign)
        embed_records(campaign)
        with (
            page_until_end(campaign),
            tracked_to_its_end(campaign),
            told_to_lineage(campaign, campaign.config) as tell_lineage,
        ):
            return _run_phases(campaign, redraw, tell_lineage)


def _run_phases(campaign: Campaign, redraw: Sequence[str], tell_lineage: Tell) -> str:
    """Goes on from where the campaign stands, to its end."""
    open_page(campaign)
    if campaign.shows_progress:
        track_ledger(campaign)
    keep_files(campaign)
    if redraw:
        start_over(campaign, redraw)
    for phase in phases_to_run(campaign):
        if not is_finished(campaign, phase):
            tell_selection(campaign, phase)
            select_records(campaign, phase)
            if campaign.shows_progress:
                track_ledger(campaign)
            if pending := ask_labeler(campaign, phase):
                keep_files(campaign)
                tell_waiting(campaign, phase)
                wait_for_labels(LabelingJob.of(campaign), campaign.files(phase), pending)
            merge_labels(campaign, phase)
            search_settings(campaign, phase)
            _train(campaign, phase)
            close_phase(campaign, phase, measure(campaign, phase))
            keep_files(campaign)
        track_phase(campaign, phase, version_phase(campaign, phase))
        tell_phase(campaign, phase)
        tell_lineage()
    end_campaign(campaign)
    certify(campaign)
    write_report(campaign)
    track_campaign(campaign)
    keep_files(campaign)
    return tell_campaign_end(campaign)


def _train(campaign: Campaign, phase: Phase) -> None:
    """Trains a phase here, or has a worker of a pool do it."""
    order = order_training(campaign, phase)
    tell_training(campaign, phase)
    if campaign.config.runtime.training_pool is not None:
        receipt = train_on_pool(campaign, phase, order)
    else:
        with at_hand(campaign), without_heart():
            trained: State = train_phase(order, return_state=True)
        if trained.is_cancelled():
            raise TrainingStopped(trained.message)
        receipt = receipt_of(trained)
    await_server()
    take_over(campaign, phase, receipt)
