"""A campaign: buy labels phase by phase and train on them under one budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditReport
from dpal.config.campaign import CampaignConfig
from dpal.config.validation import as_it_was_measured
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder, damaged
from dpal.labeling import Labeler
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Phase
from dpal.reports.campaign_report import STOPPED_EARLY, campaign_report
from dpal.reports.plain_language import acquisition_chosen
from dpal.reports.plan_and_phase_tables import (
    above_the_promise,
    figures_in_words,
    spent_table,
    validation_table,
)
from dpal.reports.report import Report
from dpal.reports.search_table import search_table
from dpal.runs import prepare_campaign, write_certificate
from dpal.runs.audit_by_attacks import audit_campaign
from dpal.runs.campaign import Campaign
from dpal.runs.close_phase import close_phase, is_finished
from dpal.runs.early_stopping import end_campaign, phases_to_run, said_at_end
from dpal.runs.embed_records import embed_records
from dpal.runs.labelers import people_label
from dpal.runs.labeling import ask_labeler, merge_labels, reach_teachers
from dpal.runs.phase_measuring import measure
from dpal.runs.phase_training import train_model
from dpal.runs.private_settings_search import search_settings
from dpal.runs.promised_and_spent import Shown
from dpal.runs.read_recorded_settings import recorded_config
from dpal.runs.released_phase import reached, released_phase, stopped_early
from dpal.runs.run_facts import AUDIT, facts_of
from dpal.runs.search_choice import recorded_search
from dpal.runs.select_records import select_records
from dpal.runs.store_sync import keep_files
from dpal.runs.use_cases import UseCases


class CampaignRuns(UseCases[CampaignConfig, Campaign]):
    """What a campaign does."""

    def plan(self, config: CampaignConfig) -> Campaign:
        """Looks at the data and certifies a plan. Releases nothing, writes nothing."""
        return prepare_campaign.prepare(config)

    def prepare(self, config: CampaignConfig) -> Campaign:
        """The same, and says what it found."""
        return prepare_campaign.prepare_campaign(config)

    def advance(self, run: Campaign, labeler: Labeler | None = None) -> Campaign:
        """Holds the plan and runs the phases that are not finished.

        Raises:
          LabelsPending: people have to label first.
        """
        reach_teachers(run)
        prepare_campaign.hold_budget(run)
        embed_records(run)
        keep_files(run)
        for phase in phases_to_run(run):
            if not is_finished(run, phase):
                _run_phase(run, phase, labeler)
                keep_files(run)
        end_campaign(run)
        return run

    def certify(self, run: Campaign) -> None:
        """Writes certificate.json from what the ledger holds."""
        write_certificate.certify(run)

    def audit(self, run: Campaign, effort: Effort) -> AuditReport:
        """Trains on canaries, rehearses selections, and reads what was released."""
        return audit_campaign(run, effort)

    def certify_again(self, folder: CampaignFolder) -> None:
        """Writes the certificate of a campaign that was ended after one of its phases."""
        if folder.finished_phases():
            config = recorded_config(folder)
            measured = as_it_was_measured(config.validation)
            self.certify(self.plan(config.model_copy(update={"validation": measured})))

    def said_at_end(self, folder: CampaignFolder, ledger: CampaignLedger) -> Mapping[str, Any]:
        """Which phase is released, where that is not the last."""
        finished = folder.finished_phases()
        return said_at_end(recorded_config(folder), finished, models=ledger.models)

    def results(self, folder: CampaignFolder) -> Shown:
        """Accuracy phase by phase, and what each cohort has spent."""
        phases, record = folder.finished_phases(), folder.read_record()
        summary, choice = record["plan"], record.get("acquisition_choice")
        search, spent = recorded_search(folder), reached(folder)
        above = above_the_promise(spent["cohorts"], summary, whole=spent["campaign_epsilon"])
        return [
            *([] if search is None else [search_table(search)]),
            validation_table(phases, released_phase(folder), summary["unit"]),
            spent_table(spent, summary),
            *([] if above is None else [above]),
            *([] if choice is None else [acquisition_chosen(choice)]),
            *([STOPPED_EARLY] if stopped_early(folder) else []),
            figures_in_words(summary["accountant"]),
        ]

    def judges(self, run: Campaign) -> Source | None:
        """The validation set, where it is public."""
        return run.public_records if run.plan.figures is None else None

    def learned_from(self, released: Mapping[str, Any], document: Mapping[str, Any]) -> str:
        """Labels of private records; where groups are protected, these are counted."""
        planned, size = f"{released['labels']:,}", f"{document['pool']['size']:,}"
        unit = document["promise"]["unit"]
        if unit == "record":
            return f"about {planned} labels of {size} private records"
        return f"the labeled records of about {planned} of {size} private {unit}s"

    def report(self, folder: CampaignFolder) -> Report:
        """Phases, labels, curves, and the audit where there was one."""
        phases = folder.finished_phases()
        if not phases:
            raise DataError(f"campaign {folder.name} has no finished phase to report on yet")
        facts = facts_of(folder, reached(folder)["campaign_epsilon"])
        audit = _audit(folder, facts.summary["plan_digest"])
        return campaign_report(
            facts,
            phases,
            released=released_phase(folder),
            audit=audit,
            labeled_by=folder.labeled_by(),
            choice=folder.read_record().get("acquisition_choice"),
            search=recorded_search(folder),
            asks_people=people_label(folder.read_record()),
        )


def _run_phase(campaign: Campaign, phase: Phase, labeler: Labeler | None) -> None:
    select_records(campaign, phase)
    if pending := ask_labeler(campaign, phase, labeler):
        keep_files(campaign)
        raise pending
    merge_labels(campaign, phase)
    search_settings(campaign, phase)
    train_model(campaign, phase)
    close_phase(campaign, phase, measure(campaign, phase))


def _audit(folder: CampaignFolder, plan: str) -> dict[str, Any] | None:
    """The audit of this very plan; None where there was none, or of another plan."""
    path = folder.root / AUDIT
    if not path.is_file():
        return None
    try:
        audit = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path) from error
    return audit if isinstance(audit, dict) and audit.get("plan_digest") == plan else None
