"""One campaign: buy labels phase by phase and train on them under one budget."""

from __future__ import annotations

from prefect import flow

from dpal.config import CampaignConfig
from dpal.ledger.claim import claim
from tasks.certificate import certify
from tasks.context import folder_of
from tasks.labeling import ask_labeler, merge_labels, wait_for_labels
from tasks.ledger import close_phase, end_campaign, is_finished
from tasks.planning import hold_budget, prepare_campaign, publish_plan
from tasks.reporting import write_report
from tasks.selection import select_records
from tasks.tracking import reach_tracking, track_campaign, track_phase
from tasks.training import measure, start_over, train_model
from tasks.versioning import version_phase


@flow(name="campaign", retries=0, flow_run_name="{config.name}", validate_parameters=True)
def run_campaign(config: CampaignConfig, redraw: tuple[str, ...] = ()) -> str:
    """Runs a campaign from where it stands and returns its folder.

    Finished phases are skipped; a phase that was interrupted goes on with whatever it
    had persisted, under the reservation that it had. Trainings named in `redraw` throw that
    away and are charged a second time, if the promise has room for it.
    """
    folder = folder_of(config)
    with claim(folder.root):
        campaign = prepare_campaign(config)
        publish_plan(campaign)
        reach_tracking(campaign)
        hold_budget(campaign)
        if redraw:
            start_over(campaign, redraw)
        for phase in campaign.plan.phases:
            if not is_finished(campaign, phase):
                select_records(campaign, phase)
                if pending := ask_labeler(campaign, phase):
                    wait_for_labels(pending)
                merge_labels(campaign, phase)
                train_model(campaign, phase)
                close_phase(campaign, phase, measure(campaign, phase))
            track_phase(campaign, phase, version_phase(campaign, phase))
        end_campaign(campaign)
        certify(campaign)
        write_report(campaign)
        track_campaign(campaign)
    return str(folder.root)
