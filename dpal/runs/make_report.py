"""Reports of a run of any kind, from its files: report.md, report.html, ledger.html, its card."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from dpal.errors import AnchorError, DataError, LedgerError, LedgerMissing
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.ledger.campaign_account import campaigns_in
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry
from dpal.reports.ledger_report import ledger_report
from dpal.reports.render.html import html_of
from dpal.reports.report import Report
from dpal.reports.write_report_files import write_report_files
from dpal.runs.kinds import recorded_kind
from dpal.runs.open_ledger import recorded_ledger, recorded_runtime
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import releases_a_model
from dpal.runs.run_facts import certificate_digest, ledger_head
from dpal.runs.write_certificate import sign_files

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


def write_reports(folder: CampaignFolder) -> None:
    """Writes all reports of a run and the card of its model, and says where.

    Args:
      folder: of a run of any kind.

    Raises:
      DataError: there is nothing to report on yet.
      LedgerTampered: the ledger is not what once was written.
    """
    if _is_in_ledger(folder):
        make_ledger_page(folder)
    if releases_a_model(folder):
        from dpal.runs.model_card import write_model_card  # accounts of votes need no torch

        write_model_card(folder)
    notify(f"report: {make_report(folder)}")


def make_report(folder: CampaignFolder) -> Path:
    """Writes report.md, its figures and report.html, from a run's files alone.

    Returns:
      Where report.md is; the page is beside it.

    Raises:
      DataError: there is nothing to report on yet.
    """
    report, head = report_of(folder), ledger_head(folder)
    pages = write_report_files(
        report, text=folder.report, page=folder.report_page, figures=folder.figures
    )
    entries = _newest_entries(folder)
    if not any(
        (entry.sequence, entry.digest) == (head["sequence"], head["digest"]) for entry in entries
    ):
        entries = []
    sign_files(entries, pages, recorded_runtime(folder), upto=int(head["sequence"]))
    return folder.report


def report_of(folder: CampaignFolder) -> Report:
    """Reads a run's files, and tells them.

    Raises:
      DataError: there is nothing to report on yet.
    """
    phases = folder.finished_phases()
    if phases and folder.phase(len(phases) - 1).read_manifest() is None:
        raise DataError(f"files of phase {len(phases) - 1} were altered; see `dpal ledger verify`")
    return recorded_kind(folder).use_cases().report(folder)


def make_ledger_page(folder: CampaignFolder, to: Path | None = None) -> Path:
    """Writes a run's ledger as a page that opens without a server.

    Raises:
      LedgerError: the ledger is missing, or does not know the run.
      LedgerTampered: it is not what once was written.
    """
    with closing(recorded_ledger(folder)) as store:
        try:
            entries, doubt = store.verified(), None
        except AnchorError as error:
            entries, doubt = store.entries(), _DOUBTS[error.finding]
            verify_chain(entries)
    path = to or folder.ledger_page
    holder = holder_of(folder, entries)
    own = holder == folder.name
    owner = folder if own else CampaignFolder(folder.root.parent / holder)
    report = ledger_report(
        entries,
        holder,
        title=_title(folder) if own else f"{_title(folder)}: its start, campaign {holder}",
        doubt=doubt,
        certificate=certificate_digest(owner),
        has_model=recorded_kind(folder).use_cases().has_model,
        whole_groups=_takes_whole_groups(owner),
    )
    write_text(path, html_of(report))
    sign_files([] if doubt else entries, [path], recorded_runtime(folder))
    return path


def _takes_whole_groups(folder: CampaignFolder) -> bool:
    """Whether the run's plan says how all records of a group take part."""
    if not (folder.root / RECORD).is_file():
        return False
    return folder.read_record().get("plan", {}).get("groups") is not None


def _title(folder: CampaignFolder) -> str:
    called = recorded_kind(folder).in_titles
    return f"{called[0].upper()}{called[1:]} {folder.name}"


def _newest_entries(folder: CampaignFolder) -> list[Entry]:
    """All entries of the ledger; none where it is not known to be the newest copy."""
    try:
        with closing(recorded_ledger(folder)) as store:
            return store.verified()
    except LedgerError:
        return []


def _is_in_ledger(folder: CampaignFolder) -> bool:
    """Whether a ledger has something to tell of a run: not of a start from elsewhere alone."""
    if not recorded_kind(folder).use_cases().may_be_free:
        return True
    try:
        with closing(recorded_ledger(folder)) as store:
            return holder_of(folder, store.entries()) in campaigns_in(store.entries())
    except LedgerMissing:
        return False


def holder_of(folder: CampaignFolder, entries: Sequence[Entry]) -> str:
    """Whose part of the ledger tells a run's story.

    Raises:
      DataError: the run is of a kind unknown here.
    """
    return recorded_kind(folder).use_cases().holder(folder, campaigns_in(entries))
