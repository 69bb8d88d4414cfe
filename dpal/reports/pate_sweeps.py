"""A sweep of private voting: every method's mean and standard deviation over repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from dpal.reports.pate_baseline_tables import (
    Methods,
    compare_methods,
    has_labels,
    labels_table,
    mean_and_spread,
    methods_comparison_table,
    methods_table,
)
from dpal.reports.plan_and_phase_tables import terms
from dpal.reports.plots.pate_baselines_by_label import labels_figure
from dpal.reports.render.markdown import blocks_in_markdown
from dpal.reports.report import Block, Table, capital
from dpal.reports.validation_figures import percent


@dataclass(frozen=True, kw_only=True)
class SweptVoting:
    """One run.

    Attributes:
      name: of its account.
      swept: values of the swept settings.
      summary: of its plan.
      metrics: of its student.
      methods: figures of every method.
    """

    name: str
    swept: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Mapping[str, Any]
    methods: Methods


def sweep_tables(members: Sequence[SweptVoting]) -> list[Table]:
    """For each combination every method's averages, and how they compare where runs repeat."""
    tables = []
    for key, group in _groups(members).items():
        compared = methods_comparison_table(*(member.methods for member in group), title=key)
        tables += [_table(key, group), *([compared] if compared.rows else [])]
    return tables


def sweep_comparison_records(members: Sequence[SweptVoting]) -> list[dict[str, Any]]:
    """How methods compare in each combination, for JSON."""
    return [
        {
            "swept": dict(group[0].swept),
            "reference": "pate",
            "comparisons": {
                name: comparison.as_record()
                for name, comparison in compare_methods(
                    *(member.methods for member in group)
                ).items()
            },
        }
        for group in _groups(members).values()
    ]


def sweep_figures(members: Sequence[SweptVoting], figure: str = "auc") -> dict[str, Figure]:
    """For each combination bars of one figure, label by label; none for single labels."""
    return {
        "".join(sign if sign.isalnum() else "-" for sign in key): labels_figure(
            *(member.methods for member in group),
            figure=figure,
            more=f", mean of {len(group)}, {key}",
            below=f"{terms(group[0].summary)}; {_rule(group[0].summary)}",
            lowest=0.3,
        )
        for key, group in _groups(members).items()
        if has_labels(group[0].methods)
    }


def voting_sweep_report(name: str, members: Sequence[SweptVoting], pictures: Sequence[str]) -> str:
    """Writes the sweep as Markdown."""
    labels = [
        labels_table(*(member.methods for member in group), figure="auc", more=f", {key}")
        for key, group in _groups(members).items()
        if has_labels(group[0].methods)
    ]
    first = members[0].summary
    about = (
        f"{capital(terms(first))}; {_rule(first)}. Every private method is a release of its own."
    )
    blocks: list[Block] = [about, *sweep_tables(members), *labels]
    return blocks_in_markdown(f"Sweep of private voting {name}", blocks, pictures)


def _rule(summary: Mapping[str, Any]) -> str:
    return (
        f"{summary['mechanism']} voting of {summary['teachers']} teachers, "
        f"{summary['blocks'][0]:,} queries"
    )


def _groups(members: Sequence[SweptVoting]) -> dict[str, list[SweptVoting]]:
    groups: dict[str, list[SweptVoting]] = {}
    for member in members:
        key = ", ".join(f"{setting} {value}" for setting, value in member.swept.items())
        groups.setdefault(key, []).append(member)
    return groups


def _table(key: str, group: Sequence[SweptVoting]) -> Table:
    right, noise = [member.metrics.get("released_right") for member in group], group[0].summary
    answers = "" if None in right else f"; released answers right {mean_and_spread(right)}"
    title = (
        f"{key}: mean of {len(group)}; sigma {noise['sigma']:.3g}, unanimous votes turned "
        f"{percent(noise['unanimous_turned'])}{answers}"
    )
    return methods_table(*(member.methods for member in group), title=title)
