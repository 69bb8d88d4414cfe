"""The report and its figures."""

from __future__ import annotations

import base64
import io
from contextlib import closing
from pathlib import Path

from matplotlib.figure import Figure
from prefect import task
from prefect.artifacts import create_image_artifact
from prefect.cache_policies import NO_CACHE

from dpal.artifacts import CampaignFolder
from dpal.certificate.document import read_certificate
from dpal.errors import AnchorError, DataError
from dpal.ledger.chain import verify_chain
from dpal.persist import staged, write_text
from dpal.reports.ledger_page import ledger_page
from dpal.reports.plots import budget_figure, validation_figure
from dpal.reports.summary import report
from tasks.context import Campaign, say
from tasks.opening import recorded_ledger

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
    """Writes report.md and its figures from a campaign's files.

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
    text = report(summary, phases, manifest["ledger_head"], paths, _certificate(folder))
    write_text(folder.report, text)
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
    return path


def _certificate(folder: CampaignFolder) -> str | None:
    """Digest of the campaign's certificate; None before it is finished."""
    if not folder.certificate.is_file():
        return None
    return str(read_certificate(folder.certificate.read_text(encoding="utf-8"))["digest"])


@task(cache_policy=NO_CACHE)
def write_report(campaign: Campaign) -> None:
    """Writes the report and shows the budget on the Prefect page."""
    path = make_report(campaign.folder)
    make_ledger_page(campaign.folder)
    budget = (campaign.folder.figures / "budget.png").read_bytes()
    create_image_artifact(
        image_url="data:image/png;base64," + base64.b64encode(budget).decode(),
        key="budget",
        description="Epsilon by cohort and phase, as the ledger adds it up.",
    )
    say(f"report: {path}")


def as_png(figure: Figure) -> bytes:
    """Renders a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()
