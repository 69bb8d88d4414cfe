"""Files of a report: `report.md` with its figures, and `report.html`, which needs no other."""

from __future__ import annotations

from pathlib import Path

from dpal.files.atomic_writes import atomic_write, write_text
from dpal.reports.charts import Chart
from dpal.reports.plots.draw_chart import chart_figure
from dpal.reports.plots.style import save
from dpal.reports.render.html import html_of
from dpal.reports.render.markdown import markdown_of
from dpal.reports.report import Picture, Report


def write_report_files(report: Report, *, text: Path, page: Path, figures: Path) -> list[Path]:
    """Writes a report in all its forms.

    Args:
      report: what is told.
      text: of the Markdown, beside the folder of the figures.
      page: of the HTML.
      figures: folder of the figures.

    Returns:
      The page and the text.
    """
    for chart in report.blocks(Chart):
        save(chart_figure(chart), figures / f"{chart.name}.png")
    for picture in report.blocks(Picture):
        with atomic_write(figures / f"{picture.name}.png") as temporary:
            temporary.write_bytes(picture.png)
    write_text(text, markdown_of(report))
    write_text(page, html_of(report))
    return [page, text]
