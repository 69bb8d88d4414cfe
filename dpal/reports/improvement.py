"""The report of an improved model: what it cost, what was chosen, what it gained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpal.reports.commands import ELSEWHERE, TRUSTED
from dpal.reports.render.figures import INK, QUIET
from dpal.reports.summary import Table, promise
from dpal.reports.validation import figures_in, percent

_RIGHT, _WRONG, _UNKNOWN = "#2e9f57", "#cf3c3c", "#999999"
START = "start_"  # of the start's figures in the metrics
_ACROSS = 10  # pictures in a row, as in the paper's figure
_MOST = 100

_METHODS = {
    "random": "drawn at random; free",
    "uncertain_entropy": "those of highest entropy; free",
    "uncertain_margin": "those with the smallest gap between the two largest logits; free",
    "diverse_public": "uncertain ones, spread over clusters of their embeddings; free",
    "near_private": "uncertain ones that private records lie near to, by a noisy vote; charged",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Central:
    """The most central public record of one cluster.

    Attributes:
      image: (height, width) or (height, width, 3) pixels from 0 to 255.
      predicted: by the model before fine-tuning.
      label: that was bought; None where it is none of single classes.
    """

    image: NDArray[np.uint8]
    predicted: str
    label: str | None


def improvement_table(summary: Mapping[str, Any], metrics: Mapping[str, Any]) -> Table:
    """Figures on the validation set before and after."""
    before = figures_in(metrics, prefix=START)
    rows = [
        (name, percent(before[name]), percent(value))
        for name, value in figures_in(metrics).items()
        if name in before
    ]
    rows.append(("epsilon", f"{summary['start_epsilon']:.4f}", f"{summary['epsilon']:.4f}"))
    return Table("Before and after", ("validation", "start", "improved"), tuple(rows))


def cost_table(summary: Mapping[str, Any]) -> Table:
    """What was released about private records, and what all of it comes to."""
    rows = [("start", summary["start"] or "a model's file", f"{summary['start_epsilon']:.4f}")]
    for one in summary["releases"]:
        rows.append((one["release"], _mechanism(one), "in the total"))
    rows.append(("in all", f"delta {summary['delta']:.3g}", f"{summary['epsilon']:.4f}"))
    return Table("What private records have spent", ("release", "how", "epsilon"), tuple(rows))


def choice_table(summary: Mapping[str, Any]) -> Table:
    """Which public records will be labeled."""
    rows = [("method", str(summary["method"])), ("labels", f"{summary['labels']:,}")]
    if summary["method"] in ("diverse_public", "near_private"):
        rows.append(("most uncertain candidates", f"{summary['candidates']:,}"))
        rows.append(("uncertainty", str(summary["uncertainty"])))
        rows.append(("components of the embeddings", str(summary["components"])))
    if summary["method"] == "diverse_public":
        rows.append(("clusters x of each", f"{summary['clusters']:,} x {summary['each']:,}"))
    return Table("Public records to be labeled", ("setting", "value"), tuple(rows))


def pollution_table(metrics: Mapping[str, Any]) -> Table:
    """How many irrelevant records the choice let through."""
    return Table(
        "Irrelevant public records",
        ("of", "share"),
        (
            ("the public pool", percent(metrics["irrelevant_in_pool"])),
            ("the chosen", percent(metrics["irrelevant_chosen"])),
        ),
    )


def improvement_report(
    summary: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    figures: Sequence[str],
    certificate: str,
) -> str:
    """Writes the report as Markdown.

    Args:
      summary: of the certified plan.
      metrics: of the improvement's phase.
      figures: paths of figures, relative to the report.
      certificate: digest of the certificate.
    """
    declared = (
        " The start's own cost is declared by its makers and was checked by nobody."
        if summary["declared"]
        else ""
    )
    beyond = (
        "Beyond the start nothing was released: public records and a released model are all that "
        "was read."
        if not summary["releases"]
        else "Beyond the start two things were released, each charged before it was drawn."
    )
    parts = [
        f"# Improvement {summary['name']}",
        f"Promised, the start included: {promise(summary)}. Spent by "
        f"{summary['accountant'].upper()}, which keeps the promise: {summary['epsilon']:.4f}; "
        "second opinion (dp-accounting), for information: "
        f"{summary['epsilon_oracle']:.3f}.{declared} {beyond}",
        f"{metrics['labels']:,} public records were labeled: {_METHODS[summary['method']]}.",
    ]
    tables = [improvement_table(summary, metrics), cost_table(summary)]
    if "irrelevant_chosen" in metrics:
        tables.append(pollution_table(metrics))
    for table in tables:
        parts += [f"## {table.title}", table.markdown()]
    parts += [f"![{path}]({path})" for path in figures]
    parts += [
        "## What this does not protect",
        "Public records, their labels, the validation set and every metric computed on it. How "
        "many labels, which method and how long to train were chosen by people; what they looked "
        "at for that is not accounted for.",
        f"Plan: `{summary['plan_digest']}`. Certificate: `certificate.json`, digest "
        f"`{certificate}`; who signed it stands in `certificate.dsse.json`. Check it on any "
        f"machine (MODEL is `phase-0/model.safetensors`): `{ELSEWHERE}`. {TRUSTED}",
    ]
    return "\n\n".join(parts) + "\n"


def central_figure(examples: Sequence[Central]) -> Figure:
    """The most central public record of each cluster; green where the start was right.

    Where it was wrong the prediction stands to the left and the label to the right.

    Source: Zhao et al. (2019), Fig. 4b.
    """
    shown = list(examples)[:_MOST]
    across = min(_ACROSS, max(1, len(shown)))
    down = math.ceil(len(shown) / across)
    figure = Figure(figsize=(0.72 * across, 0.78 * down + 0.5), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, one in zip(grid.flat, shown, strict=False):
        axes.set_axis_on()
        axes.set_xticks([])
        axes.set_yticks([])
        axes.imshow(one.image, cmap="gray", vmin=0, vmax=255)
        right = one.label == one.predicted
        color = _UNKNOWN if one.label is None else _RIGHT if right else _WRONG
        for edge in axes.spines.values():
            edge.set_edgecolor(color)
            edge.set_linewidth(2)
        if one.label is not None and not right:
            axes.set_xlabel(f"{one.predicted} | {one.label}", fontsize=6, color=INK, labelpad=1)
    figure.suptitle(
        "Most central public record of each cluster (wrong ones: prediction | label)",
        fontsize=9,
        color=QUIET,
    )
    return figure


def _mechanism(one: Mapping[str, Any]) -> str:
    if one["mechanism"] == "noisy_moments":
        return f"Gaussian, noise multiplier {one['noise_multiplier']:.4g}"
    loss = one["epsilon"] * one["moved"]
    counts = "one count" if one["moved"] == 1 else "two counts"
    return f"Laplace, pure loss {loss:.4g} ({counts} a record)"
