"""How good the student and every baseline are: measured alike, kept in one file of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from dpal.config.pate_sections import Cut
from dpal.data.labeling_state import load_all
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.labels import Task
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.teachers import scores_of
from dpal.training.label_metrics import answers_in, best_thresholds, label_figures
from dpal.training.metrics import evaluation_metrics

METHODS = "methods.json"


def evaluate_model(ensemble: Ensemble, model: nn.Module) -> dict[str, Any]:
    """Figures of a model on the validation set, averages and single labels where it has several."""
    inputs, labels = load_all(ensemble.validation)
    scores = scores_of(ensemble, model, inputs)
    about = ensemble.model.task
    evaluation: dict[str, Any] = {"figures": evaluation_metrics(about, scores, labels.numpy())}
    if about is Task.SINGLE_LABEL:
        return evaluation
    cuts = np.full(ensemble.model.classes, 0.5)
    cut = ensemble.config.student.cut
    if cut is not Cut.HALF and ensemble.tuning is not None:
        tuning_inputs, truth = load_all(ensemble.tuning)
        per_label = cut is Cut.PER_LABEL
        cuts = best_thresholds(
            scores_of(ensemble, model, tuning_inputs),
            answers_in(truth.numpy()),
            per_label=per_label,
        )
    judged = label_figures(scores, answers_in(labels.numpy()), cuts)
    evaluation["averages"] = judged.averages()
    evaluation["labels"] = {
        name: _finite(
            {
                "records": int(judged.positives[index]),
                "acc": judged.acc[index],
                "bac": judged.bac[index],
                "auc": judged.auc[index],
                "ap": judged.average_precision[index],
                "f1": judged.f1[index],
            }
        )
        for index, name in enumerate(ensemble.names)
    }
    return evaluation


def keep_judgement(ensemble: Ensemble, method: str, judged: Mapping[str, Any]) -> None:
    """Adds a method's figures to those of the report."""
    methods = {**judgements(ensemble.folder), method: dict(judged)}
    write_text(ensemble.folder.root / METHODS, json.dumps(methods, indent=2) + "\n")


def judgements(folder: CampaignFolder) -> dict[str, Any]:
    """Figures of every method of a run that was judged so far; empty before the first."""
    path = folder.root / METHODS
    if not path.is_file():
        return {}
    methods: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return methods


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if np.isnan(value) else float(value) for key, value in values.items()}
