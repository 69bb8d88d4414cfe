"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic import write_text
from dpal.labelers import Labeler
from dpal.reports.figures.style import save
from dpal.reports.methods import methods_table
from dpal.reports.vote_tables import cost_table
from dpal.reports.voting_report import told
from dpal.reports.voting_sweeps import SweptVoting, sweep_figures, sweep_report, sweep_tables
from dpal.runs.baselines import compare
from dpal.runs.ensemble import Ensemble
from dpal.runs.ensemble import plan_ensemble as plan
from dpal.runs.ensemble import prepare_ensemble as prepare
from dpal.runs.execute import run
from dpal.runs.results import Shown
from dpal.runs.student import (
    close_student,
    hold_ensemble,
    judgements,
    record_ensemble,
    release_labels,
    train_on_votes,
)
from dpal.runs.sweeps import RESULTS, Member, sweep_member
from dpal.runs.teachers import deal_records, train_teachers
from dpal.runs.tracked import ServedModel, Tracked
from dpal.runs.vote_account import certify_votes

__all__ = [
    "advance", "certify", "plan", "prepare", "results", "sweep_member", "tracked_of", "write_sweep",
]  # fmt: skip


def advance(ensemble: Ensemble, labeler: Labeler | None = None) -> Ensemble:
    """Holds the plan, trains teachers, releases their votes once, and lets a student learn."""
    del labeler  # the teachers are
    hold_ensemble(ensemble)
    record_ensemble(ensemble)
    deal_records(ensemble)
    train_teachers(ensemble)
    release_labels(ensemble)
    train_on_votes(ensemble)
    close_student(ensemble)
    compare(ensemble, run)
    return ensemble


def certify(ensemble: Ensemble) -> None:
    """Writes certificate.json from what the ledger holds."""
    certify_votes(ensemble.account, model=ensemble.files.model)


def results(folder: CampaignFolder) -> Shown:
    """What every method reached, and what votes cost."""
    summary = folder.read_record()["plan"]
    methods = _methods(folder)
    return [
        methods_table(methods),
        cost_table(summary),
        *told(summary, folder.finished_phases()[0], methods),
    ]


def write_sweep(
    folder: Path, finished: Sequence[Member], refused: Sequence[Mapping[str, Any]]
) -> Shown:
    """Writes results, tables and figures of a sweep: every method's mean and spread."""
    swept = [
        SweptVoting(
            name=member.config.name,
            swept=member.swept,
            summary=member.folder.read_record()["plan"],
            metrics=member.folder.finished_phases()[0],
            methods=_methods(member.folder),
        )
        for member in finished
    ]
    record = [{"name": one.name, "swept": one.swept, "metrics": one.metrics,
               "methods": one.methods} for one in swept]  # fmt: skip
    write_text(folder / RESULTS, json.dumps([*record, *refused], indent=1) + "\n")
    if not swept:
        return [f"results: {folder / RESULTS}"]
    pictures = [
        save(figure, folder / f"sweep-{key}.png").name
        for key, figure in sweep_figures(swept).items()
    ]
    write_text(folder / "sweep.md", sweep_report(folder.name, swept, pictures))
    return [*sweep_tables(swept), f"results: {folder / 'sweep.md'}"]


def _methods(folder: CampaignFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.root / "methods.json").read_text(encoding="utf-8"))
    return found


def tracked_of(ensemble: Ensemble) -> Tracked:
    """What a tracking server is told of finished voting: figures of every method."""
    spec, config, methods = ensemble.spec, ensemble.config, judgements(ensemble)
    metrics = ensemble.folder.finished_phases()[0]
    figures = {
        key: float(value) for key, value in metrics.items() if isinstance(value, float | int)
    }
    for method, judged in methods.items():
        found = {**judged["figures"], **judged.get("averages", {})}
        figures |= {f"{method}.{key}": float(value) for key, value in found.items()}
    tags = {} if ensemble.data is None else {"dpal.dataset": ensemble.data.dataset}
    if "non_private" in methods:
        tags["dpal.not_private"] = "metrics non_private.* protect nobody; they are for comparing"
    return Tracked(
        parameters={
            **{f"voting.{key}": value for key, value in vars(spec.rule).items()},
            "voting.queries": spec.blocks[0],
            "student.method": config.student.method,
            "model": ensemble.model.name,
        },
        figures=figures,
        tags=tags,
        records={"methods.json": methods},
        model=ServedModel(
            weights=ensemble.files.model,
            spec=ensemble.model,
            extractor=config.data.to_extractor(),
            source=ensemble.public,
            class_names=ensemble.class_names,
        ),
    )
