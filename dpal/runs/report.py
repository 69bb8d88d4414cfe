"""Reports of a run of any kind, from its files: report.md, report.html and ledger.html."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dpal.certificate.document import read_certificate
from dpal.certificate.statements import statements
from dpal.errors import AnchorError, DataError, LedgerError, LedgerMissing
from dpal.files.artifacts import NO_HEAD, VOTE_ACCOUNT, CampaignFolder, damaged
from dpal.files.atomic import write_text
from dpal.files.dvc_pointers import restore_commands
from dpal.ledger.account import campaigns_in
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry
from dpal.reports.campaign_report import campaign_report
from dpal.reports.improvement import improvement_report
from dpal.reports.ledger_report import ledger_report
from dpal.reports.render.html import html_of
from dpal.reports.report import Picture, Report, table
from dpal.reports.run_report import RunFacts, run_report
from dpal.reports.vote_tables import ReleasedBlock, account_report
from dpal.reports.voting_report import pate_report
from dpal.reports.write import write_report
from dpal.runs.ballot_tables import read_released, told_of
from dpal.runs.certify import sign_files
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, VOTING
from dpal.runs.notify import notify
from dpal.runs.open_ledger import recorded_ledger, recorded_runtime

AUDIT = "audit/audit.json"
CENTRAL = "central"  # the figure that is drawn while the model is at hand

Phases = Sequence[Mapping[str, Any]]

_RUNS = {
    CAMPAIGN.name: "campaign",
    IMPROVEMENT.name: "improvement",
    VOTING.name: "private voting",
    VOTE_ACCOUNT: "account of teachers",
}
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
    """Writes all reports of a run, and says where.

    Args:
      folder: of a run of any kind.

    Raises:
      DataError: there is nothing to report on yet.
      LedgerTampered: the ledger is not what once was written.
    """
    if _is_in_ledger(folder):
        make_ledger_page(folder)
    notify(f"report: {make_report(folder)}")


def make_report(folder: CampaignFolder) -> Path:
    """Writes report.md, its figures and report.html, from a run's files alone.

    Returns:
      Where report.md is; the page is beside it.

    Raises:
      DataError: there is nothing to report on yet.
    """
    report, head = report_of(folder), _head(folder)
    pages = write_report(
        report, text=folder.report, page=folder.report_page, figures=folder.figures
    )
    entries = _newest_entries(folder)
    if not any((one.sequence, one.digest) == (head["sequence"], head["digest"]) for one in entries):
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
    return _TOLD.get(_kind(folder), _any)(folder, phases)


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
    path, kind = to or folder.ledger_page, _kind(folder)
    holder = _holder(folder, entries)
    own = holder == folder.name
    owner = folder if own else CampaignFolder(folder.root.parent / holder)
    report = ledger_report(
        entries,
        holder,
        title=_title(folder) if own else f"{_title(folder)}: its start, campaign {holder}",
        doubt=doubt,
        certificate=_certificate(owner),
        has_model=kind != VOTE_ACCOUNT,
    )
    write_text(path, html_of(report))
    sign_files([] if doubt else entries, [path], recorded_runtime(folder))
    return path


def _campaign(folder: CampaignFolder, phases: Phases) -> Report:
    if not phases:
        raise DataError(f"campaign {folder.name} has no finished phase to report on yet")
    facts = _facts(folder, phases[-1]["campaign_epsilon"], phases)
    audit = _audit(folder, facts.summary["plan_digest"])
    return campaign_report(facts, phases, audit=audit, labeled_by=folder.labeled_by())


def _improvement(folder: CampaignFolder, phases: Phases) -> Report:
    if not phases or not folder.certificate.is_file():
        raise DataError(f"improvement {folder.name} is not finished, so there is nothing to report")
    facts = _facts(folder, phases[0]["campaign_epsilon"], phases)
    path = folder.figures / f"{CENTRAL}.png"
    alt = "The most central public record of each cluster; wrong ones with prediction and label."
    pictures = [Picture(name=CENTRAL, alt=alt, png=path.read_bytes())] if path.is_file() else []
    return improvement_report(facts, phases[0], pictures=pictures)


def _voting(folder: CampaignFolder, phases: Phases) -> Report:
    methods = folder.root / "methods.json"
    if not phases or not folder.certificate.is_file() or not methods.is_file():
        raise DataError(f"{folder.name} is not finished, so there is nothing to report")
    facts = _facts(folder, phases[0]["campaign_epsilon"], phases)
    return pate_report(facts, phases[0], json.loads(methods.read_text(encoding="utf-8")))


def _account(folder: CampaignFolder, phases: Phases) -> Report:
    """From what an account released alone; reads no ballot."""
    released = sorted(folder.root.glob("votes-*/released.parquet"), key=_block)
    has_summary = (folder.root / "votes-summary" / "summary.json").is_file()
    if not folder.certificate.is_file() or not (released or has_summary):
        raise DataError(
            f"the account {folder.name} has not released anything to the end, so there is nothing "
            "to report; run the same `dpal vote` again to complete it"
        )
    record, blocks = folder.read_record(), []
    for path in released:
        queries, labels = read_released(path)
        file = str(path.relative_to(folder.root))
        blocks.append(
            ReleasedBlock(file=file, queries=len(queries), labels=labels, note=told_of(path))
        )
    return account_report(
        _facts(folder, record["plan"]["epsilon"], phases),
        blocks,
        names=record.get("class_names") or (),
        has_summary=has_summary,
        other_teachers=record.get("other_teachers") or {},
    )


def _any(folder: CampaignFolder, phases: Phases) -> Report:
    """What every run has: its promise, what it spent, how to verify it."""
    summary = folder.read_record()["plan"]
    if not folder.certificate.is_file():
        raise DataError(f"{folder.name} is not finished, so there is nothing to report")
    rows = [{"release": one["release"], "kind": one["kind"]} for one in summary["releases"]]
    said = statements(str(_document(folder).get("kind")))
    proof = (
        f"{summary['epsilon']:.4f} by the accountant {summary['accountant']}; dp-accounting, the "
        f"second opinion, finds {summary['epsilon_oracle']:.4f}"
    )
    return run_report(
        _facts(folder, summary["epsilon"], phases),
        promised_by=(proof,),
        spent=(table("What was released", rows, "release"),),
        sections=(),
        uncovered=tuple(said.values()),
        cards=(),
    )


_TOLD: dict[str, Callable[[CampaignFolder, Phases], Report]] = {
    CAMPAIGN.name: _campaign,
    IMPROVEMENT.name: _improvement,
    VOTING.name: _voting,
    VOTE_ACCOUNT: _account,
}


def _facts(folder: CampaignFolder, spent: float, phases: Phases) -> RunFacts:
    summary, certificate = folder.read_record()["plan"], _certificate(folder)
    model = folder.phase(len(phases) - 1).model
    listed = {
        folder.certificate: "what `dpal verify` checks",
        folder.signature: "who signed it",
        model: "the model (MODEL)",
        folder.ledger_page: "every charge, entry by entry",
        folder.root / AUDIT: "the audit",
    }
    return RunFacts(
        run=_RUNS.get(_kind(folder), _kind(folder)),
        summary=summary,
        spent=spent,
        finished=len(phases) == len(summary["phases"]),
        head=_head(folder),
        certificate=certificate,
        files=tuple(
            (str(path.relative_to(folder.root)), what)
            for path, what in listed.items()
            if path.is_file()
        ),
        has_model=bool(phases),
        restore=restore_commands(folder, len(folder.finished_phases())),
    )


def _kind(folder: CampaignFolder) -> str:
    return str(folder.read_record().get("kind", CAMPAIGN.name))


def _title(folder: CampaignFolder) -> str:
    run = _RUNS.get(_kind(folder), _kind(folder))
    return f"{run[0].upper()}{run[1:]} {folder.name}"


def _head(folder: CampaignFolder) -> Mapping[str, Any]:
    """The last ledger entry that a report shows; that of the certificate, once there is one."""
    if folder.certificate.is_file():
        return _document(folder)["ledger"]["head"] or NO_HEAD
    return folder.phase(len(folder.finished_phases()) - 1).ledger_head()


def _newest_entries(folder: CampaignFolder) -> list[Entry]:
    """All entries of the ledger; none where it is not known to be the newest copy."""
    try:
        with closing(recorded_ledger(folder)) as store:
            return store.verified()
    except LedgerError:
        return []


def _is_in_ledger(folder: CampaignFolder) -> bool:
    """Whether a ledger has something to tell of a run: not of a start from elsewhere alone."""
    if _kind(folder) != IMPROVEMENT.name:
        return True
    try:
        with closing(recorded_ledger(folder)) as store:
            return _holder(folder, store.entries()) in campaigns_in(store.entries())
    except LedgerMissing:
        return False


def _holder(folder: CampaignFolder, entries: Sequence[Entry]) -> str:
    """Whose ledger a run's page tells: its own; its start's where it released nothing itself."""
    held = campaigns_in(entries)
    if folder.name in held or _kind(folder) != IMPROVEMENT.name:
        return folder.name
    start = str(folder.read_record()["plan"]["start"])
    return start if start in held else folder.name


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
    """Digest of a run's certificate; None before it is finished."""
    return str(_document(folder)["digest"]) if folder.certificate.is_file() else None


def _document(folder: CampaignFolder) -> dict[str, Any]:
    return read_certificate(folder.certificate.read_text(encoding="utf-8"))


def _block(released: Path) -> int:
    return int(released.parent.name.removeprefix("votes-"))
