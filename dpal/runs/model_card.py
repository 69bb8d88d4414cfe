"""The card of a released model: what is promised to whom, what is not, and what it is worth.

It is made of a run's files alone, so that nothing is measured for it and it says the same again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpal.canonical import file_digest
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder, signature_of
from dpal.files.atomic_writes import write_text
from dpal.inference.released_model import ReleasedModel
from dpal.reports.model_card import card_as_markdown
from dpal.reports.validation_figures import (
    BALANCED,
    HIGH,
    LOW,
    against_majority,
    class_figures,
    figure_in,
    headline,
    is_protected,
    worthless,
)
from dpal.runs.kinds import recorded_kind, require_model
from dpal.runs.predict import open_model
from dpal.runs.released_phase import released_calibration, released_figures
from dpal.runs.run_facts import read_run_certificate

_FORMAT = 1


def write_model_card(folder: CampaignFolder, place: Path | None = None) -> dict[str, Any]:
    """Writes the card of a run's model as Markdown with front matter, and as JSON.

    Args:
      folder: of a finished run.
      place: folder for the two files; None for the run's own.

    Returns:
      The card's JSON.

    Raises:
      DataError: the run is not finished, releases no model, or an earlier version began it.
    """
    require_model(folder)
    released = released_figures(folder)
    if released is None or not folder.certificate.is_file():
        raise DataError(
            f"{folder.root} is of no finished run with a model; finish it with the same `dpal run`"
        )
    model, document = open_model(folder.root), read_run_certificate(folder)
    card = _card(folder, model, document, released)
    text, data = (path if place is None else place / path.name for path in folder.cards)
    write_text(data, json.dumps(card, indent=2) + "\n")
    write_text(text, card_as_markdown(card))
    return card


def _card(
    folder: CampaignFolder,
    model: ReleasedModel,
    document: Mapping[str, Any],
    released: Mapping[str, Any],
) -> dict[str, Any]:
    declared = folder.read_record()["config"].get("validation") or {}
    kind = recorded_kind(folder)
    return {
        "format": _FORMAT,
        "name": document["campaign"],
        "kind": kind.in_titles,
        "model": {
            "architecture": model.spec.name,
            "features": model.extractor.kind.value,
            "content": model.content.value,
            "input_shape": list(model.spec.input_shape),
            "task": model.spec.task.value,
            "classes": list(model.class_names),
            "weights": dict(document["model"]),
        },
        "privacy": _privacy(document),
        "data": {
            "records": _protected_records(document),
            "labels_planned": released["labels"],
            "learned_from": kind.use_cases().learned_from(released, document),
            "validation_is_public": bool(declared.get("public", False)),
            "why_public": declared.get("why", ""),
        },
        "results": _results(released, model.class_names),
        "calibration": _calibration(folder),
        "certificate": {
            "digest": document["digest"],
            "plan": document["plan"]["digest"],
            "sha256": file_digest(folder.certificate),
            "signed": signature_of(folder.certificate).is_file(),
        },
        "versions": document["versions"],
    }


def _calibration(folder: CampaignFolder) -> dict[str, Any] | None:
    told = released_calibration(folder)
    names = ("temperature", "error", "error_after", "records")
    return None if told is None else {name: told[name] for name in names}


def _privacy(document: Mapping[str, Any]) -> dict[str, Any]:
    """The questions of NIST SP 800-226 and of registries of deployments, in their terms."""
    promise, epsilon = document["promise"], document["epsilon"]
    answers = promise["accountant"] == "rdp" and "renyi_oracle" in epsilon
    start = _start_of(document)
    return {
        "definition": "(epsilon, delta)-differential privacy",
        "epsilon": promise["epsilon"],
        "delta": promise["delta"],
        "unit": promise["unit"],
        "adjacency": promise["adjacency"],
        "trust_model": "central: whoever runs it sees the records",
        "protected_records": _protected_records(document),
        "mechanisms": sorted(set(_mechanisms(document))),
        "accountant": promise["accountant"],
        "epsilon_spent_at_most": epsilon[promise["accountant"]],
        "epsilon_second_opinion": epsilon["renyi_oracle" if answers else "dp_accounting"],
        "selection": document.get("selection") or start.get("selection"),
        "data_set": document.get("data") or start.get("data"),
        "other_campaigns": document.get("other_campaigns") or start.get("other_campaigns"),
        "assumptions": document.get("assumptions") or start.get("assumptions") or {},
        "not_protected": list(dict.fromkeys(_not_protected(document))),
    }


def _start_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The certificate of the model that an improvement began with; empty where there is none."""
    start: Mapping[str, Any] = document.get("start", {}).get("certificate") or {}
    return start


def _protected_records(document: Mapping[str, Any]) -> int | None:
    """How many are protected, where the certificate says it, or that of the start."""
    pool = document.get("pool") or _start_of(document).get("pool") or {}
    return pool.get("size")


def _mechanisms(document: Mapping[str, Any]) -> Iterator[str]:
    """Of everything that is charged, the start's charges included."""
    for cohort in document.get("cohorts", ()):
        yield from (event["mechanism"] for event in cohort["events"])
    yield from (release["mechanism"] for release in document.get("released", ()))
    if start := _start_of(document):
        yield from _mechanisms(start)


def _not_protected(document: Mapping[str, Any]) -> Iterator[str]:
    yield from document.get("exceptions", ())
    yield from [document["tuning"]] if "tuning" in document else []
    yield from document.get("statements", {}).values()
    if start := _start_of(document):
        yield from _not_protected(start)


def _results(released: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Figures of the released phase; of earlier versions the headline alone."""
    figure, value = headline(released)
    compared, protected = against_majority(released), is_protected(released)
    ends = (figure_in(released, LOW), figure_in(released, HIGH)) if protected else None
    return {
        "figure": figure,
        "headline": value,
        "interval": None if ends is None else list(ends),
        "noisy": protected,
        "records": None if compared is None else compared.records,
        "majority": None if compared is None else compared.majority,
        "balanced_accuracy": figure_in(released, BALANCED),
        "auc": None if compared is None else compared.auc,
        "worthless": worthless(released),
        "classes": [
            {"name": names[number], **about} for number, about in enumerate(class_figures(released))
        ],
    }
