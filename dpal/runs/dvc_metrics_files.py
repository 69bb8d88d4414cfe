"""A run as files that experiment trackers read: figures in `metrics.json`, phases in `phases.csv`.

For DVC, whose `dvc exp show`, `dvc metrics diff` and `dvc plots` compare them between commits and
experiments. All that is in them was released.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.reports.plots.campaign import budget_figure, validation_figure
from dpal.reports.plots.style import save
from dpal.reports.validation_figures import figures_of_all, headline
from dpal.runs.kinds import RunKind, recorded_kind
from dpal.runs.released_phase import released_phase
from dpal.runs.run_facts import read_run_certificate

METRICS, PHASES = "metrics.json", "phases.csv"
# Pictures of the same: the page that DVC makes draws nothing of a table where there is no internet.
REACHED, SPENT = "validation.png", "epsilon.png"


def experiment_pictures(kind: RunKind) -> tuple[str, ...]:
    """Which pictures there are of a run; epsilons are drawn by cohort."""
    return (REACHED, SPENT) if kind.by_cohort else (REACHED,)


def write_experiment_files(folder: CampaignFolder, to: Path) -> tuple[Path, ...]:
    """Writes what a run promised, spent and reached, and how it came there phase by phase.

    Args:
      folder: of a run of any kind.
      to: a folder; made if need be.

    Returns:
      Where the figures, the phases and pictures of them are.

    Raises:
      DataError: no phase is finished yet.
    """
    phases = folder.finished_phases()
    if not phases:
        raise DataError(
            f"{recorded_kind(folder).in_titles} {folder.name} has no finished phase yet, so there "
            "are no figures to write; continue it with `dpal run`"
        )
    to.mkdir(parents=True, exist_ok=True)
    write_text(to / METRICS, json.dumps(_figures(folder, phases), indent=2) + "\n")
    write_text(to / PHASES, _table(phases))
    summary, pictures = folder.read_record()["plan"], experiment_pictures(recorded_kind(folder))
    save(validation_figure(phases, summary["unit"]), to / REACHED)
    if SPENT in pictures:
        save(budget_figure(summary, phases), to / SPENT)
    return to / METRICS, to / PHASES, *(to / name for name in pictures)


def _figures(folder: CampaignFolder, phases: list[dict[str, Any]]) -> dict[str, Any]:
    summary, reached = folder.read_record()["plan"], phases[released_phase(folder)]
    return {
        "epsilon": {
            "spent": _spent(folder, summary, phases[-1]),
            "promised": summary["target_epsilon"],
            "delta": summary["delta"],
            "adjacency": summary["adjacency"],
            "unit": summary["unit"],
        },
        "labels": phases[-1].get("labels"),
        "released_phase": released_phase(folder),
        "validation": figures_of_all(reached),
    }


def _spent(
    folder: CampaignFolder, summary: Mapping[str, Any], last: Mapping[str, Any]
) -> float | None:
    """What the certificate adds up; so far, by the last phase, where there is none yet."""
    if folder.certificate.is_file():
        return float(read_run_certificate(folder)["epsilon"][summary["accountant"]])
    return last.get("campaign_epsilon")


def _table(phases: list[dict[str, Any]]) -> str:
    """One row a phase, for curves; `validation` is the headline figure."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["phase", "labels", "epsilon", "validation"])
    for number, phase in enumerate(phases):
        rows.writerow(
            [
                phase.get("phase", number),
                phase.get("labels", ""),
                phase.get("campaign_epsilon", ""),
                headline(phase)[1],
            ]
        )
    return text.getvalue()
