"""Where MLflow is talked to: one run a campaign, one child run a phase.

The ledger is the truth, MLflow a copy for reading. Names are listed in mlflow/README.md.
Everything here may be done again: finished runs are found by their tags and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import mlflow
from mlflow.entities import Run
from prefect import task
from prefect.cache_policies import NO_CACHE

from dpal.canonical import plain
from dpal.planning.plan import Phase
from dpal.reports.plots import budget_figure, validation_figure
from tasks.certificate import certificate_in
from tasks.context import Campaign
from tasks.experiment import EXPERIMENT as EXPERIMENT
from tasks.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.ledger_story import data_figure, data_metrics, data_tags, ledger_story
from tasks.logged import log_model, validation_dataset
from tasks.mlflow_server import TrackingError as TrackingError
from tasks.mlflow_server import tracking_uri as tracking_uri
from tasks.mlflow_server import watched as watched
from tasks.mlflow_server import without_password as without_password
from tasks.registry import register
from tasks.tracking_words import (
    NOTE,
    RUNS_VIEW,
    campaign_note,
    campaign_parameters,
    phase_note,
    phase_parameters,
    state_in_words,
)
from tasks.versioning import restore_command

T = TypeVar("T")

_LEDGER = "ledger.json"


@task(cache_policy=NO_CACHE)
def reach_tracking(campaign: Campaign) -> None:
    """Finds out that MLflow does not answer before anything is spent."""
    campaign.config.runtime.artifacts.mkdir(parents=True, exist_ok=True)
    _tell(campaign, lambda: None, patient=False)


@task(cache_policy=NO_CACHE)
def track_phase(campaign: Campaign, phase: Phase, dvc_hash: str) -> None:
    """Records a finished phase as a child run of its campaign."""
    _tell(campaign, lambda: _track_phase(campaign, phase, dvc_hash))


@task(cache_policy=NO_CACHE)
def track_campaign(campaign: Campaign) -> str:
    """Completes the campaign's run, and registers its model; returns the run's id."""
    return _tell(campaign, lambda: _track_campaign(campaign))


@task(cache_policy=NO_CACHE)
def track_audit(campaign: Campaign, passed: bool, metrics: dict[str, float], folder: Path) -> None:
    """Records an audit as a run of its own, with its report and figure."""
    _tell(campaign, lambda: _track_audit(campaign, passed, metrics, folder))


def campaign_address(campaign: Campaign) -> str:
    """Where a person opens the campaign's run: its page, or the command that shows the file."""
    uri = tracking_uri(campaign.config.runtime)
    if not uri.startswith("http"):
        return f"mlflow ui --backend-store-uri {without_password(uri)}"
    try:
        run = _tell(campaign, lambda: _campaign_run(campaign), patient=False)
    except TrackingError:
        run = None
    page = f"/{run.info.experiment_id}/runs/{run.info.run_id}" if run else ""
    return f"{without_password(uri).rstrip('/')}/#/experiments{page}{RUNS_VIEW}"


def _campaign_run(campaign: Campaign) -> Run | None:
    return find_run({**_campaign_tags(campaign), "dpal.phase": "all"})


def _track_phase(campaign: Campaign, phase: Phase, dvc_hash: str) -> None:
    parent = _find_or_start_campaign(campaign)
    tags = {**_campaign_tags(campaign), "dpal.phase": str(phase.index)}
    known = find_run(tags)
    if known is not None and known.info.status == "FINISHED":
        return
    phases = campaign.folder.finished_phases()[: phase.index + 1]
    finished_at = int(campaign.files(phase).manifest.stat().st_mtime * 1000)
    # The parent first: the finished child says that all of this is done.
    with _left_open(run_id=parent):
        # The same point in time, so that telling it again adds no second point.
        mlflow.log_metrics(_metrics(phases[-1]), step=phase.index, timestamp=finished_at)
        state = state_in_words(len(phases), len(campaign.plan.phases), finished=False)
        mlflow.set_tags(
            {
                f"dvc.md5.{phase.name}": dvc_hash,
                "dpal.state": state,
                NOTE: campaign_note(campaign, finished=False),
                **prefect_tag(),
            }
        )
    tags |= {
        "mlflow.parentRunId": parent,
        "dvc.md5": dvc_hash,
        "dvc.path": f"{campaign.config.name}/{phase.name}",
        "dvc.restore": restore_command(campaign.folder.root, phase.index, dvc_hash),
        NOTE: phase_note(campaign, phase, dvc_hash, phases[-1]),
        **_head_tags(campaign, phase),
        **prefect_tag(),
        **SOURCE,
    }
    known_id = known.info.run_id if known else None
    name = f"{campaign.config.name}/{phase.name}"
    with mlflow.start_run(run_id=known_id, run_name=name, tags=tags) as run:
        mlflow.log_params(phase_parameters(phase))
        mlflow.log_metrics(_metrics(phases[-1]), timestamp=finished_at)
        mlflow.log_dict(plain(phase), "phase.json")
        _log_ledger(campaign, run.info.run_id)
        figure = budget_figure(campaign.certified.summary(), phases)
        mlflow.log_figure(figure, "figures/budget.png")


def _track_campaign(campaign: Campaign) -> str:
    run_id = _find_or_start_campaign(campaign)
    run = mlflow.get_run(run_id)
    if run.data.tags.get("dpal.finished") == "true":
        return run_id
    phases = campaign.folder.finished_phases()
    finished_at = int(campaign.folder.certificate.stat().st_mtime * 1000)
    with mlflow.start_run(run_id=run_id):
        _log_ledger(campaign, run_id)
        summary = campaign.certified.summary()
        mlflow.log_figure(budget_figure(summary, phases), "figures/budget.png")
        mlflow.log_figure(validation_figure(phases), "figures/accuracy.png")
        for path in (
            campaign.folder.report,
            campaign.folder.report_page,
            campaign.folder.certificate,
            campaign.folder.ledger_page,
        ):
            mlflow.log_artifact(str(path))
        last = {**data_metrics(campaign), "worst_epsilon": campaign.certified.worst_epsilon}
        mlflow.log_metrics(last, step=len(phases), timestamp=finished_at)
        if figure := data_figure(campaign):
            mlflow.log_figure(figure, "figures/dataset.png")
        certificate = certificate_in(campaign)
        version = register(certificate, log_model(campaign))
        mlflow.set_tags(
            {
                "dpal.certificate": certificate["digest"],
                "dpal.model": f"models:/dpal-{campaign.config.name}/{version}",
                "dpal.state": state_in_words(len(phases), len(phases), finished=True),
                NOTE: campaign_note(campaign, finished=True),
                **_ledger_tags(certificate["ledger"]["head"]),
                **prefect_tag(),
                "dpal.finished": "true",
            }
        )
    return run_id


def _track_audit(campaign: Campaign, passed: bool, metrics: dict[str, float], folder: Path) -> None:
    about = {"dpal.campaign": campaign.config.name, "dpal.plan": campaign.plan.digest}
    outcome = "passed" if passed else "failed"
    about |= {"dpal.phase": "audit", "dpal.audit": outcome, "dpal.state": f"audit {outcome}"}
    name = f"{campaign.config.name}/audit"
    with mlflow.start_run(run_name=name, tags={**about, **prefect_tag(), **SOURCE}):
        mlflow.log_metrics(metrics)
        mlflow.log_artifacts(str(folder), "audit")


def _find_or_start_campaign(campaign: Campaign) -> str:
    """The id of the campaign's run, described once."""
    tags = {**_campaign_tags(campaign), "dpal.phase": "all"}
    known = find_run(tags)
    if known is not None and known.data.tags.get("dpal.described") == "true":
        return str(known.info.run_id)
    spec, total = campaign.plan.spec, len(campaign.plan.phases)
    target = spec.target
    about = {"epsilon": f"{target.epsilon:g}", "delta": f"{target.delta:.6g}"}
    about |= {"adjacency": target.adjacency.value, "unit": target.unit.value}
    about |= {"dpal.state": state_in_words(0, total, finished=False)}
    known_id = known.info.run_id if known else None
    tags |= {**about, **SOURCE, NOTE: campaign_note(campaign, finished=False)}
    with _left_open(run_id=known_id, run_name=campaign.config.name, tags=tags) as run:
        mlflow.set_tags(data_tags(campaign))
        mlflow.log_metrics(data_metrics(campaign), step=0)
        mlflow.log_params(campaign_parameters(spec))
        mlflow.log_dict({**campaign.certified.summary(), "spec": plain(spec)}, "plan.json")
        mlflow.log_input(validation_dataset(campaign), context="validation")
        mlflow.set_tag("dpal.described", "true")
    return str(run.info.run_id)


@contextmanager
def _left_open(**about: Any) -> Iterator[Run]:
    """A run that goes on after the block: a campaign lives for weeks."""
    with mlflow.start_run(**about) as run:
        yield run
    mlflow.MlflowClient().update_run(run.info.run_id, status="RUNNING")


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


def _tell(campaign: Campaign, tell: Callable[[], T], *, patient: bool = True) -> T:
    """Tells the campaign's server something, within the experiment."""
    return tell_mlflow(campaign.config.runtime, tell, patient=patient)
