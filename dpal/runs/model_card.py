"""The card of a released model: what is promised to whom, what is not, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpal.canonical import file_digest
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import CampaignConfig
from dpal.data.labeling_state import load_all
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder, signature_of
from dpal.files.atomic_writes import write_text
from dpal.reports.model_card import card_as_markdown
from dpal.reports.validation_figures import (
    BALANCED,
    against_majority,
    as_metrics,
    class_figures,
    figure_in,
    worthless,
)
from dpal.runs.measured_figures import public_figures
from dpal.runs.open_sources import open_validation
from dpal.runs.predict import ReleasedModel, open_model
from dpal.runs.recorded_settings import recorded_as
from dpal.training.calibration import fit_temperature
from dpal.training.evaluation import probabilities

_FORMAT = 1
TEXT, DATA = "model-card.md", "model-card.json"


def write_model_card(folder: CampaignFolder, place: Path) -> dict[str, Any]:
    """Writes the card of a campaign's model as Markdown with front matter, and as JSON.

    Figures are measured anew on the validation set where it is declared public: a protected one
    would lose by each of them.

    Args:
      folder: of a finished campaign.
      place: folder for the two files.

    Returns:
      The card's JSON.

    Raises:
      DataError: the run is not finished, or of another kind.
    """
    config = recorded_as(folder, CampaignConfig)
    if config is None or not folder.certificate.is_file():
        raise DataError(
            f"{folder.root} is no campaign with a certificate; cards are of finished ones"
        )
    model = open_model(folder.root)
    document = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    labels = folder.finished_phases()[-1]["labels"]
    card = _card(config, model, document, labels, _results(config, model))
    card["certificate"] |= {
        "sha256": file_digest(folder.certificate),
        "signed": signature_of(folder.certificate).is_file(),
    }
    write_text(place / DATA, json.dumps(card, indent=2) + "\n")
    write_text(place / TEXT, card_as_markdown(card))
    return card


def _results(config: CampaignConfig, model: ReleasedModel) -> dict[str, Any] | None:
    """Figures on public records; None where nobody declared them public."""
    if config.validation is None or not config.validation.public:
        return None
    inputs, labels = load_all(open_validation(config))
    task = model.spec.task
    guesses = probabilities(
        model.build(), inputs, physical_batch=config.runtime.physical_batch, task=task
    )
    told = as_metrics(public_figures(task, guesses, labels.numpy()))
    compared, fitted = against_majority(told), fit_temperature(task, guesses, labels.numpy())
    if compared is None:
        return None
    return {
        "records": compared.records,
        "headline": compared.value,
        "majority": compared.majority,
        "balanced_accuracy": figure_in(told, BALANCED),
        "auc": compared.auc,
        "calibration_error": fitted.error,
        "temperature": fitted.temperature,
        "calibrated_error": fitted.error_after,
        "worthless": worthless(told),
        "classes": [
            {"name": name, **about}
            for name, about in zip(model.class_names, class_figures(told), strict=True)
        ],
    }


def _card(
    config: CampaignConfig,
    model: ReleasedModel,
    document: Mapping[str, Any],
    labels: int,
    results: Mapping[str, Any] | None,
) -> dict[str, Any]:
    promise, epsilon = document["promise"], document["epsilon"]
    declared = config.validation
    return {
        "format": _FORMAT,
        "name": document["campaign"],
        "model": {
            "architecture": model.spec.name,
            "features": model.extractor.kind.value,
            "content": model.content.value,
            "input_shape": list(model.spec.input_shape),
            "task": model.spec.task.value,
            "classes": list(model.class_names),
            "weights": dict(document["model"]),
        },
        # The questions of NIST SP 800-226 and of registries of deployments, in their terms.
        "privacy": {
            "definition": "(epsilon, delta)-differential privacy",
            "epsilon": promise["epsilon"],
            "delta": promise["delta"],
            "unit": promise["unit"],
            "adjacency": promise["adjacency"],
            "trust_model": "central: whoever runs it sees the records",
            "protected_records": document["pool"]["size"],
            "mechanisms": sorted(
                {event["mechanism"] for cohort in document["cohorts"] for event in cohort["events"]}
            ),
            "accountant": promise["accountant"],
            "epsilon_spent_at_most": epsilon[promise["accountant"]],
            "epsilon_second_opinion": epsilon["dp_accounting"],
            "selection": document["selection"],
            "data_set": document["data"],
            "other_campaigns": document["other_campaigns"],
            "assumptions": document["assumptions"],
            "not_protected": [*document["exceptions"], document["tuning"]],
        },
        "data": {
            "records": document["pool"]["size"],
            "labels_planned": labels,
            "validation_is_public": bool(declared and declared.public),
            "why_public": "" if declared is None else declared.why,
        },
        "results": results,
        "certificate": {"digest": document["digest"], "plan": document["plan"]["digest"]},
        "versions": document["versions"],
    }
