"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

from dpal.labelers import Labeler
from dpal.runs.baselines import compare
from dpal.runs.ensemble import Ensemble
from dpal.runs.ensemble import plan_ensemble as plan
from dpal.runs.ensemble import prepare_ensemble as prepare
from dpal.runs.execute import run
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

__all__ = ["advance", "certify", "plan", "prepare", "tracked_of"]


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
