"""What MLflow is told of a run that is told of as a whole, once it is finished."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from dpal.certificate.read_and_seal import read_certificate
from dpal.ledger.entries import Entry
from dpal.ledger.entries_table import ledger_table
from dpal.runs.released_phase import released_figures
from dpal.runs.run import Run
from dpal.runs.tracked_facts import ServedModel, Tracked
from tasks.boundary import task
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_ledger import SPENT, spent_by
from tasks.tracking.mlflow_model import log_weights
from tasks.tracking.mlflow_notes import NOTE, worthless_tags
from tasks.tracking.mlflow_run import TrackedRun, day_of_plan, finished_run
from tasks.tracking.model_versions import register_version
from tasks.tracking.promotion import AUDIT_NUMBER, newest_audit

_UNREADABLE = ["body", "previous"]  # for machines; the exports have them


@task()
def reach_tracking(run: Run[Any]) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    run.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(run.runtime, lambda: None, patient=False)


@task()
def track_finished(run: Run[Any], tracked: Tracked, dvc_hash: str) -> None:
    """Records a finished run, and registers its model with its certificate."""
    tell_mlflow(run.runtime, lambda: _track(run, tracked, dvc_hash))


@task()
def track_audit(run: Run[Any], passed: bool, metrics: dict[str, float], folder: Path) -> None:
    """Records an audit as a run of its own, with its report and figure."""
    tell_mlflow(run.runtime, lambda: _track_audit(run, passed, metrics, folder))


def _track_audit(run: Run[Any], passed: bool, metrics: dict[str, float], folder: Path) -> None:
    about = {"dpal.campaign": run.name, "dpal.plan": run.plan.digest, "dpal.phase": "audit"}
    outcome = "passed" if passed else "failed"
    tags = {**about, AUDIT_NUMBER: str(newest_audit(about) + 1)}
    tags |= {"dpal.audit": outcome, "dpal.state": f"audit {outcome}", **prefect_tag(), **SOURCE}
    tags[NOTE] = (
        f"An audit of {run.noun} `{run.name}`: its own code, attacked on made-up records. It "
        f"{outcome}, and charges nothing. What was attacked and measured is in `audit/` among the "
        "artifacts."
    )
    day = day_of_plan([run.name], run.known_entries())
    with finished_run(None, f"{run.name}/audit", tags, day=day) as told:
        told.log_metrics(metrics)
        told.log_folder(folder, "audit")


def _track(run: Run[Any], tracked: Tracked, dvc_hash: str) -> None:
    folder, name, plan = run.folder, run.name, run.plan
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    tags = {"dpal.campaign": name, "dpal.certificate": certificate["digest"], "dpal.phase": "all"}
    existing = find_run(tags)
    if existing is not None and existing.data.tags.get("dpal.finished") == "true":
        return
    tags |= {
        "dpal.kind": run.kind,
        "dpal.plan": plan.digest,
        "epsilon": f"{plan.target.epsilon:g}",
        "delta": f"{plan.target.delta:.6g}",
        "adjacency": plan.target.adjacency.value,
        "unit": plan.target.unit.value,
        "dvc.md5": dvc_hash,
        "dpal.state": "finished",
        NOTE: folder.report.read_text(encoding="utf-8"),
        **worthless_tags(released_figures(folder)),
        **tracked.tags,
        **prefect_tag(),
        **SOURCE,
    }
    spent = spent_by(run)
    if spent is not None:
        tags |= {"dpal.spent": spent.words, NOTE: f"{spent.in_markdown()}\n\n{tags[NOTE]}"}
    entries = run.known_entries()
    names = [name, plan.before.campaign if plan.before else None]
    with finished_run(existing, name, tags, day=day_of_plan(names, entries)) as told:
        told.log_params({**tracked.parameters, "accountant": plan.accountant.value})
        told.log_metrics(tracked.figures)
        for file, values in {"plan.json": run.certified.summary(), **tracked.records}.items():
            told.log_dict(values, file)
        told.log_files(*folder.reports, *folder.certified)
        if folder.figures.is_dir():
            told.log_folder(folder.figures, "figures")
        story = _readable(entry for entry in entries if entry.campaign in names)
        if spent is not None:
            tables = {SPENT: spent.as_frame(), "ledger.json": story}
            told.set_tags(told.log_anew(tables, spent.figure, "figures/spent.png"))
        elif len(story):
            told.log_table_once(story, "ledger.json")
        if tracked.model is not None:
            model = register_version(run, certificate, _logged(told, run, tracked.model))
            told.set_tags({"dpal.model": model})
        told.set_tags({"dpal.finished": "true"})


def _logged(told: TrackedRun, run: Run[Any], model: ServedModel) -> str:
    return log_weights(
        told,
        model.weights,
        certified=run.folder,
        spec=model.spec,
        extractor=model.extractor,
        source=model.source,
        class_names=model.class_names,
    )


def _readable(entries: Iterable[Entry]) -> pd.DataFrame:
    """Entries of the ledger, as a person reads them."""
    table = ledger_table(entries).drop(columns=_UNREADABLE)
    return table.astype(object).where(table.notna(), "")
