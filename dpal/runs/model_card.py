"""The card of a released model: what is promised to whom, what is not, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
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
from dpal.runs.open_sources import open_validation
from dpal.runs.predict import ReleasedModel, open_model
from dpal.runs.recorded_settings import recorded_as
from dpal.training.evaluation import probabilities
from dpal.training.model_worth import ModelWorth, model_worth

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
    card = _card(config, model, document, labels, _worth(config, model))
    card["certificate"] |= {
        "sha256": file_digest(folder.certificate),
        "signed": signature_of(folder.certificate).is_file(),
    }
    write_text(place / DATA, json.dumps(card, indent=2) + "\n")
    write_text(place / TEXT, card_as_markdown(card))
    return card


def _worth(config: CampaignConfig, model: ReleasedModel) -> ModelWorth | None:
    """Figures on public records; None where nobody declared them public."""
    if config.validation is None or not config.validation.public:
        return None
    inputs, labels = load_all(open_validation(config))
    task = model.spec.task
    guesses = probabilities(
        model.build(), inputs, physical_batch=config.runtime.physical_batch, task=task
    )
    return model_worth(task, guesses, labels.numpy(), model.class_names)


def _card(
    config: CampaignConfig,
    model: ReleasedModel,
    document: Mapping[str, Any],
    labels: int,
    worth: ModelWorth | None,
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
        "results": None if worth is None else _results(worth),
        "certificate": {"digest": document["digest"], "plan": document["plan"]["digest"]},
        "versions": document["versions"],
    }


def _results(worth: ModelWorth) -> dict[str, Any]:
    figures = {**asdict(worth), "is_below_majority": worth.is_below_majority}
    return {**figures, "classes": [asdict(each) for each in worth.classes]}
