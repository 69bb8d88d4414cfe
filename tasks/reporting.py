"""The report and its figures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from prefect.cache_policies import NO_CACHE

from dpal.certificate.document import read_certificate
from dpal.errors import AnchorError, DataError, LedgerError
from dpal.files.artifacts import CampaignFolder, damaged
from dpal.files.atomic import staged, write_text
from dpal.ledger.chain import verify_chain
from dpal.reports.ledger_page import ledger_page
from dpal.reports.plots import budget_figure, validation_figure
from dpal.reports.report_page import report_page
from dpal.reports.summary import report
from dpal.runs.campaign_run import Campaign
from dpal.runs.certify import sign_files
from dpal.runs.notify import notify
from dpal.runs.open_ledger import recorded_ledger, recorded_runtime
from tasks.boundary import task
from tasks.versioning import restore_commands

AUDIT = "audit/audit.json"

_DOUBTS = {
    "missing": "The machine that wrote this page has not anchored this ledger: it may be an older "
    "copy of it.",
    "altered": "The anchor on the machine that wrote this page was altered or damaged: the ledger "
    "may be an older copy.",
    "foreign": "The ledger does not know the key of the machine that wrote this page: it may be an "
    "older copy.",
    "behind": "Entries are missing at the end: this is an older copy of the ledger, and more was "
    "spent than it says.",
    "forked": "Two copies of this ledger went separate ways: more was spent than this one says.",
}


def make_report(folder: CampaignFolder) -> Path:
    """Writes report.html, report.md and its figures from a campaign's files.

    Returns:
      Where report.md is; the page is beside it.

    Raises:
      DataError: no phase is finished yet.
    """
    summary, phases = folder.read_record()["plan"], folder.finished_phases()
    if not phases:
        raise DataError(f"campaign {folder.name} has no finished phase to report on yet")
    figures = {
        "accuracy.png": validation_figure(phases),
        "budget.png": budget_figure(summary, phases),
    }
    for name, figure in figures.items():
        with staged(folder.figures / name) as temporary:
            temporary.write_bytes(as_png(figure))
    manifest = folder.phase(len(phases) - 1).read_manifest()
    if manifest is None:
        raise DataError(f"files of phase {len(phases) - 1} were altered; see `dpal ledger verify`")
    paths = [f"figures/{name}" for name in figures]
    head, certificate = manifest["ledger_head"], _certificate(folder)
    by = folder.labeled_by()
    write_text(folder.report, report(summary, phases, head, paths, certificate, labeled_by=by))
    page = report_page(
        summary,
        phases,
        head,
        certificate=certificate,
        audit=_audit(folder, summary["plan_digest"]),
        restore=restore_commands(folder, len(phases)),
    )
    write_text(folder.report_page, page)
    _sign_report(folder, head)
    return folder.report


def make_ledger_page(folder: CampaignFolder, to: Path | None = None) -> Path:
    """Writes a campaign's ledger as a page that opens without a server.

    Raises:
      LedgerError: the ledger is missing, or does not know the campaign.
      LedgerTampered: it is not what once was written.
    """
    with closing(recorded_ledger(folder)) as store:
        try:
            entries, doubt = store.verified(), None
        except AnchorError as error:
            entries, doubt = store.entries(), _DOUBTS[error.finding]
            verify_chain(entries)
    path = to or folder.ledger_page
    certificate = _certificate(folder)
    write_text(path, ledger_page(entries, folder.name, doubt=doubt, certificate=certificate))
    sign_files([] if doubt else entries, [path], recorded_runtime(folder))
    return path


def _sign_report(folder: CampaignFolder, head: Mapping[str, Any]) -> None:
    """Signs the report and the head that stands in it, where the newest ledger has that entry."""
    try:
        with closing(recorded_ledger(folder)) as store:
            entries = store.verified()
    except LedgerError:
        entries = []
    if not any((one.sequence, one.digest) == (head["sequence"], head["digest"]) for one in entries):
        entries = []
    pages = [folder.report_page, folder.report]
    sign_files(entries, pages, recorded_runtime(folder), upto=int(head["sequence"]))


def _audit(folder: CampaignFolder, plan: str) -> dict[str, Any] | None:
    """The audit of this very plan; None where there was none, or of another plan."""
    path = folder.root / AUDIT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path) from error
    return found if isinstance(found, dict) and found.get("plan_digest") == plan else None


def _certificate(folder: CampaignFolder) -> str | None:
    """Digest of the campaign's certificate; None before it is finished."""
    if not folder.certificate.is_file():
        return None
    return str(read_certificate(folder.certificate.read_text(encoding="utf-8"))["digest"])


@task(cache_policy=NO_CACHE)
def write_report(campaign: Campaign) -> None:
    """Writes the report and the page of the ledger."""
    path = make_report(campaign.folder)
    make_ledger_page(campaign.folder)
    notify(f"report: {path}")


def as_png(figure: Figure) -> bytes:
    """Renders a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()
