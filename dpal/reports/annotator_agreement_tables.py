"""How people labeled, query by query: confidential tables, for the terminal of who runs it."""

from __future__ import annotations

from collections.abc import Mapping

from dpal.labeling.labeling_figures import LabelingFigures
from dpal.reports.report import Table, table
from dpal.reports.validation_figures import percent

_UNKNOWN = "-"


def agreement_table(queries: Mapping[str, LabelingFigures]) -> Table:
    """How often people agreed about each query, and what they left without a label.

    Args:
      queries: figures by the name of the query's phase.
    """
    rows = (
        {
            "query": name,
            "records": f"{figures.records:,}",
            "no label": _reasons(figures),
            "people": f"{figures.annotators:,}",
            "all agree": _percent(figures.unanimous),
            "of pairs": _percent(figures.pairwise),
            "kappa": _decimals(figures.kappa, 2),
        }
        for name, figures in queries.items()
    )
    return table("How often people agreed (confidential)", rows)


def label_time_table(queries: Mapping[str, LabelingFigures]) -> Table:
    """How long labels of each query took, where that is known.

    Args:
      queries: figures by the name of the query's phase.
    """
    rows = (
        {
            "query": name,
            "timed": f"{figures.timed:,}",
            "median, s": _decimals(figures.median_seconds, 1),
            "90 % within, s": _decimals(figures.slow_seconds, 1),
            "labels an hour": _decimals(figures.labels_per_hour, 0),
        }
        for name, figures in queries.items()
        if figures.timed
    )
    return table("How long a label took (confidential)", rows)


def labeling_is_kept(name: str) -> str:
    """Why a report says nothing of it, and who may look.

    Args:
      name: of the run.
    """
    return (
        "How often annotators agreed, how many records they left without a label, and how long "
        "they took is kept beside the labels and left out here: it follows, without noise, from "
        "who was selected and what their records hold. Whoever runs the labeling sees it by "
        f"`dpal label {name} --agreement`."
    )


def _reasons(figures: LabelingFigures) -> str:
    said = ", ".join(f"{count:,} {reason}" for reason, count in figures.unlabeled.items())
    return said or "0"


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else percent(share)


def _decimals(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"
