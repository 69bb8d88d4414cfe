"""The student: what it learns from released labels of public records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dpal.data.labeling_state import load_all
from dpal.errors import LabelError
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.reports.validation_figures import as_metrics, headline, percent
from dpal.runs.ballot_and_label_tables import told_of
from dpal.runs.choose_queries import (
    Floats,
    answers_until,
    asked_rows,
    rounds_told,
    shares_until,
)
from dpal.runs.ensemble_hold import require_held
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.progress_logging import notify
from dpal.runs.public_model_figures import public_figures
from dpal.runs.repeatable_training import RepeatableTraining, shown_training
from dpal.runs.student_quality import evaluate_model, keep_judgement
from dpal.runs.teachers import load_inputs, load_rows, scores_of
from dpal.training.linear_heads import features_of, linear_weights
from dpal.training.linear_student import fit_linear_student
from dpal.training.semi_supervised import student_steps, train_student
from dpal.voting.draw_noisy_outcomes import UNANSWERED


def train_on_votes(ensemble: Ensemble) -> None:
    """Trains the student on released labels. Started again it makes the same model."""
    path = ensemble.files.model
    if path.exists():
        return
    last = ensemble.rounds[-1]
    rows, labels = answers_until(ensemble, last)
    if not (labels != UNANSWERED).any():
        told = told_of(ensemble.account.released_file(last))
        raise LabelError(
            f"no answer left the teachers{f', {told}' if told else ''}; what was reserved stays "
            "spent, vote under another name with more sigma or fewer queries"
        )
    model = student_from(ensemble, rows, labels, shares_until(ensemble, last))
    with atomic_write(path) as temporary:
        save_file({name: tensor.cpu() for name, tensor in model.state_dict().items()}, temporary)


def student_from(
    ensemble: Ensemble,
    rows: NDArray[np.int64],
    labels: NDArray[np.integer],
    shares: Floats | None = None,
) -> nn.Module:
    """A model that learned from labels of public rows, or from shares of votes; -1 is no answer."""
    spec, about = ensemble.config.student.to_spec(), ensemble.model.task
    _, inputs = load_inputs(ensemble.public, rows)
    if spec.method == "least_squares":
        return _solved(ensemble, inputs, _as_shares(ensemble, labels) if shares is None else shares)
    known = np.where(labels == UNANSWERED, np.nan, labels) if shares is None else shares
    targets = torch.from_numpy(known).float()
    unlabeled = None
    if spec.method == "mixmatch":
        others = np.setdiff1d(np.arange(ensemble.public_rows), rows)
        others = others[: ensemble.config.student.unlabeled]
        if others.size:
            unlabeled = load_inputs(ensemble.public, others)[1]
    model = build_model(ensemble.model).to(ensemble.device)
    steps = student_steps(spec, targets, task=about, shares=shares is not None)
    with shown_training("student", steps) as shown:
        train_student(
            model,
            inputs,
            targets,
            spec,
            task=about,
            shares=shares is not None,
            unlabeled=unlabeled,
            on_step=shown.step,
        )
    return model


def _solved(ensemble: Ensemble, inputs: Tensor, shares: Floats) -> nn.Module:
    """A linear model of public records in closed form."""
    weights, bias = fit_linear_student(features_of(ensemble.model, inputs), shares)
    model = build_model(ensemble.model)
    model.load_state_dict(linear_weights(weights, bias))
    return model.to(ensemble.device)


def _as_shares(ensemble: Ensemble, labels: NDArray[np.integer]) -> Floats:
    """(n, labels or classes) zeros and ones of answers; NaN where there is none."""
    said = labels
    if ensemble.model.task is Task.SINGLE_LABEL:
        said = (labels[:, None] == np.arange(ensemble.model.classes)).astype(np.int64)
        said[labels == UNANSWERED] = UNANSWERED
    return np.asarray(np.where(said == UNANSWERED, np.nan, said), dtype=np.float64)


def close_student(ensemble: Ensemble) -> None:
    """Measures the student on the validation set, and marks the end."""
    files = ensemble.files
    if files.manifest.is_file():
        return
    model = build_model(ensemble.model)
    model.load_state_dict(load_file(files.model))
    judged = evaluate_model(ensemble, model.to(ensemble.device))
    _, labels = answers_until(ensemble, ensemble.rounds[-1])
    rounds = rounds_told(ensemble)
    metrics = {
        "phase": 0,
        "labels": int((labels != UNANSWERED).reshape(len(labels), -1).any(axis=1).sum()),
        **as_metrics(student_figures(ensemble, model)),
        "campaign_epsilon": ensemble.certified.epsilon,
        "cohorts": [],
        **_truth_of(ensemble, labels),
        **({"rounds": rounds} if rounds else {}),
    }
    keep_judgement(ensemble, ensemble.kind, _promised(ensemble, judged))
    write_text(files.metrics, json.dumps(metrics, indent=2) + "\n")
    with ensemble.account.ledger() as ledger:
        last = ledger.entries()[-1]
    files.close(
        listed=[
            files.selection,
            files.model,
            files.metrics,
            *(ensemble.asked_file(each["round"]) for each in rounds),
        ],
        phase=0,
        plan=ensemble.certified.plan.digest,
        ledger_head={"sequence": last.sequence, "digest": last.digest},
    )
    name, value = headline(metrics)
    notify(f"student: validation {name} {percent(value)}")


def student_figures(ensemble: Ensemble, student: nn.Module) -> dict[str, Any]:
    """Figures of the student on the validation set, which is public."""
    inputs, labels = load_all(ensemble.validation)
    guesses = scores_of(ensemble, student, inputs)
    return public_figures(ensemble.model.task, guesses, labels.numpy())


def _promised(ensemble: Ensemble, judged: Mapping[str, Any]) -> dict[str, Any]:
    unit = ensemble.spec.target.unit.value
    return {**judged, "epsilon": ensemble.certified.epsilon, "protects": unit}


def _truth_of(ensemble: Ensemble, labels: NDArray[np.integer]) -> dict[str, float]:
    """How often released labels are right, where the public records have labels of their own."""
    if ensemble.public.label_column is None:
        return {}
    _, own_labels = load_rows(ensemble.public, asked_rows(ensemble), ensemble.model.task)
    truth, answered = own_labels.numpy(), labels != UNANSWERED
    if not answered.any():
        return {"released_right": 0.0}
    right = {"released_right": float((labels[answered] == truth[answered]).mean())}
    if truth.ndim == 1:
        return right
    usual = np.broadcast_to(np.rint(truth.mean(axis=0)), truth.shape)[answered]
    return {**right, "always_usual_right": float((usual == truth[answered]).mean())}


STUDENT = RepeatableTraining[Ensemble](
    name="student",
    train=train_on_votes,
    makes=lambda ensemble: [ensemble.files.model],
    require=require_held,
)
