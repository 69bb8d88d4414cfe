"""What MLflow is told of private voting: one run, with every method's figures."""

from __future__ import annotations

from prefect.cache_policies import NO_CACHE

from dpal.certificate.document import read_certificate
from dpal.ledger.export import ledger_table
from dpal.runs.ensemble import Ensemble
from tasks.boundary import task
from tasks.student import judgements
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_model import log_weights
from tasks.tracking.mlflow_notes import NOTE
from tasks.tracking.registry import register
from tasks.tracking.tracked_run import day_of_plan, finished_run

_UNREADABLE = ["body", "previous"]


@task(cache_policy=NO_CACHE)
def reach_tracking(ensemble: Ensemble) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    ensemble.config.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(ensemble.config.runtime, lambda: None, patient=False)


@task(cache_policy=NO_CACHE)
def track_student(ensemble: Ensemble, dvc_hash: str) -> None:
    """Records finished voting, and registers the student with its certificate."""
    tell_mlflow(ensemble.config.runtime, lambda: _track(ensemble, dvc_hash))


def _track(ensemble: Ensemble, dvc_hash: str) -> None:
    text = ensemble.folder.certificate.read_text(encoding="utf-8")
    certificate, name = read_certificate(text), ensemble.config.name
    tags = {"dpal.campaign": name, "dpal.certificate": certificate["digest"], "dpal.phase": "all"}
    known = find_run(tags)
    if known is not None and known.data.tags.get("dpal.finished") == "true":
        return
    target, spec = ensemble.spec.target, ensemble.spec
    tags |= {
        "dpal.kind": "pate",
        "dpal.plan": ensemble.certified.plan.digest,
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.6g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "dvc.md5": dvc_hash,
        "dpal.state": "finished",
        NOTE: ensemble.folder.report.read_text(encoding="utf-8"),
        **prefect_tag(),
        **SOURCE,
    }
    if ensemble.data is not None:
        tags["dpal.dataset"] = ensemble.data.dataset
    if "non_private" in judgements(ensemble):
        tags["dpal.not_private"] = "metrics non_private.* protect nobody; they are for comparing"
    with ensemble.account.ledger() as ledger:
        entries = ledger.entries()
    with finished_run(known, name, tags, day=day_of_plan([name], entries)) as run:
        run.log_params(
            {
                **{f"voting.{key}": value for key, value in vars(spec.rule).items()},
                "voting.queries": spec.blocks[0],
                "student.method": ensemble.config.student.method,
                "model": ensemble.model.name,
                "accountant": spec.kept_by.value,
            }
        )
        run.log_metrics(_figures(ensemble))
        run.log_dict(ensemble.certified.summary(), "plan.json")
        run.log_dict(judgements(ensemble), "methods.json")
        run.log_files(*ensemble.folder.reports, *ensemble.folder.certified)
        if ensemble.folder.figures.is_dir():
            run.log_folder(ensemble.folder.figures, "figures")
        table = ledger_table(entries).drop(columns=_UNREADABLE)
        run.log_table_once(table.astype(object).where(table.notna(), ""), "ledger.json")
        version = register(
            certificate,
            log_weights(
                run,
                ensemble.files.model,
                certified=ensemble.folder,
                spec=ensemble.model,
                extractor=ensemble.config.data.to_extractor(),
                source=ensemble.public,
                class_names=ensemble.class_names,
            ),
        )
        run.set_tags({"dpal.model": f"models:/dpal-{name}/{version}", "dpal.finished": "true"})


def _figures(ensemble: Ensemble) -> dict[str, float]:
    metrics = ensemble.folder.finished_phases()[0]
    found = {key: float(value) for key, value in metrics.items() if isinstance(value, float | int)}
    for method, judged in judgements(ensemble).items():
        figures = {**judged["figures"], **judged.get("averages", {})}
        found |= {f"{method}.{key}": float(value) for key, value in figures.items()}
    return found
