"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

import json

from dpal.files.artifacts import CampaignFolder
from dpal.labelers import Labeler
from dpal.reports.vote_tables import cost_table
from dpal.reports.voting_report import methods_table, told
from dpal.runs.baselines import compare
from dpal.runs.ensemble import Ensemble
from dpal.runs.ensemble import plan_ensemble as plan
from dpal.runs.ensemble import prepare_ensemble as prepare
from dpal.runs.execute import run
from dpal.runs.results import Shown
from dpal.runs.student import (
    close_student,
    hold_ensemble,
    record_ensemble,
    release_labels,
    train_on_votes,
)
from dpal.runs.student import tracked_of as tracked_of
from dpal.runs.teachers import deal_records, train_teachers
from dpal.runs.vote_account import certify_votes

__all__ = ["advance", "certify", "plan", "prepare", "results", "tracked_of"]


def advance(ensemble: Ensemble, labeler: Labeler | None = None) -> Ensemble:
    """Holds the plan, trains teachers, releases their votes once, and lets a student learn."""
    del labeler  # the teachers are
    hold_ensemble(ensemble)
    record_ensemble(ensemble)
    deal_records(ensemble)
    train_teachers(ensemble)
    release_labels(ensemble)
    train_on_votes(ensemble)
    close_student(ensemble)
    compare(ensemble, run)
    return ensemble


def certify(ensemble: Ensemble) -> None:
    """Writes certificate.json from what the ledger holds."""
    certify_votes(ensemble.account, model=ensemble.files.model)


def results(folder: CampaignFolder) -> Shown:
    """What every method reached, and what votes cost."""
    summary = folder.read_record()["plan"]
    methods = json.loads((folder.root / "methods.json").read_text(encoding="utf-8"))
    return [
        methods_table(methods),
        cost_table(summary),
        *told(summary, folder.finished_phases()[0], methods),
    ]
