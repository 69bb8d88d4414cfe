"""Which phase's model is a campaign's, and whether it is done: asked of its folder.

Once a campaign is certified, its certificate says which model it released; before that its
settings do. What 0.2.0 and earlier wrote names the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from dpal.canonical import file_digest
from dpal.certificate.read_and_seal import parse_entry, read_certificate
from dpal.files.artifacts import CampaignFolder, damaged
from dpal.ledger.entries import EntryKind
from dpal.ledger.model_choice_and_stopping import ReleaseRule, is_stopped
from dpal.reports.validation_figures import headline, released_metrics


def released_phase(folder: CampaignFolder) -> int:
    """Number of the phase whose model is the campaign's; so far, where it is not finished.

    Args:
      folder: with one finished phase at least.

    Raises:
      CertificateError: its certificate is damaged.
    """
    phases = folder.finished_phases()
    if len(phases) <= 1:
        return 0
    if folder.certificate.is_file():
        named = PurePosixPath(_certificate(folder)["model"]["file"])
        return int(named.parts[0].removeprefix("phase-"))
    settings = folder.read_record()["config"]
    rule = ReleaseRule(settings.get("release", ReleaseRule.LAST))
    return rule.phase(validation_curve(phases))


def released_weights(folder: CampaignFolder) -> Path:
    """The weights of a campaign; so far, where it is not finished."""
    return folder.phase(released_phase(folder)).model


def is_complete(folder: CampaignFolder) -> bool:
    """Whether a run is done: with all phases of its plan, or by its own rule before."""
    planned = folder.read_record()["plan"]["phases"]
    return len(folder.finished_phases()) == len(planned) or stopped_early(folder)


def stopped_early(folder: CampaignFolder) -> bool:
    """Whether a campaign is certified and ended early by its own rule."""
    if not folder.certificate.is_file():
        return False
    entries = map(parse_entry, _certificate(folder)["ledger"]["entries"])
    return any(entry.kind is EntryKind.END and is_stopped(entry.body) for entry in entries)


def reached(folder: CampaignFolder) -> dict[str, Any]:
    """What a campaign has to show so far: costs of all phases, and figures of its model.

    Args:
      folder: with one finished phase at least.
    """
    phases, plan = folder.finished_phases(), folder.read_record()["plan"]
    metrics = released_metrics(phases, released_phase(folder))
    if folder.certificate.is_file() and len(phases) < len(plan["phases"]):
        # Its own rule decided when to end, in view of what was released: all that it could have
        # released counts. Or somebody ended it, maybe in the middle of a phase: all that this
        # phase had begun to release counts. The certificate adds up either.
        metrics["campaign_epsilon"] = _certificate(folder)["epsilon"][plan["accountant"]]
    return metrics


def released_figures(folder: CampaignFolder) -> dict[str, Any] | None:
    """Metrics of the phase whose model a run of any kind releases; None before there is one."""
    phases = folder.finished_phases()
    return phases[released_phase(folder)] if phases else None


def released_calibration(folder: CampaignFolder) -> dict[str, Any] | None:
    """Temperature and calibration errors of the released model; None where none was fitted to it.

    Raises:
      DataError: the file is damaged.
    """
    if not folder.calibration.is_file():
        return None
    try:
        told: dict[str, Any] = json.loads(folder.calibration.read_text(encoding="utf-8"))
        whose = told["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder.calibration) from error
    return told if whose == file_digest(released_weights(folder)) else None


def releases_a_model(folder: CampaignFolder) -> bool:
    """Whether a run is finished with a model that says how records are read for it."""
    known = "model" in folder.read_record() and bool(folder.finished_phases())
    return known and folder.certificate.is_file()


def validation_curve(phases: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """The headline figure of every finished phase, in order."""
    return tuple(headline(phase)[1] for phase in phases)


def _certificate(folder: CampaignFolder) -> dict[str, Any]:
    return read_certificate(folder.certificate.read_text(encoding="utf-8"))
