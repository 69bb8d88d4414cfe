"""What rehearsals come to: means, intervals, and which way of selecting is better than which."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dpal.reports.intervals import TITLE, TOGETHER, mean_in_percent
from dpal.reports.report import Table
from dpal.reports.validation_figures import headline
from dpal.simulation.paired_comparison import (
    PairedComparison,
    compare_with_reference,
    estimate_mean,
)
from dpal.simulation.rehearsal import RehearsalMethod

Records = Sequence[Mapping[str, Any]]  # of `flows.cli.run_rehearsals.run_rehearsals`

WHOLE = "whole validation file"  # what rehearsals were judged on before it was divided


def reference_of(records: Records) -> str:
    """The way that the others are compared with: random selection, or the first there is."""
    methods = [str(record["method"]) for record in records]
    return RehearsalMethod.RANDOM.value if RehearsalMethod.RANDOM in methods else methods[0]


def last_figures(records: Records) -> dict[str, dict[int, float]]:
    """The headline figure after the last phase, in [0, 1], by way and run."""
    reached: dict[str, dict[int, float]] = {}
    for record in records:
        value = headline(record["phases"][-1], prefix="")[1]
        reached.setdefault(record["method"], {})[record["run"]] = value
    return reached


def compare_rehearsals(records: Records) -> dict[str, PairedComparison]:
    """Every other way beside the reference, run by run."""
    return compare_with_reference(last_figures(records), reference_of(records))


def rehearsal_summary(records: Records) -> dict[str, Any]:
    """Everything for JSON: what was judged, by which records, and every run.

    Args:
      records: at least one.
    """
    return {
        "judged_on": records[0].get("judged_on", WHOLE),
        "judged_records": records[0].get("judged_records"),
        "figure": headline(records[0]["phases"][-1], prefix="")[0],
        "methods": {
            method: asdict(estimate_mean(list(runs.values())))
            for method, runs in last_figures(records).items()
        },
        "reference": reference_of(records),
        "comparisons": {
            method: comparison.as_record()
            for method, comparison in compare_rehearsals(records).items()
        },
        "records": list(records),
    }


def rehearsal_table(records: Records) -> Table:
    """The last headline figure by way of selecting, and who was found."""
    rows = []
    for method, reached in last_figures(records).items():
        runs = [record for record in records if record["method"] == method]
        hits = [
            f"{statistics.mean(phase['quality']['hits'] for phase in phases):.2f}"
            for phases in zip(*(run["phases"][1:] for run in runs), strict=True)
            if phases[0]["quality"] is not None  # all that are left are no selection
        ]
        rows.append(
            (
                _named(method),
                mean_in_percent(list(reached.values())),
                str(len(runs)),
                f"{statistics.mean(run['phases'][-1]['labels'] for run in runs):,.0f}",
                f"{statistics.mean(run['epsilon'] for run in runs):.2f}",
                f"{statistics.mean(run['noise_multiplier'] for run in runs):.2f}",
                f"{statistics.mean(run['steps'] for run in runs):,.0f}",
                " / ".join(hits),
            )
        )
    name, _ = headline(records[0]["phases"][-1], prefix="")
    columns = ("selection", f"{name} %", "runs", "labels", "epsilon", "noise", "steps",
               "hits in the true top k, by query")  # fmt: skip
    judged = records[0].get("judged_on", WHOLE)
    title = f"Rehearsal on public data, judged on: {judged}; {TITLE}"
    return Table(title, columns, tuple(rows))


def rehearsal_comparison_table(records: Records) -> Table:
    """Every other way beside the reference, in words; empty where one way was rehearsed."""
    reference = reference_of(records)
    rows = tuple(
        (_named(method), comparison.in_words(), str(comparison.pairs))
        for method, comparison in compare_rehearsals(records).items()
    )
    return Table(f"Beside {reference}, run by run; {TOGETHER}", ("selection", "last phase", "runs"),
                 rows)  # fmt: skip


def _named(method: str) -> str:
    return f"{method} (NOT PRIVATE selection)" if method == RehearsalMethod.EXACT else method
