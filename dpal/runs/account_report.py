"""The report of an account of teachers, as `dpal vote` keeps it."""

from __future__ import annotations

from pathlib import Path

from dpal.certificate.document import read_certificate
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic import write_text
from dpal.reports.vote_tables import ReleasedBlock, account_report
from dpal.runs.ballot_tables import read_released, told_of


def make_account_report(folder: CampaignFolder) -> Path:
    """Writes report.md from what an account released; reads no ballot and releases nothing.

    Raises:
      DataError: nothing was released yet, or not to the end.
    """
    record = folder.read_record()
    released = sorted(folder.root.glob("votes-*/released.parquet"), key=_block)
    has_summary = (folder.root / "votes-summary" / "summary.json").is_file()
    if not folder.certificate.is_file() or not (released or has_summary):
        raise DataError(
            f"the account {folder.name} has not released anything to the end, so there is nothing "
            "to report; run the same `dpal vote` again to complete it"
        )
    blocks = []
    for path in released:
        queries, labels = read_released(path)
        file = str(path.relative_to(folder.root))
        blocks.append(
            ReleasedBlock(file=file, queries=len(queries), labels=labels, note=told_of(path))
        )
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    text = account_report(
        record["plan"],
        blocks,
        names=record.get("class_names") or (),
        has_summary=has_summary,
        other_teachers=record.get("other_teachers") or {},
        certificate=str(certificate["digest"]),
    )
    write_text(folder.report, text)
    return folder.report


def _block(released: Path) -> int:
    return int(released.parent.name.removeprefix("votes-"))
