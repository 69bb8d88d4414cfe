"""The report of private voting, from its files."""

from __future__ import annotations

import json
from pathlib import Path

from dpal.certificate.document import read_certificate
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic import write_text
from dpal.reports.voting_report import pate_report


def make_pate_report(folder: CampaignFolder) -> Path:
    """Writes report.md from the files of private voting.

    Raises:
      DataError: it is not finished.
    """
    phases, methods = folder.finished_phases(), folder.root / "methods.json"
    if not phases or not folder.certificate.is_file() or not methods.is_file():
        raise DataError(f"{folder.name} is not finished, so there is nothing to report")
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    pictures = sorted(path.name for path in folder.figures.glob("labels-*.png"))
    text = pate_report(
        folder.read_record()["plan"],
        phases[0],
        json.loads(methods.read_text(encoding="utf-8")),
        figures=[f"figures/{name}" for name in pictures],
        certificate=str(certificate["digest"]),
    )
    write_text(folder.report, text)
    return folder.report
