"""Figure of an audit: what is claimed and what was measured, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpal.audit.findings import AuditFinding, AuditReport, Layer
from dpal.reports.plots import style

_ROW = 0.34  # inches
_FARTHEST = 0.22  # of measured over claimed from 1; what lies beyond is drawn at the edge
_ORDER = list(Layer)


def audit_figure(report: AuditReport) -> Figure:
    """Ratios of measured to claimed numbers, and below them epsilons against their claims."""
    in_order = sorted(report.findings, key=lambda finding: _ORDER.index(finding.layer))
    numbers = [
        finding for finding in in_order if finding.claimed is not None and not finding.is_epsilon
    ]
    epsilons = [finding for finding in in_order if finding.is_epsilon and finding.value is not None]
    target, failed = report.target, len(report.failed)
    outcome = f"{failed} of {len(report.findings)} checks failed" if failed else "all checks passed"
    figure, [above, below] = style.canvas(
        f"Audit of {report.name}: {outcome}",
        f"promised: epsilon {target.epsilon:g} at delta {target.delta:.3g}, adjacency "
        f"{target.adjacency}, unit {target.unit}; measured on canaries, nothing charged",
        size=(9.0, _ROW * (len(numbers) + len(epsilons)) + 2.4),
        along="x",
        nrows=2,
        height_ratios=[max(1, len(numbers)), max(1, len(epsilons))],
    )
    _ratios(above, numbers)
    _bounds(below, epsilons)
    return figure


def _ratios(axes: Axes, findings: Sequence[AuditFinding]) -> None:
    """A dot for each number, with the range that chance allows."""
    axes.axvline(1.0, color=style.PROMISE, linewidth=1.4)
    for row, finding in enumerate(findings):
        ratio = (finding.value or 0.0) / (finding.claimed or 1.0)
        shown = min(max(ratio, 1 - _FARTHEST), 1 + _FARTHEST)
        least, most = _allowed(finding)
        axes.barh(row, most - least, left=least, height=0.5, color=style.GREY, alpha=0.3)
        marker = "o" if shown == ratio else (">" if ratio > 1 else "<")
        color = style.BLUE if finding.passed else style.PROMISE
        axes.plot(shown, row, marker=marker, color=color, markersize=6, zorder=3)
        beside = {"xycoords": axes.get_yaxis_transform(), "va": "center"}
        color = style.QUIET if finding.passed else style.PROMISE
        style.note(axes, f"{ratio:.4g}", (1.01, row), shift=(0, 0), color=color, **beside)
    _label(axes, findings, "measured / claimed (dot); what chance allows sound code (grey)")
    axes.set_xlim(1 - _FARTHEST - 0.01, 1 + _FARTHEST + 0.01)
    axes.set_xticks([0.8, 0.9, 1.0, 1.1, 1.2])


def _allowed(finding: AuditFinding) -> tuple[float, float]:
    """Ratios that pass: around 1, or everything up to it."""
    if finding.within is None:
        return 1 - _FARTHEST - 0.01, 1.0
    room = min(finding.within / (finding.claimed or 1.0), _FARTHEST)
    return 1 - room, 1 + room


def _bounds(axes: Axes, findings: Sequence[AuditFinding]) -> None:
    """A bar up to each proven epsilon, and the claim that it must not pass."""
    values = [
        finding.value
        for finding in findings
        if finding.value is not None and math.isfinite(finding.value)
    ]
    claims = [finding.claimed for finding in findings if finding.claimed is not None]
    farthest = 1.15 * max([1.0, *values, *claims])
    for row, finding in enumerate(findings):
        value, claimed = min(finding.value or 0.0, farthest), finding.claimed
        color = (
            style.PROMISE if not finding.passed else style.GREY if claimed is None else style.BLUE
        )
        axes.barh(row, max(value, 0.004 * farthest), height=0.5, color=color)
        why = "   (not private: shows that guessing works)" if claimed is None else ""
        style.note(axes, f"{finding.value:.2f}{why}", (value, row), shift=(4, 0), va="center")
        if claimed is not None:
            axes.plot([claimed] * 2, [row - 0.36, row + 0.36], color=style.INK, linewidth=2)
            if value < claimed:
                style.note(axes, f"{claimed:.2f}", (claimed, row), shift=(4, 0), va="center")
    _label(axes, findings, "epsilon that an attack proves (bar) and that is claimed (dark line)")
    axes.set_xlim(0, farthest)


def _label(axes: Axes, findings: Sequence[AuditFinding], below: str) -> None:
    """Names the rows, and what the numbers are."""
    axes.set_yticks(range(len(findings)), [finding.what for finding in findings], fontsize=8)
    for tick, finding in zip(axes.get_yticklabels(), findings, strict=True):
        tick.set_color(style.INK if finding.passed else style.PROMISE)
    axes.set_ylim(len(findings) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8, colors=style.QUIET)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(below, fontsize=8, color=style.QUIET)
