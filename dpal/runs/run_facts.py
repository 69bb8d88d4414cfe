"""What every report says of a run: its promise, its certificate, its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.certificate.read_and_seal import read_certificate
from dpal.files.artifacts import NO_HEAD, CampaignFolder
from dpal.files.dvc_pointers import restore_commands
from dpal.reports.run_report import RunFacts
from dpal.runs.kinds import recorded_kind
from dpal.runs.released_phase import (
    is_complete,
    released_calibration,
    released_figures,
    released_weights,
)

AUDIT = "audit/audit.json"


def facts_of(folder: CampaignFolder, spent: float) -> RunFacts:
    """Facts of a run that has something to report.

    Args:
      folder: its files.
      spent: epsilon of its releases so far.
    """
    summary, phases = folder.read_record()["plan"], folder.finished_phases()
    declared = folder.read_record()["config"].get("validation") or {}
    model = released_weights(folder)
    listed = {
        folder.certificate: "what `dpal verify` checks",
        folder.signature: "who signed it",
        model: "the model (MODEL)",
        folder.ledger_page: "every charge, entry by entry",
        folder.root / AUDIT: "the audit",
        folder.cards[0]: "the model's card",
    }
    return RunFacts(
        run=recorded_kind(folder).in_titles,
        summary=summary,
        spent=spent,
        finished=is_complete(folder),
        head=ledger_head(folder),
        certificate=certificate_digest(folder),
        files=tuple(
            (str(path.relative_to(folder.root)), what)
            for path, what in listed.items()
            if path.is_file()
        ),
        has_model=bool(phases),
        reached=released_figures(folder),
        calibration=released_calibration(folder) if phases else None,
        class_names=tuple(folder.read_record().get("class_names", ())),
        why_public=declared.get("why", "") if declared.get("public") else "",
        restore=restore_commands(folder, len(phases)),
    )


def ledger_head(folder: CampaignFolder) -> Mapping[str, Any]:
    """The last ledger entry that a report shows; that of the certificate, once there is one."""
    if folder.certificate.is_file():
        return read_run_certificate(folder)["ledger"]["head"] or NO_HEAD
    return folder.phase(len(folder.finished_phases()) - 1).ledger_head()


def certificate_digest(folder: CampaignFolder) -> str | None:
    """Digest of a run's certificate; None before it is finished."""
    return str(read_run_certificate(folder)["digest"]) if folder.certificate.is_file() else None


def read_run_certificate(folder: CampaignFolder) -> dict[str, Any]:
    """A run's certificate, as it stands there.

    Raises:
      CertificateError: it is damaged.
    """
    return read_certificate(folder.certificate.read_text(encoding="utf-8"))
