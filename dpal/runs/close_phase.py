"""Closing a phase: metrics, the ledger's export, the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dpal.accounting.cohort_spending import campaign_epsilon, spending
from dpal.accounting.events import VALIDATION
from dpal.errors import LedgerError
from dpal.files.atomic_writes import write_text
from dpal.ledger.export_table import write_ledger
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Phase
from dpal.reports.validation_figures import as_metrics
from dpal.runs.campaign import Campaign
from dpal.runs.write_certificate import sign_files


def is_finished(campaign: Campaign, phase: Phase) -> bool:
    """Whether a phase has a manifest, which must match its files and what the ledger committed.

    Raises:
      LedgerError: a finished phase is not what it was; going on could select or train
        records a second time.
    """
    files = campaign.files(phase)
    if not files.manifest.is_file():
        return False
    with campaign.ledger() as ledger:
        committed = ledger.committed(phase.training_release) or {}
    manifest = files.read_manifest()
    model = files.name_of(files.model)
    if manifest is None or committed.get(model) != manifest["files"][model]:
        raise LedgerError.before_release(
            f"files of {files.root} were altered or lost since the phase was finished; restore "
            f"them (`dvc checkout` or `dvc pull` in {campaign.folder.root.parent}) and run the "
            "same command again"
        )
    return True


def close_phase(campaign: Campaign, phase: Phase, figures: Mapping[str, Any]) -> None:
    """Writes what the phase cost and reached, and marks it finished."""
    files = campaign.files(phase)
    with campaign.ledger() as ledger:
        entries, sound = ledger.entries(), ledger.store.sound(campaign.config.name)
        metrics = {
            "phase": phase.index,
            "labels": sum(planned.labels for planned in campaign.plan.phases[: phase.index + 1]),
            "most_labels": campaign.plan.most_labels(upto=phase.index),
            **as_metrics(figures),
            "campaign_epsilon": campaign_epsilon(
                ledger.spent(), ledger.target(), accountant=campaign.plan.spec.accountant
            ),
            "cohorts": _spent_by_cohort(campaign, ledger),
        }
    write_text(files.metrics, json.dumps(metrics, indent=2) + "\n")
    write_ledger(entries, files.ledger)
    runtime, last = campaign.config.runtime, entries[-1].sequence
    signature = sign_files(sound, [files.ledger], runtime, upto=last)
    head = {"sequence": entries[-1].sequence, "digest": entries[-1].digest}
    listed = [*files.artifacts, *([signature] if signature else [])]
    files.close(listed=listed, phase=phase.index, plan=campaign.plan.digest, ledger_head=head)


def _spent_by_cohort(campaign: Campaign, ledger: CampaignLedger) -> list[dict[str, object]]:
    releases, target = ledger.spent(), ledger.target()
    measured = () if campaign.plan.figures is None else (VALIDATION,)
    cohorts = (*campaign.plan.cohorts, *measured)
    return [asdict(spending(cohort, releases, target)) for cohort in cohorts]
