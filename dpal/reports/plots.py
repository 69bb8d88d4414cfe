"""Figures of a campaign, drawn without any global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dpal.reports.render.figures import (
    BLUE,
    GREY,
    GRID,
    INK,
    PROMISE,
    QUIET,
)
from dpal.reports.validation import headline

_SIZE = (7.2, 4.2)


def budget_figure(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Figure:
    """Epsilon of every cohort by phase, as the ledger adds it up, under the promised line."""
    figure, axes = _figure("Privacy spent by cohort")
    cohorts = [one["cohort"] for one in phases[-1]["cohorts"]]
    colors = colormaps["viridis"].resampled(max(2, len(cohorts)))
    for number, cohort in enumerate(cohorts):
        points = [
            (phase["phase"], one[f"epsilon_{summary['accountant']}"])
            for phase in phases
            for one in phase["cohorts"]
            if one["cohort"] == cohort
        ]
        never = cohort == "never_selected"
        axes.plot(
            *zip(*points, strict=True),
            marker="o",
            color=GREY if never else colors(number),
            linestyle=":" if never else "-",
            label="never selected" if never else f"cohort {cohort}",
        )
    target = summary["target_epsilon"]
    axes.axhline(target, color=PROMISE, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"promised: {target:g}",
        (0, target),
        xytext=(4, 4),
        textcoords="offset points",
        color=PROMISE,
        fontsize=9,
    )
    axes.set_ylabel(f"epsilon ({summary['accountant'].upper()})")
    axes.set_ylim(0, target * 1.15)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.text(
        1.0,
        -0.17,
        f"delta {summary['delta']:.3g}, adjacency {summary['adjacency']}, unit {summary['unit']}",
        transform=axes.transAxes,
        ha="right",
        fontsize=8,
        color=QUIET,
    )
    return figure


def validation_figure(phases: Sequence[Mapping[str, Any]]) -> Figure:
    """The headline figure on the validation set by the number of labels bought."""
    name, _ = headline(phases[0])
    figure, axes = _figure(f"Validation {name}")
    labels = [phase["labels"] for phase in phases]
    values = [headline(phase)[1] for phase in phases]
    axes.plot(labels, values, marker="o", color=BLUE)
    for x, y in zip(labels, values, strict=True):
        axes.annotate(
            f"{100 * y:.1f}",
            (x, y),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_xlabel("labels, up to")
    axes.set_ylabel(f"{name} (validation set, not protected)")
    axes.set_ylim(max(0.0, min(values) - 0.1), min(1.0, max(values) + 0.05))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    return figure


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold")
    axes.set_xlabel("phase")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=GRID)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
