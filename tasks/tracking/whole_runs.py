"""What MLflow is told of a run without phases: what it spent by now, and at its end all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Run as MlflowRun

from dpal.certificate.read_and_seal import read_certificate
from dpal.ledger.entries import Entry
from dpal.ledger.export_table import ledger_table
from dpal.reports.plan_and_phase_tables import promise
from dpal.runs.released_phase import released_figures
from dpal.runs.run import Run
from dpal.runs.tracked_facts import ServedModel, Tracked
from tasks.boundary import task
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_connection import TrackingError
from tasks.tracking.mlflow_ledger import SPENT, spent_by
from tasks.tracking.mlflow_model import log_weights
from tasks.tracking.mlflow_notes import NOTE, worthless_tags
from tasks.tracking.mlflow_run import TrackedRun, day_of_plan, finished_run, open_tracked_run
from tasks.tracking.mlflow_run_status import ENDED, is_told_to_its_end, live_until_end, plan_day
from tasks.tracking.model_versions import register_version
from tasks.tracking.promotion import AUDIT_NUMBER, newest_audit

_LEDGER = "ledger.json"
_UNREADABLE = ["body", "previous"]  # for machines; the exports have them


@task()
def reach_tracking(run: Run[Any]) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    run.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(run.runtime, lambda: None, patient=False)


def whole_run_tracked(run: Run[Any]) -> AbstractContextManager[None]:
    """Within this block the run is running in MLflow, once it is there; it fails with that."""
    return live_until_end(run, lambda: _live(run))


@task()
def track_spent(run: Run[Any]) -> None:
    """Shows what was spent by now, from the hold on; a run that releases nothing has nothing yet.

    MLflow is not waited for: what it misses here, the end tells it.
    """
    with suppress(TrackingError):
        tell_mlflow(run.runtime, lambda: _track_spent(run), patient=False)


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
        f"An audit of {run.noun} `{run.name}`: its own code, attacked on public or made-up "
        f"records. It {outcome}, and charges nothing. What was attacked and measured is in "
        "`audit/` among the artifacts."
    )
    day = day_of_plan([run.name], run.known_entries())
    with finished_run(None, f"{run.name}/audit", tags, day=day) as told:
        told.log_metrics(metrics)
        told.log_folder(folder, "audit")


def _live(run: Run[Any]) -> MlflowRun | None:
    """The run that MLflow has begun to be told of, and not told to its end."""
    return find_run({**_own_tags(run), ENDED: "false"}) if run.is_held() else None


def _own_tags(run: Run[Any]) -> dict[str, str]:
    """By which a run is found whose plan is held."""
    with run.ledger() as ledger:
        identity = str(ledger.identity)
    about = {"dpal.campaign": run.name, "dpal.kind": run.kind, "dpal.plan": run.plan.digest}
    return {**about, "dpal.hold": identity, "dpal.phase": "all"}


def _promised(run: Run[Any]) -> dict[str, str]:
    target = run.plan.target
    return {
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.6g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
    }


def _track_spent(run: Run[Any]) -> None:
    spent = spent_by(run) if run.is_held() else None
    if spent is None or _is_certified_there(run):
        return
    existing, day = _live(run), plan_day(run)
    tags = {**_own_tags(run), ENDED: "false", "dpal.state": "running", **_promised(run)}
    told = open_tracked_run(existing, run.name, {**tags, **SOURCE}, day=day)
    entries = run.known_entries()
    story = _readable(entry for entry in entries if entry.campaign in _names(run))
    tables = {SPENT: spent.as_frame(), _LEDGER: story}
    promised = f"**Promised:** {promise(run.certified.summary())}."
    note = "\n\n".join([spent.line, promised, spent.in_markdown()])
    told.set_tags(
        {
            **told.log_anew(tables, spent.figure, "figures/spent.png"),
            "dpal.spent": spent.words,
            NOTE: note,
            **prefect_tag(),
        }
    )


def _is_certified_there(run: Run[Any]) -> bool:
    """Whether MLflow was told of the certificate that lies in the run's folder."""
    if not run.folder.certificate.is_file():
        return False
    document = read_certificate(run.folder.certificate.read_text(encoding="utf-8"))
    return is_told_to_its_end(find_run(_certified_tags(run, document)))


def _certified_tags(run: Run[Any], certificate: Mapping[str, Any]) -> dict[str, str]:
    about = {"dpal.campaign": run.name, "dpal.certificate": str(certificate["digest"])}
    return {**about, "dpal.phase": "all"}


def _names(run: Run[Any]) -> list[str | None]:
    """Whose entries of the ledger tell its story."""
    return [run.name, run.plan.before.campaign if run.plan.before else None]


def _track(run: Run[Any], tracked: Tracked, dvc_hash: str) -> None:
    folder, name, plan = run.folder, run.name, run.plan
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    tags = _certified_tags(run, certificate)
    existing = find_run(tags)
    if is_told_to_its_end(existing):
        return
    if run.is_held():
        existing, tags = existing or _live(run), {**tags, **_own_tags(run)}
    tags |= {
        "dpal.kind": run.kind,
        "dpal.plan": plan.digest,
        **_promised(run),
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
        note = "\n\n".join([spent.line, spent.in_markdown(), tags[NOTE]])
        tags |= {"dpal.spent": spent.words, NOTE: note}
    entries = run.known_entries()
    names = _names(run)
    with finished_run(existing, name, tags, day=day_of_plan(names, entries)) as told:
        promised = {**_promised(run), "accountant": plan.accountant.value}
        told.log_params({**promised, **tracked.parameters})
        told.log_metrics(tracked.figures)
        for file, values in {"plan.json": run.certified.summary(), **tracked.records}.items():
            told.log_dict(values, file)
        told.log_files(*folder.reports, *folder.certified)
        if folder.figures.is_dir():
            told.log_folder(folder.figures, "figures")
        story = _readable(entry for entry in entries if entry.campaign in names)
        if spent is not None:
            tables = {SPENT: spent.as_frame(), _LEDGER: story}
            told.set_tags(told.log_anew(tables, spent.figure, "figures/spent.png"))
        elif len(story):
            told.log_table_once(story, _LEDGER)
        if tracked.model is not None:
            model = register_version(run, certificate, _logged(told, run, tracked.model))
            told.set_tags({"dpal.model": model})
        told.set_tags({ENDED: "true"})


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
