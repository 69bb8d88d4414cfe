"""A sweep of private voting: every method's mean and standard deviation over repetitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from dpal.reports.figures.votes import labels_figure
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.report import Table
from dpal.reports.summary import terms
from dpal.reports.sweeps import spread
from dpal.reports.vote_tables import capital
from dpal.reports.voting_report import AVERAGES, WORDS


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
    methods: Mapping[str, Mapping[str, Any]]


def sweep_tables(members: Sequence[SweptVoting]) -> list[Table]:
    """For each combination every method's averages, mean and standard deviation."""
    return [_table(key, group) for key, group in _groups(members).items()]


def sweep_figures(members: Sequence[SweptVoting], figure: str = "auc") -> dict[str, Figure]:
    """For each combination bars of one figure, label by label; none for single labels."""
    found = {}
    for key, group in _groups(members).items():
        if "labels" in group[0].methods["pate"]:
            found[_slug(key)] = _bars(key, group, figure)
    return found


def sweep_report(name: str, members: Sequence[SweptVoting], pictures: Sequence[str]) -> str:
    """Writes the sweep as Markdown."""
    first = members[0].summary
    parts = [
        f"# Sweep of private voting {name}",
        f"{capital(terms(first))}; "
        f"{first['mechanism']} voting of {first['teachers']} teachers, "
        f"{first['blocks'][0]:,} queries. Every private method is a release of its own.",
    ]
    for table in sweep_tables(members):
        parts += [f"## {table.title}", block_in_markdown(table)]
    groups = _groups(members)
    for key, group in groups.items():
        if "labels" in group[0].methods["pate"]:
            table = _labels(key, group)
            parts += [f"## {table.title}", block_in_markdown(table)]
    parts += [f"![{one}]({one})" for one in pictures]
    return "\n\n".join(parts) + "\n"


def _groups(members: Sequence[SweptVoting]) -> dict[str, list[SweptVoting]]:
    found: dict[str, list[SweptVoting]] = {}
    for one in members:
        told = ", ".join(f"{key} {value}" for key, value in one.swept.items())
        found.setdefault(told, []).append(one)
    return found


def _table(key: str, group: Sequence[SweptVoting]) -> Table:
    methods = list(group[0].methods)
    known = [one for one in AVERAGES if any(one in _averages(group[0], name) for name in methods)]
    rows = []
    for name in methods:
        epsilons = [one.methods[name]["epsilon"] for one in group if name in one.methods]
        spent = "none" if None in epsilons else f"{max(epsilons):.3f}"
        cells = [_spread([_averages(one, name).get(figure) for one in group]) for figure in known]
        if not known:
            cells = [_spread([one.methods[name]["figures"]["accuracy"] for one in group])]
        rows.append((WORDS[name], spent, *cells))
    columns = [AVERAGES[one] for one in known] or ["accuracy"]
    right = [one.metrics.get("released_right") for one in group]
    told = f"; released answers right {_spread(right)}" if None not in right else ""
    noise = group[0].summary
    title = (
        f"{key}: mean of {len(group)}; sigma {noise['sigma']:.3g}, unanimous votes turned "
        f"{noise['unanimous_turned']:.1%}{told}"
    )
    return Table(title, ("method", "epsilon", *columns), tuple(rows))


def _labels(key: str, group: Sequence[SweptVoting]) -> Table:
    methods = list(group[0].methods)
    labels = group[0].methods["pate"]["labels"]
    rows = [
        (
            label,
            f"{about['records']:.0f}",
            *(_spread([_figure(one, name, label, "auc") for one in group]) for name in methods),
        )
        for label, about in labels.items()
    ]
    columns = ("label", "with it", *(WORDS[name] for name in methods))
    return Table(f"AUC of each label, {key}", columns, tuple(rows))


def _bars(key: str, group: Sequence[SweptVoting], figure: str) -> Figure:
    labels, about = list(group[0].methods["pate"]["labels"]), group[0].summary
    values = {}
    for name in group[0].methods:
        known = ([_figure(one, name, label, figure) for one in group] for label in labels)
        sound = [[value for value in found if value is not None] for found in known]
        means = [(statistics.fmean(found) if found else math.nan, spread(found)) for found in sound]
        values[name] = (WORDS[name], means)
    return labels_figure(
        f"{AVERAGES[figure]} of each label, mean of {len(group)}, {key}",
        f"{terms(about)}; {about['teachers']} teachers, {about['blocks'][0]:,} queries, "
        f"{about['mechanism']}",
        labels,
        values,
        figure=AVERAGES[figure],
        lowest=0.3,
    )


def _averages(one: SweptVoting, name: str) -> Mapping[str, float]:
    found: Mapping[str, float] = one.methods.get(name, {}).get("averages", {})
    return found


def _figure(one: SweptVoting, name: str, label: str, figure: str) -> float | None:
    value = one.methods.get(name, {}).get("labels", {}).get(label, {}).get(figure)
    return None if value is None else float(value)


def _spread(values: Sequence[float | None]) -> str:
    sound = [value for value in values if value is not None]
    if not sound:
        return "-"
    deviation = f" ± {statistics.stdev(sound):.3f}" if len(sound) > 1 else ""
    return f"{statistics.fmean(sound):.3f}{deviation}"


def _slug(key: str) -> str:
    return "".join(one if one.isalnum() else "-" for one in key)
