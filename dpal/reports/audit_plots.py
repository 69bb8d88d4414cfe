"""Figure of an audit: what is claimed and what was measured, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpal.audit.findings import AuditReport, Finding, Layer
from dpal.reports.render.figures import (
    BLUE,
    GREY,
    INK,
    PROMISE,
    QUIET,
    dress,
    headline,
    note,
)

_ROW = 0.34  # inches
_FARTHEST = 0.22  # of measured over claimed from 1; what lies beyond is drawn at the edge
_ORDER = list(Layer)


def audit_figure(report: AuditReport) -> Figure:
    """Ratios of measured to claimed numbers, and below them epsilons against their claims.

    Args:
      report: of an audit.
    """
    in_order = sorted(report.findings, key=lambda one: _ORDER.index(one.layer))
    numbers = [one for one in in_order if one.claimed is not None and not one.is_epsilon]
    epsilons = [one for one in in_order if one.is_epsilon and one.value is not None]
    height = _ROW * (len(numbers) + len(epsilons)) + 2.4
    figure = Figure(figsize=(9.0, height), layout="constrained")
    above, below = figure.subplots(
        2, 1, height_ratios=[max(1, len(numbers)), max(1, len(epsilons))]
    )
    _ratios(above, numbers)
    _bounds(below, epsilons)
    target, failed = report.target, len(report.failed)
    outcome = f"{failed} of {len(report.findings)} checks failed" if failed else "all checks passed"
    title = f"Audit of {report.name}: {outcome}"
    headline(
        figure,
        title,
        f"promised: epsilon {target.epsilon:g} at delta {target.delta:.3g}, adjacency "
        f"{target.adjacency}, unit {target.unit}; measured on canaries, nothing charged",
    )
    return figure


def _ratios(axes: Axes, findings: Sequence[Finding]) -> None:
    """A dot for each number, with the range that chance allows."""
    axes.axvline(1.0, color=PROMISE, linewidth=1.4)
    for row, one in enumerate(findings):
        ratio = (one.value or 0.0) / (one.claimed or 1.0)
        shown = min(max(ratio, 1 - _FARTHEST), 1 + _FARTHEST)
        color = BLUE if one.passed else PROMISE
        least, most = _allowed(one)
        axes.barh(row, most - least, left=least, height=0.5, color=GREY, alpha=0.3)
        marker = "o" if shown == ratio else (">" if ratio > 1 else "<")
        axes.plot(shown, row, marker=marker, color=color, markersize=6, zorder=3)
        axes.text(
            1.01, row, f"{ratio:.4g}", transform=axes.get_yaxis_transform(), va="center",
            fontsize=8, color=QUIET if one.passed else PROMISE,
        )  # fmt: skip
    _label(axes, findings)
    axes.set_xlim(1 - _FARTHEST - 0.01, 1 + _FARTHEST + 0.01)
    _say(axes, "measured / claimed (dot); what chance allows sound code (grey)")
    dress(axes, along="x")
    axes.set_xticks([0.8, 0.9, 1.0, 1.1, 1.2])


def _allowed(one: Finding) -> tuple[float, float]:
    """Ratios that pass: around 1, or everything up to it."""
    if one.within is None:
        return 1 - _FARTHEST - 0.01, 1.0
    room = min(one.within / (one.claimed or 1.0), _FARTHEST)
    return 1 - room, 1 + room


def _bounds(axes: Axes, findings: Sequence[Finding]) -> None:
    """A bar up to each proven epsilon, and the claim that it must not pass."""
    values = [one.value for one in findings if one.value is not None and math.isfinite(one.value)]
    claims = [one.claimed for one in findings if one.claimed is not None]
    farthest = 1.15 * max([1.0, *values, *claims])
    for row, one in enumerate(findings):
        value = min(one.value or 0.0, farthest)
        color = PROMISE if not one.passed else GREY if one.claimed is None else BLUE
        axes.barh(row, max(value, 0.004 * farthest), height=0.5, color=color)
        claimed = "" if one.claimed is not None else "   (not private: shows that guessing works)"
        note(axes, f"{one.value:.2f}{claimed}", (value, row), shift=(4, 0), va="center")
        if one.claimed is not None:
            axes.plot([one.claimed] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=2)
            if value < one.claimed:
                note(axes, f"{one.claimed:.2f}", (one.claimed, row), shift=(4, 0), va="center")
    _label(axes, findings)
    axes.set_xlim(0, farthest)
    _say(axes, "epsilon that an attack proves (bar) and that is claimed (dark line)")
    dress(axes, along="x")


def _label(axes: Axes, findings: Sequence[Finding]) -> None:
    axes.set_yticks(range(len(findings)))
    axes.set_yticklabels([f"{one.what}" for one in findings], fontsize=8)
    for tick, one in zip(axes.get_yticklabels(), findings, strict=True):
        tick.set_color(INK if one.passed else PROMISE)
    axes.set_ylim(len(findings) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8, colors=QUIET)
    axes.tick_params(axis="y", length=0)


def _say(axes: Axes, text: str) -> None:
    axes.set_xlabel(text, fontsize=8, color=QUIET)
