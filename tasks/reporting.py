"""The report and its figures."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from matplotlib.figure import Figure
from prefect import task
from prefect.artifacts import create_image_artifact
from prefect.cache_policies import NO_CACHE

from dpal.artifacts import CampaignFolder
from dpal.errors import DataError
from dpal.persist import staged, write_text
from dpal.reports.plots import accuracy_figure, budget_figure
from dpal.reports.summary import report
from tasks.context import Campaign, say


def make_report(folder: CampaignFolder) -> Path:
    """Writes report.md and its figures from a campaign's files.

    Raises:
      DataError: no phase is finished yet.
    """
    summary, phases = folder.read_record()["plan"], folder.finished_phases()
    if not phases:
        raise DataError(f"campaign {folder.name} has no finished phase to report on yet")
    figures = {
        "accuracy.png": accuracy_figure(phases),
        "budget.png": budget_figure(summary, phases),
    }
    for name, figure in figures.items():
        with staged(folder.figures / name) as temporary:
            temporary.write_bytes(as_png(figure))
    manifest = folder.phase(len(phases) - 1).read_manifest()
    if manifest is None:
        raise DataError(f"files of phase {len(phases) - 1} were altered; see `dpal ledger verify`")
    paths = [f"figures/{name}" for name in figures]
    write_text(folder.report, report(summary, phases, manifest["ledger_head"], paths))
    return folder.report


@task(cache_policy=NO_CACHE)
def write_report(campaign: Campaign) -> None:
    """Writes the report and shows the budget on the Prefect page."""
    path = make_report(campaign.folder)
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
