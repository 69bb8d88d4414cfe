"""A sweep of runs as numbers: means and standard deviations over repetitions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.improvement_report import START
from dpal.reports.render.markdown import blocks_in_markdown
from dpal.reports.report import Block, Table, table
from dpal.reports.summary import terms
from dpal.reports.validation_figures import figures_in, headline, percent


@dataclass(frozen=True, kw_only=True)
class Point:
    """What the repetitions of one combination reached.

    Attributes:
      x: value of the first swept setting.
      line: values of the others, for the legend; empty where only one is swept.
      figure: name of the headline figure.
      reached: of each repetition.
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
            groups.setdefault(tuple(record["swept"][key] for key in keys), []).append(record)
    points = []
    for (x, *others), runs in groups.items():
        named_figures = bool(figures_in(runs[0]))
        name = headline(runs[0])[0] if named_figures else ""
        # A word says what it is; a number needs its setting's name.
        named = [
            value if isinstance(value, str) else f"{_short(key)} {value}"
            for key, value in zip(keys[1:], others, strict=True)
        ]
        points.append(
            Point(
                x=x,
                line=", ".join(named),
                figure=name,
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


def points_table(points: Sequence[Point], keys: Sequence[str]) -> Table:
    """Means and standard deviations, one row a combination."""
    polluted = any(point.irrelevant for point in points)
    started = any(point.start for point in points)
    rows = (
        {
            _short(keys[0]): point.x,
            **({"of": point.line} if len(keys) > 1 else {}),
            "runs": point.runs,
            **({"start": _with_spread(point.start)} if started else {}),
            points[0].figure or "reached": _with_spread(point.reached),
            **({"epsilon of start": f"{point.start_epsilon:.3f}"} if started else {}),
            "in all" if started else "epsilon": f"{point.epsilon:.3f}",
            **({"irrelevant chosen": _with_spread(point.irrelevant)} if polluted else {}),
        }
        for point in points
    )
    return table("Mean ± standard deviation over runs", rows, _short(keys[0]))


def sweep_report(
    points: Sequence[Point], records: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> str:
    """The sweep as Markdown."""
    blocks: list[Block] = [points_table(points, keys)]
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


def _with_spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    more = f" ± {100 * spread(values):.2f}" if len(values) > 1 else ""
    return f"{percent(statistics.fmean(values))}{more}"


def _short(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")
