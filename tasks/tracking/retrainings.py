"""What MLflow is told of labels that were bought between sites, and of what they were worth."""

from __future__ import annotations

from dpal.config.runtime import RuntimeConfig
from dpal.ledger.stamped_day import today_in_utc
from dpal.runs.capc_retraining import Retrained, Retraining
from tasks.boundary import task
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_notes import NOTE
from tasks.tracking.mlflow_run import FINISHED, finished_run

_PARAMETERS = (
    "vote", "mechanism", "sites", "labels", "sigma", "colluding", "absent", "records", "answers",
)  # fmt: skip


@task()
def reach_tracking_of_retraining(runtime: RuntimeConfig) -> None:
    """Finds out that MLflow does not answer before anything is asked."""
    runtime.artifacts.mkdir(parents=True, exist_ok=True)
    tell_mlflow(runtime, lambda: None, patient=False)


@task()
def track_retraining(retraining: Retraining, retrained: Retrained, dvc_hash: str) -> None:
    """Records a retraining; the same again adds nothing."""
    tell_mlflow(retraining.config.runtime, lambda: _track(retraining, retrained, dvc_hash))


def _track(retraining: Retraining, retrained: Retrained, dvc_hash: str) -> None:
    facts, folder = retrained.facts, retraining.folder
    tags = {
        "dpal.campaign": retraining.config.name,
        "dpal.retraining": retrained.digest,
        "dpal.phase": "all",
    }
    existing = find_run(tags)
    if existing is not None and existing.info.status == FINISHED:
        return
    text, page = folder.reports()
    tags |= {
        "dpal.kind": "capc",
        "dpal.plan": facts["plan"],
        "epsilon": f"{facts['promised']:g}",
        "delta": f"{facts['delta']:.6g}",
        "dvc.md5": dvc_hash,
        "dpal.state": "finished",
        NOTE: text.read_text(encoding="utf-8"),
        **prefect_tag(),
        **SOURCE,
    }
    name, day = retraining.config.name, today_in_utc().isoformat()
    with finished_run(existing, name, tags, day=day) as told:
        told.log_params({key: facts[key] for key in _PARAMETERS})
        told.log_metrics({"vote_epsilon": facts["epsilon"]})
        told.log_metrics(
            {f"test_balanced_accuracy_{key}": value for key, value in facts["figures"].items()}
        )
        told.log_files(folder.facts, text, page)
