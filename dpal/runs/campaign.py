"""A campaign: buy labels phase by phase and train on them under one budget."""

from __future__ import annotations

from dpal.files.artifacts import CampaignFolder
from dpal.labelers import Labeler
from dpal.planning.plan import Phase
from dpal.reports.summary import figures_in_words, spent_table, validation_table
from dpal.runs.campaign_run import Campaign
from dpal.runs.certify import certify
from dpal.runs.close_phase import close_phase, end_campaign, is_finished
from dpal.runs.labeling import ask_labeler, merge_labels, reach_teachers
from dpal.runs.prepare_campaign import hold_budget
from dpal.runs.prepare_campaign import prepare as plan
from dpal.runs.prepare_campaign import prepare_campaign as prepare
from dpal.runs.results import Shown
from dpal.runs.selection import select_records
from dpal.runs.store_sync import keep_files
from dpal.runs.sweeps import sweep_member, write_sweep
from dpal.runs.training import measure, train_model

__all__ = [
    "advance", "certify", "plan", "prepare", "results", "sweep_member", "write_sweep",
]  # fmt: skip


def advance(campaign: Campaign, labeler: Labeler | None = None) -> Campaign:
    """Holds the plan and runs the phases that are not finished.

    Raises:
      LabelsPending: people have to label first.
    """
    reach_teachers(campaign)
    hold_budget(campaign)
    keep_files(campaign)
    for phase in campaign.plan.phases:
        if not is_finished(campaign, phase):
            _run_phase(campaign, phase, labeler)
            keep_files(campaign)
    end_campaign(campaign)
    return campaign


def _run_phase(campaign: Campaign, phase: Phase, labeler: Labeler | None) -> None:
    select_records(campaign, phase)
    if pending := ask_labeler(campaign, phase, labeler):
        keep_files(campaign)
        raise pending
    merge_labels(campaign, phase)
    train_model(campaign, phase)
    close_phase(campaign, phase, measure(campaign, phase))


def results(folder: CampaignFolder) -> Shown:
    """Accuracy phase by phase, and what each cohort has spent."""
    phases, summary = folder.finished_phases(), folder.read_record()["plan"]
    return [
        validation_table(phases),
        spent_table(phases[-1], summary),
        figures_in_words(summary["accountant"]),
    ]
