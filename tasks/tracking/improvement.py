"""What MLflow is told of an improvement: one run, beside that of its start."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from prefect.cache_policies import NO_CACHE

from dpal.certificate.document import read_certificate
from dpal.ledger.entries import Entry
from dpal.ledger.export import ledger_table
from dpal.runs.improvement_run import Improving
from tasks.boundary import task
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_model import log_weights
from tasks.tracking.mlflow_notes import NOTE
from tasks.tracking.registry import register
from tasks.tracking.tracked_run import day_of_plan, finished_run

_UNREADABLE = ["body", "previous"]  # for machines; the exports have them


@task(cache_policy=NO_CACHE)
def reach_tracking(improving: Improving) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    improving.config.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(improving.config.runtime, lambda: None, patient=False)


@task(cache_policy=NO_CACHE)
def track_improvement(improving: Improving, dvc_hash: str) -> None:
    """Records a finished improvement, and registers its model with its certificate."""
    tell_mlflow(improving.config.runtime, lambda: _track(improving, dvc_hash))


def _track(improving: Improving, dvc_hash: str) -> None:
    text = improving.folder.certificate.read_text(encoding="utf-8")
    certificate, name = read_certificate(text), improving.config.name
    tags = {"dpal.campaign": name, "dpal.certificate": certificate["digest"], "dpal.phase": "all"}
    known = find_run(tags)
    if known is not None and known.data.tags.get("dpal.finished") == "true":
        return
    spec, target = improving.spec, improving.spec.target
    metrics = improving.folder.finished_phases()[0]
    tags |= {
        "dpal.kind": "public",
        "dpal.plan": improving.plan.digest,
        "dpal.start_from": str(spec.before.campaign or "a model's file"),
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.6g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "dvc.md5": dvc_hash,
        "dpal.state": "finished",
        NOTE: improving.folder.report.read_text(encoding="utf-8"),
        **prefect_tag(),
        **SOURCE,
    }
    entries = improving.known_entries()
    day = day_of_plan([name, spec.before.campaign], entries)
    with finished_run(known, name, tags, day=day) as run:
        run.log_params(_parameters(improving))
        figures = {key: value for key, value in metrics.items() if isinstance(value, float | int)}
        run.log_metrics(figures)
        run.log_dict(improving.certified.summary(), "plan.json")
        run.log_files(*improving.folder.reports, *improving.folder.certified)
        if improving.folder.figures.is_dir():
            run.log_folder(improving.folder.figures, "figures")
        if len(story := _ledger_table(improving, entries)):
            run.log_table_once(story, "ledger.json")
        source = improving.start.reading.data.to_extractor()
        version = register(
            certificate,
            log_weights(
                run,
                improving.files.model,
                certified=improving.folder,
                spec=spec.model,
                extractor=source,
                source=improving.public,
                class_names=improving.start.classes,
            ),
        )
        run.set_tags({"dpal.model": f"models:/dpal-{name}/{version}", "dpal.finished": "true"})


def _parameters(improving: Improving) -> dict[str, object]:
    spec = improving.spec
    choice, tuning = spec.choice, spec.fine_tuning
    return {
        **{f"choice.{key}": value for key, value in vars(choice).items()},
        **{f"fine_tuning.{key}": value for key, value in vars(tuning).items()},
        "start": spec.before.campaign or "a model's file",
        "model": spec.model.name,
        "accountant": spec.accountant.value,
    }


def _ledger_table(improving: Improving, entries: Iterable[Entry]) -> pd.DataFrame:
    """The entries of the start and of what was released since."""
    names = {improving.spec.before.campaign, improving.config.name}
    table = ledger_table(one for one in entries if one.campaign in names)
    table = table.drop(columns=_UNREADABLE)
    readable: pd.DataFrame = table.astype(object).where(table.notna(), "")
    return readable
