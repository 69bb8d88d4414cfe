"""A sweep of runs as numbers: means over repetitions, their intervals, and what differs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpal.planning.campaign_spec import Acquisition
from dpal.reports.improvement_report import START
from dpal.reports.intervals import TITLE, TOGETHER, mean_in_percent
from dpal.reports.plan_and_phase_tables import terms
from dpal.reports.render.markdown import blocks_in_markdown
from dpal.reports.report import Block, Table, capital, swept_value, table
from dpal.reports.validation_figures import figures_in, headline
from dpal.simulation.paired_comparison import (
    PairedComparison,
    compare_with_reference,
    estimate_mean,
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """What the repetitions of one combination reached.

    Attributes:
      x: value of the first swept setting; of a list its text.
      line: values of the others, for the legend; empty where only one is swept.
      figure: name of the headline figure.
      repeated: the repetition that each run is, as text; the same for runs that share seeds.
      reached: of each run, in the order of `repeated`.
      start: the same of the models they started from; empty where they started from none.
      epsilon: largest total of them.
      start_epsilon: largest cost of the starts.
      runs: how many were averaged.
      irrelevant: share of irrelevant records among the chosen of each; empty where unknown.
      promise: epsilon, delta, adjacency and unit.
    """

    x: Any
    line: str
    figure: str
    repeated: tuple[str, ...]
    reached: tuple[float, ...]
    start: tuple[float, ...]
    epsilon: float
    start_epsilon: float
    runs: int
    irrelevant: tuple[float, ...]
    promise: Mapping[str, Any]


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 where one value has none."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def points_of(records: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[Point]:
    """Averages the records of a sweep that differ in repetition only.

    Args:
      records: of all runs; refused ones are left out.
      keys: the swept settings, the horizontal axis first.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        if not record.get("refused"):
            values = tuple(swept_value(record["swept"][key]) for key in keys)
            groups.setdefault(values, []).append(record)
    points = []
    for (x, *others), runs in groups.items():
        named_figures = bool(figures_in(runs[0]))
        name = headline(runs[0])[0] if named_figures else ""
        named = [_named(key, value) for key, value in zip(keys[1:], others, strict=True)]
        points.append(
            Point(
                x=x,
                line=", ".join(named),
                figure=name,
                repeated=tuple(json.dumps(run["repeated"], sort_keys=True) for run in runs),
                reached=tuple(headline(run)[1] for run in runs if named_figures),
                start=tuple(
                    headline(run, prefix=START)[1] for run in runs if figures_in(run, prefix=START)
                ),
                epsilon=max(run["campaign_epsilon"] for run in runs),
                start_epsilon=max(run.get("start_epsilon", 0.0) for run in runs),
                runs=len(runs),
                irrelevant=tuple(
                    run["irrelevant_chosen"] for run in runs if "irrelevant_chosen" in run
                ),
                promise=runs[0],
            )
        )
    return points


def compare_points(
    points: Sequence[Point], keys: Sequence[str]
) -> dict[tuple[Any, str], PairedComparison]:
    """Each combination beside its reference, repetition by repetition, by its x and line.

    Where several settings are swept, lines are compared at each x; where one is, its values. The
    reference is `random`, or the first there is; an x where it was refused has no comparison.
    Comparisons with one reference at one x hold together.
    """
    compared: dict[tuple[Any, str], PairedComparison] = {}
    several = len(keys) > 1
    reference = _reference([_way(point, keys) for point in points])
    for x in dict.fromkeys(point.x for point in points) if several else [None]:
        group = [point for point in points if point.reached and (point.x == x or not several)]
        figures = {_way(point, keys): _by_repetition(point) for point in group}
        if reference not in figures:
            continue
        comparisons = compare_with_reference(figures, reference)
        for point in group:
            if comparison := comparisons.get(_way(point, keys)):
                compared[point.x, point.line] = comparison
    return compared


def comparison_records(points: Sequence[Point], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Means, intervals and comparisons of a sweep for JSON, one a combination with figures."""
    compared = compare_points(points, keys)
    return [
        {
            _short(keys[0]): point.x,
            "line": point.line,
            "figure": point.figure,
            **asdict(estimate_mean(point.reached)),
            "beside_reference": compared[point.x, point.line].as_record()
            if (point.x, point.line) in compared
            else None,
        }
        for point in points
        if point.reached
    ]


def points_table(points: Sequence[Point], keys: Sequence[str]) -> Table:
    """Means and confidence intervals, one row a combination."""
    polluted = any(point.irrelevant for point in points)
    started = any(point.start for point in points)
    rows = (
        {
            _short(keys[0]): point.x,
            **({"of": point.line} if len(keys) > 1 else {}),
            "runs": point.runs,
            **({"start": _with_interval(point.start)} if started else {}),
            points[0].figure or "reached": _with_interval(point.reached),
            **({"epsilon of start": f"{point.start_epsilon:.4f}"} if started else {}),
            "in all" if started else "epsilon": f"{point.epsilon:.4f}",
            **({"irrelevant chosen": _with_interval(point.irrelevant)} if polluted else {}),
        }
        for point in points
    )
    return table(capital(TITLE), rows, _short(keys[0]))


def sweep_comparison_table(points: Sequence[Point], keys: Sequence[str]) -> Table:
    """What differs beyond noise, in words; empty where nothing was repeated or compared."""
    compared = compare_points(points, keys)
    rows = (
        {
            _short(keys[0]): point.x,
            **({"of": point.line} if len(keys) > 1 else {}),
            "difference": comparison.in_words(),
            "runs": comparison.pairs,
        }
        for point in points
        if (comparison := compared.get((point.x, point.line))) and comparison.pairs > 1
    )
    reference = _reference([_way(point, keys) for point in points])
    title = f"Beside {reference}, repetition by repetition; of one reference, {TOGETHER}"
    return table(title, rows, _short(keys[0]))


def sweep_report(
    points: Sequence[Point], records: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> str:
    """The sweep as Markdown."""
    blocks: list[Block] = [points_table(points, keys)]
    if (comparisons := sweep_comparison_table(points, keys)).rows:
        blocks.append(comparisons)
    if points:
        start = ", the start included" if points[0].start else ""
        most = max(point.promise["target_epsilon"] for point in points)
        blocks.append(
            f"Promised: epsilon up to {most:g} at {terms(points[0].promise)}{start}; "
            "each run has a certificate of its own. Where several were run on the same records, "
            "what they cost adds up."
        )
    refused = (record for record in records if record.get("refused"))
    blocks += [f"Not run: {record['swept']}: {record['refused']}" for record in refused]
    return blocks_in_markdown(
        "Sweep", blocks, ["sweep.png"] if any(point.reached for point in points) else []
    )


def _way(point: Point, keys: Sequence[str]) -> str:
    if len(keys) > 1:
        return point.line
    return _named(keys[0], point.x)


def _named(key: str, value: Any) -> str:
    """A word, which says what it is; a number or a list after its setting's name."""
    says_itself = isinstance(value, str) and not value.startswith(("[", "{"))
    return value if says_itself else f"{_short(key)} {value}"


def _by_repetition(point: Point) -> dict[str, float]:
    return dict(zip(point.repeated, point.reached, strict=True))


def _reference(ways: Collection[str]) -> str:
    random = Acquisition.RANDOM.value
    return random if random in ways else next(iter(ways), "")


def _with_interval(values: Sequence[float]) -> str:
    return f"{mean_in_percent(values, digits=2)} %" if values else "-"


def _short(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")
