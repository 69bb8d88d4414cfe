"""Where MLflow is talked to: one run a campaign, one child run a phase.

The ledger is the truth, MLflow a copy for reading. Names are listed in mlflow/README.md.
Everything here may be done again: finished runs are found by their tags and left alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from prefect import task
from prefect.cache_policies import NO_CACHE
from sqlalchemy.exc import SQLAlchemyError

from dpal.canonical import plain
from dpal.config import RuntimeConfig
from dpal.errors import DpalError
from dpal.planning.plan import Phase
from dpal.reports.plots import budget_figure, validation_figure
from tasks.certificate import certificate_in
from tasks.context import Campaign
from tasks.ledger_story import data_figure, data_metrics, data_tags, ledger_story
from tasks.logged import log_model, validation_dataset
from tasks.registry import register

EXPERIMENT = "dpal"
_LEDGER = "ledger.json"


class TrackingError(DpalError):
    """MLflow could not be reached or refused. The campaign's files and ledger are kept."""


def tracking_uri(runtime: RuntimeConfig) -> str:
    """Where runs are tracked: the configured server, or SQLite under the artifacts folder."""
    return runtime.mlflow_uri or f"sqlite:///{runtime.artifacts.resolve() / 'mlflow.sqlite'}"


@task(cache_policy=NO_CACHE)
def reach_tracking(campaign: Campaign) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    campaign.config.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    with _connected(campaign):
        pass


@task(cache_policy=NO_CACHE)
def track_phase(campaign: Campaign, phase: Phase, dvc_hash: str) -> None:
    """Records a finished phase as a child run of its campaign."""
    with _connected(campaign):
        parent = _find_or_start_campaign(campaign)
        tags = {**_campaign_tags(campaign), "dpal.phase": str(phase.index)}
        known = _find(tags)
        if known is not None and known.info.status == "FINISHED":
            return
        phases = campaign.folder.finished_phases()[: phase.index + 1]
        # The parent first: the finished child says that all of this is done.
        with mlflow.start_run(run_id=parent):
            mlflow.log_metrics(_metrics(phases[-1]), step=phase.index)
            mlflow.set_tag(f"dvc.md5.{phase.name}", dvc_hash)
        tags |= {
            "mlflow.parentRunId": parent,
            "dvc.md5": dvc_hash,
            "dvc.path": f"{campaign.config.name}/{phase.name}",
            **_head_tags(campaign, phase),
        }
        known_id = known.info.run_id if known else None
        with mlflow.start_run(run_id=known_id, run_name=phase.name, tags=tags) as run:
            mlflow.log_params(_flat(plain(phase)))
            mlflow.log_metrics(_metrics(phases[-1]))
            _log_ledger(campaign, run.info.run_id)
            figure = budget_figure(campaign.certified.summary(), phases)
            mlflow.log_figure(figure, "figures/budget.png")


@task(cache_policy=NO_CACHE)
def track_campaign(campaign: Campaign) -> str:
    """Completes the campaign's run, and registers its model; returns the run's id."""
    with _connected(campaign):
        run_id = _find_or_start_campaign(campaign)
        run = mlflow.get_run(run_id)
        if run.data.tags.get("dpal.finished") == "true":
            return run_id
        phases = campaign.folder.finished_phases()
        with mlflow.start_run(run_id=run_id):
            _log_ledger(campaign, run_id)
            summary = campaign.certified.summary()
            mlflow.log_figure(budget_figure(summary, phases), "figures/budget.png")
            mlflow.log_figure(validation_figure(phases), "figures/accuracy.png")
            mlflow.log_artifact(str(campaign.folder.report))
            mlflow.log_artifact(str(campaign.folder.certificate))
            mlflow.log_artifact(str(campaign.folder.ledger_page))
            mlflow.log_metrics(data_metrics(campaign), step=len(phases))
            if figure := data_figure(campaign):
                mlflow.log_figure(figure, "figures/dataset.png")
            mlflow.log_metric("worst_epsilon", campaign.certified.worst_epsilon)
            certificate = certificate_in(campaign)
            register(certificate, log_model(campaign))
            mlflow.set_tag("dpal.certificate", certificate["digest"])
            mlflow.set_tags(_ledger_tags(certificate["ledger"]["head"]))
            mlflow.set_tag("dpal.finished", "true")
        return run_id


@task(cache_policy=NO_CACHE)
def track_audit(campaign: Campaign, passed: bool, metrics: dict[str, float], folder: Path) -> None:
    """Records an audit as a run of its own, with its report and figure."""
    about = {"dpal.campaign": campaign.config.name, "dpal.plan": campaign.plan.digest}
    about |= {"dpal.phase": "audit", "dpal.audit": "passed" if passed else "failed"}
    with _connected(campaign), mlflow.start_run(run_name="audit", tags=about):
        mlflow.log_metrics(metrics)
        mlflow.log_artifacts(str(folder), "audit")


def _find_or_start_campaign(campaign: Campaign) -> str:
    """The id of the campaign's run, described once."""
    tags = {**_campaign_tags(campaign), "dpal.phase": "all"}
    known = _find(tags)
    if known is not None and known.data.tags.get("dpal.described") == "true":
        return str(known.info.run_id)
    spec = campaign.plan.spec
    target = spec.target
    about = {"epsilon": f"{target.epsilon:g}", "delta": f"{target.delta:.6g}"}
    about |= {"adjacency": target.adjacency.value, "unit": target.unit.value}
    known_id = known.info.run_id if known else None
    with mlflow.start_run(
        run_id=known_id, run_name=campaign.config.name, tags={**tags, **about}
    ) as run:
        mlflow.set_tags(data_tags(campaign))
        mlflow.log_metrics(data_metrics(campaign), step=0)
        mlflow.log_params(_flat(plain(spec)))
        mlflow.log_dict(campaign.certified.summary(), "plan.json")
        mlflow.log_input(validation_dataset(campaign), context="validation")
        mlflow.set_tag("dpal.described", "true")
    return str(run.info.run_id)


def _log_ledger(campaign: Campaign, run_id: str) -> None:
    """Logs the ledger so far as a table, once: `log_table` appends to what is there."""
    if any(one.path == _LEDGER for one in mlflow.artifacts.list_artifacts(run_id=run_id)):
        return
    mlflow.log_table(ledger_story(campaign), _LEDGER)


def _metrics(phase: dict[str, Any]) -> dict[str, float]:
    metrics = {
        **{name: value for name, value in phase.items() if name.startswith("validation_")},
        "labels": float(phase["labels"]),  # as planned; hidden selection may buy fewer
        "campaign_epsilon": phase["campaign_epsilon"],
    }
    for one in phase["cohorts"]:
        metrics[f"epsilon_rdp/cohort_{one['cohort']}"] = one["epsilon_rdp"]
        metrics[f"epsilon_pld/cohort_{one['cohort']}"] = one["epsilon_pld"]
    return metrics


def _campaign_tags(campaign: Campaign) -> dict[str, str]:
    with campaign.ledger() as ledger:
        identity = str(ledger.identity)
    names = {"dpal.campaign": campaign.config.name, "dpal.plan": campaign.plan.digest}
    return {**names, "dpal.hold": identity}


def _head_tags(campaign: Campaign, phase: Phase) -> dict[str, str]:
    manifest = campaign.files(phase).read_manifest() or {}
    return _ledger_tags(manifest.get("ledger_head", {}))


def _ledger_tags(head: dict[str, Any]) -> dict[str, str]:
    return {"ledger.sequence": str(head.get("sequence")), "ledger.head": str(head.get("digest"))}


def _find(tags: dict[str, str]) -> Run | None:
    query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    runs = mlflow.search_runs(
        experiment_names=[EXPERIMENT], filter_string=query, max_results=1, output_format="list"
    )
    return runs[0] if runs else None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


@contextmanager
def _connected(campaign: Campaign) -> Iterator[None]:
    """Points MLflow at the campaign's server, and says so when it does not answer."""
    runtime = campaign.config.runtime
    uri = tracking_uri(runtime)
    # A dead server should be reported in seconds; by default MLflow tries for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    try:
        mlflow.set_tracking_uri(uri)
        if mlflow.get_experiment_by_name(EXPERIMENT) is None:
            local = (runtime.artifacts.resolve() / "mlflow").as_uri()
            # A server keeps files where it was told to; a bare database needs a folder.
            mlflow.create_experiment(EXPERIMENT, None if uri.startswith("http") else local)
        mlflow.set_experiment(EXPERIMENT)
        with warnings.catch_warnings():
            # Hints about integer columns and input examples that our signatures settle.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except (MlflowException, SQLAlchemyError, ImportError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise TrackingError(
            f"MLflow at {without_password(uri)} did not take the results "
            f"({reason.replace(uri, without_password(uri))}); nothing was lost, run the same "
            "command again once it answers"
        ) from error


def without_password(uri: str) -> str:
    """The address, fit to be shown."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()
