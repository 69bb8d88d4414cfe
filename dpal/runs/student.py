"""The student: which public records are asked, what it learns from their released labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from dpal.config.teachers import Cut
from dpal.data.files import digest_of
from dpal.data.pool import load_all, write_selection
from dpal.errors import LabelError
from dpal.files.atomic import staged, write_text
from dpal.labels import Task
from dpal.models.registry import build_model
from dpal.randomness import seeded
from dpal.reports.validation import as_metrics, headline, percent
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.ballot_tables import told_of
from dpal.runs.ensemble import Ensemble
from dpal.runs.notify import notify
from dpal.runs.teachers import cast_votes, load_inputs, load_rows
from dpal.runs.vote_account import ask, hold_votes, read_ballots_file, read_released
from dpal.training.evaluation import probabilities
from dpal.training.label_figures import best_thresholds, label_figures
from dpal.training.metrics import figures_of
from dpal.training.semi_supervised import student_steps, train_student
from dpal.voting.release import UNANSWERED

PATE = "pate"
Floats = NDArray[np.float64]


def hold_ensemble(ensemble: Ensemble) -> None:
    """Sets aside all that these teachers may ever be asked, before one is trained."""
    made_of = digest_of(ensemble.pool.paths)
    hold_votes(ensemble.account, made_of, data=ensemble.data, compared=ensemble.compared)


def record_ensemble(ensemble: Ensemble) -> None:
    """Writes what later commands need to know."""
    summary = ensemble.certified.summary()
    ensemble.folder.write_record(
        {
            "kind": PATE,
            "name": ensemble.config.name,
            "plan": {**summary, "phases": [{"phase": 0, "cohort_size": summary["blocks"][0]}]},
            "task": ensemble.model.task.value,
            "classes": ensemble.model.classes,
            "class_names": list(ensemble.class_names),
            "config": with_absolute_paths(ensemble.config).model_dump(mode="json"),
        }
    )


def release_labels(ensemble: Ensemble) -> None:
    """Asks the teachers about public records and releases the votes, once."""
    if ensemble.account.ballots_file(1).exists() and ensemble.files.selection.exists():
        # As they were cast: another machine may round otherwise and would take another block.
        ids, ballots = read_ballots_file(ensemble.account.ballots_file(1))
        ask(ensemble.account, ids, ballots, purpose="student")
        return
    rows = asked_rows(ensemble)
    ids, inputs = load_inputs(ensemble.public, rows)
    ballots = cast_votes(ensemble, inputs)
    write_selection(ensemble.public, rows, np.empty(0, np.int64), ensemble.files.selection)
    ask(ensemble.account, ids, ballots, purpose="student")


def asked_rows(ensemble: Ensemble) -> NDArray[np.int64]:
    """Rows of the public pool that the teachers are asked about; public."""
    draw = seeded(ensemble.config.voting.seed, "asked public records")
    rows = draw.permutation(ensemble.public_rows)[: ensemble.offered]
    return np.sort(rows).astype(np.int64)


def train_on_votes(ensemble: Ensemble) -> None:
    """Trains the student on released labels. Started again it makes the same model."""
    path = ensemble.files.model
    if path.exists():
        return
    released = ensemble.account.released_file(1)
    _, labels = read_released(released)
    if not (labels != UNANSWERED).any():
        told = told_of(released)
        raise LabelError(
            f"no answer left the teachers{f', {told}' if told else ''}; what was reserved stays "
            "spent, vote under another name with more sigma or fewer queries"
        )
    model = student_from(ensemble, asked_rows(ensemble), labels)
    with staged(path) as temporary:
        save_file({name: one.cpu() for name, one in model.state_dict().items()}, temporary)


def student_from(
    ensemble: Ensemble, rows: NDArray[np.int64], labels: NDArray[np.integer]
) -> nn.Module:
    """A model that learned from labels of public rows; -1 is no answer."""
    spec, about = ensemble.config.student.to_spec(), ensemble.model.task
    _, inputs = load_inputs(ensemble.public, rows)
    if about is Task.SINGLE_LABEL:
        answered = labels != UNANSWERED
        inputs = inputs[torch.from_numpy(np.flatnonzero(answered))]
        targets = torch.from_numpy(labels[answered].astype(np.int64))
    else:
        targets = torch.from_numpy(np.where(labels == UNANSWERED, np.nan, labels)).float()
    unlabeled = None
    if spec.method == "mixmatch":
        others = np.setdiff1d(np.arange(ensemble.public_rows), rows)
        others = others[: ensemble.config.student.unlabeled]
        if others.size:
            unlabeled = load_inputs(ensemble.public, others)[1]
    model = build_model(ensemble.model).to(ensemble.config.runtime.device)
    steps = student_steps(spec, targets, task=about)
    with tqdm(total=steps, desc="student", unit="step", disable=None, leave=False) as bar:
        train_student(
            model, inputs, targets, spec, task=about, unlabeled=unlabeled, on_step=bar.update
        )
    return model


def close_student(ensemble: Ensemble) -> None:
    """Measures the student on the validation set, and marks the end."""
    files = ensemble.files
    if files.manifest.is_file():
        return
    model = build_model(ensemble.model)
    model.load_state_dict(load_file(files.model))
    judged = judge(ensemble, model.to(ensemble.config.runtime.device))
    _, labels = read_released(ensemble.account.released_file(1))
    metrics = {
        "phase": 0,
        "labels": int((labels != UNANSWERED).reshape(len(labels), -1).any(axis=1).sum()),
        **as_metrics(judged["figures"]),
        "campaign_epsilon": ensemble.certified.epsilon,
        "cohorts": [],
        **_truth_of(ensemble, labels),
    }
    keep_judgement(ensemble, PATE, _promised(ensemble, judged))
    write_text(files.metrics, json.dumps(metrics, indent=2) + "\n")
    with ensemble.account.ledger() as ledger:
        last = ledger.entries()[-1]
    files.close(
        listed=[files.selection, files.model, files.metrics],
        phase=0,
        plan=ensemble.certified.plan.digest,
        ledger_head={"sequence": last.sequence, "digest": last.digest},
    )
    name, value = headline(metrics)
    notify(f"student: validation {name} {percent(value)}")


def _promised(ensemble: Ensemble, judged: Mapping[str, Any]) -> dict[str, Any]:
    unit = ensemble.spec.target.unit.value
    return {**judged, "epsilon": ensemble.certified.epsilon, "protects": unit}


def judge(ensemble: Ensemble, model: nn.Module) -> dict[str, Any]:
    """Figures of a model on the validation set, by the one module that all methods share."""
    inputs, labels = load_all(ensemble.validation)
    scores = _scores(ensemble, model, inputs)
    about = ensemble.model.task
    found: dict[str, Any] = {"figures": figures_of(about, scores, labels.numpy())}
    if about is Task.SINGLE_LABEL:
        return found
    cuts = np.full(ensemble.model.classes, 0.5)
    cut = ensemble.config.student.cut
    if cut is not Cut.HALF and ensemble.tuning is not None:
        known, truth = load_all(ensemble.tuning)
        per_label = cut is Cut.PER_LABEL
        cuts = best_thresholds(_scores(ensemble, model, known), truth.numpy(), per_label=per_label)
    judged = label_figures(scores, labels.numpy(), cuts)
    found["averages"] = judged.averages()
    found["labels"] = {
        name: _finite(
            {
                "records": int(judged.positives[at]),
                "acc": judged.acc[at],
                "bac": judged.bac[at],
                "auc": judged.auc[at],
                "ap": judged.average_precision[at],
                "f1": judged.f1[at],
            }
        )
        for at, name in enumerate(ensemble.names)
    }
    return found


def keep_judgement(ensemble: Ensemble, method: str, judged: Mapping[str, Any]) -> None:
    """Adds a method's figures to those of the report."""
    known = judgements(ensemble)
    path = ensemble.folder.root / "methods.json"
    write_text(path, json.dumps({**known, method: dict(judged)}, indent=2) + "\n")


def judgements(ensemble: Ensemble) -> dict[str, Any]:
    """Figures of every method that was judged so far."""
    path = ensemble.folder.root / "methods.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _truth_of(ensemble: Ensemble, labels: NDArray[np.integer]) -> dict[str, float]:
    """How often released labels are right, where the public records have labels of their own."""
    if ensemble.public.label_column is None:
        return {}
    _, known = load_rows(ensemble.public, asked_rows(ensemble), ensemble.model.task)
    truth, answered = known.numpy(), labels != UNANSWERED
    if not answered.any():
        return {"released_right": 0.0}
    right = {"released_right": float((labels[answered] == truth[answered]).mean())}
    if truth.ndim == 1:
        return right
    usual = np.broadcast_to(np.rint(truth.mean(axis=0)), truth.shape)[answered]
    return {**right, "always_usual_right": float((usual == truth[answered]).mean())}


def _scores(ensemble: Ensemble, model: nn.Module, inputs: Tensor) -> Floats:
    batch = ensemble.config.runtime.physical_batch
    return probabilities(model, inputs, physical_batch=batch, task=ensemble.model.task)


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if np.isnan(one) else float(one) for key, one in values.items()}
