"""Where MLflow is talked to: one run a campaign, one child run a phase.

The ledger is the truth, MLflow a copy for reading. Names are listed in mlflow/README.md.
Everything here may be done again: finished runs are found by their tags and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from mlflow.entities import Run
from prefect.cache_policies import NO_CACHE

from dpal.canonical import plain
from dpal.files.dvc_pointers import restore_command
from dpal.planning.campaign_plan import Phase
from dpal.reports.plots.campaign import budget_figure, validation_figure
from dpal.reports.validation_figures import against_best_before, tracked_figures
from dpal.runs.campaign import Campaign
from dpal.runs.released_phase import reached, released_phase
from dpal.runs.search_choice import optimizer_of
from dpal.runs.tracked_facts import campaign_parameters, phase_parameters
from dpal.runs.write_certificate import certificate_in
from tasks.boundary import task
from tasks.tracking.experiment import EXPERIMENT as EXPERIMENT
from tasks.tracking.experiment import SOURCE, find_run, prefect_tag, tell_mlflow
from tasks.tracking.mlflow_connection import TrackingError as TrackingError
from tasks.tracking.mlflow_connection import tracking_uri as tracking_uri
from tasks.tracking.mlflow_connection import without_password as without_password
from tasks.tracking.mlflow_ledger import (
    SPENT,
    data_figure,
    data_metrics,
    data_tags,
    ledger_story,
    planned_epsilons,
    spent_by,
)
from tasks.tracking.mlflow_model import log_model, validation_dataset
from tasks.tracking.mlflow_notes import (
    NOTE,
    RUNS_VIEW,
    campaign_note,
    phase_note,
    state_in_words,
    worthless_tags,
)
from tasks.tracking.mlflow_run import (
    FINISHED,
    TrackedRun,
    finished_run,
    noon,
    open_tracked_run,
)
from tasks.tracking.mlflow_run_status import ENDED, is_told_to_its_end, live_until_end, plan_day
from tasks.tracking.model_versions import register_version

T = TypeVar("T")

_LEDGER = "ledger.json"


@task(cache_policy=NO_CACHE)
def track_phase(campaign: Campaign, phase: Phase, dvc_hash: str) -> None:
    """Records a finished phase as a child run of its campaign."""
    _tell(campaign, lambda: _track_phase(campaign, phase, dvc_hash))


@task(cache_policy=NO_CACHE)
def track_ledger(campaign: Campaign) -> None:
    """Shows what was spent by now, in the campaign's run.

    MLflow is not waited for: what it misses here, the next phase tells it.
    """
    with suppress(TrackingError):
        _tell(campaign, lambda: _track_ledger(campaign), patient=False)


@task(cache_policy=NO_CACHE)
def track_campaign(campaign: Campaign) -> str:
    """Completes the campaign's run, and registers its model; returns the run's id."""
    return _tell(campaign, lambda: _track_campaign(campaign))


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


def tracked_to_its_end(campaign: Campaign) -> AbstractContextManager[None]:
    """Within this block the campaign's run is running; it fails with the block, or is killed."""
    return live_until_end(campaign, lambda: _campaign_run(campaign))


def _campaign_run(campaign: Campaign) -> Run | None:
    return find_run({**_campaign_tags(campaign), "dpal.phase": "all"})


def _track_ledger(campaign: Campaign) -> None:
    existing = _campaign_run(campaign)
    if not is_told_to_its_end(existing):
        run = _find_or_start_campaign(campaign)
        run.set_tags(_shown(campaign, run))


def _shown(campaign: Campaign, run: TrackedRun, *, model: str | None = None) -> dict[str, str]:
    """Shows what was spent in a figure and tables; returns the tags that say it, and describe it.

    Args:
      campaign: whose run it is.
      run: in MLflow.
      model: address of its registered model, once it is finished.
    """
    spent = spent_by(campaign, planned_epsilons(campaign.certified.summary()))
    if spent is None:
        return {NOTE: campaign_note(campaign, model=model)}
    tables = {SPENT: spent.as_frame(), _LEDGER: ledger_story(campaign)}
    return {
        **run.log_anew(tables, spent.figure, "figures/spent.png"),
        "dpal.spent": spent.words,
        NOTE: campaign_note(campaign, spent=spent, model=model),
    }


def _track_phase(campaign: Campaign, phase: Phase, dvc_hash: str) -> None:
    tags = {**_campaign_tags(campaign), "dpal.phase": str(phase.index)}
    existing = find_run(tags)
    if existing is not None and existing.info.status == FINISHED:
        return
    parent = _find_or_start_campaign(campaign)
    phases = campaign.folder.finished_phases()[: phase.index + 1]
    # The parent first: the finished child says that all of this is done.
    parent.log_metrics(_metrics(phases[-1]), step=phase.index)
    state = state_in_words(len(phases), len(campaign.plan.phases), finished=False)
    parent.set_tags(
        {
            f"dvc.md5.{phase.name}": dvc_hash,
            "dpal.state": state,
            **_shown(campaign, parent),
            **prefect_tag(),
        }
    )
    tags |= {
        "mlflow.parentRunId": parent.run_id,
        "dvc.md5": dvc_hash,
        "dvc.path": f"{campaign.config.name}/{phase.name}",
        "dvc.restore": restore_command(campaign.folder.root, phase.index, dvc_hash),
        NOTE: phase_note(campaign, phase, dvc_hash, phases[-1]),
        **_head_tags(campaign, phase),
        **_worse_tags(phases),
        **prefect_tag(),
        **SOURCE,
    }
    name = f"{campaign.config.name}/{phase.name}"
    with finished_run(existing, name, tags, day=plan_day(campaign)) as run:
        run.log_params(phase_parameters(phase, optimizer_of(campaign)))
        run.log_metrics(_metrics(phases[-1]))
        run.log_dict(plain(phase), "phase.json")
        run.log_table_once(ledger_story(campaign), _LEDGER)
        _log_curves(campaign, run, phases, last=False)


def _track_campaign(campaign: Campaign) -> str:
    existing = _campaign_run(campaign)
    if existing is not None and is_told_to_its_end(existing):
        return str(existing.info.run_id)
    run = _find_or_start_campaign(campaign)
    phases = campaign.folder.finished_phases()
    _log_curves(campaign, run, phases, last=True)
    run.log_files(*campaign.folder.reports, *campaign.folder.certified)
    last = {**data_metrics(campaign), "worst_epsilon": campaign.certified.epsilon}
    if (shown := _metrics(reached(campaign.folder))) != _metrics(phases[-1]):
        last |= shown  # what columns of runs show is the newest: that of the released model
    run.log_metrics(last, step=len(phases))
    if figure := data_figure(campaign):
        run.log_figure(figure, "figures/dataset.png")
    certificate = certificate_in(campaign)
    model = register_version(campaign, certificate, log_model(campaign, run))
    run.set_tags(
        {
            "dpal.certificate": certificate["digest"],
            "dpal.model": model,
            "dpal.released_phase": str(released_phase(campaign.folder)),
            **worthless_tags(reached(campaign.folder)),
            "dpal.state": state_in_words(len(phases), len(phases), finished=True),
            **_shown(campaign, run, model=model),
            **_ledger_tags(certificate["ledger"]["head"]),
            **prefect_tag(),
        }
    )
    run.end(FINISHED)
    run.set_tags({ENDED: "true"})
    return run.run_id


def _log_curves(
    campaign: Campaign, run: TrackedRun, phases: Sequence[Mapping[str, Any]], *, last: bool
) -> None:
    """Draws what changed from phase to phase; of one phase that would be a point."""
    if len(phases) < 2:
        return
    run.log_figure(budget_figure(campaign.certified.summary(), phases), "figures/budget.png")
    if last:
        unit = campaign.plan.spec.target.unit
        run.log_figure(validation_figure(phases, unit), "figures/accuracy.png")


def _find_or_start_campaign(campaign: Campaign) -> TrackedRun:
    """The campaign's run, described once, and running."""
    tags = {**_campaign_tags(campaign), "dpal.phase": "all"}
    existing, day = find_run(tags), plan_day(campaign)
    if existing is not None and existing.data.tags.get("dpal.described") == "true":
        run = TrackedRun(run_id=existing.info.run_id, at=noon(day))
        run.go_on()
        return run
    spec, total = campaign.plan.spec, len(campaign.plan.phases)
    target = spec.target
    about = {"epsilon": f"{target.epsilon:g}", "delta": f"{target.delta:.6g}"}
    about |= {"adjacency": target.adjacency.value, "unit": target.unit.value}
    about |= {"dpal.state": state_in_words(0, total, finished=False)}
    tags |= {**about, **SOURCE, NOTE: campaign_note(campaign)}
    run = open_tracked_run(existing, campaign.config.name, tags, day=day)
    run.set_tags(data_tags(campaign))
    run.log_metrics(data_metrics(campaign))
    run.log_params(campaign_parameters(spec))
    run.log_dict({**campaign.certified.summary(), "spec": plain(spec)}, "plan.json")
    if campaign.plan.figures is None:  # else labels and a digest of them would leave
        run.log_dataset(validation_dataset(campaign.public_records), context="validation")
    run.set_tags({"dpal.described": "true"})
    return run


def _metrics(phase: dict[str, Any]) -> dict[str, float]:
    metrics = {
        **tracked_figures(phase),
        "labels": float(phase["labels"]),  # as planned; hidden selection may buy fewer
        "campaign_epsilon": phase["campaign_epsilon"],
    }
    for cohort in phase["cohorts"]:
        metrics[f"epsilon_rdp/cohort_{cohort['cohort']}"] = cohort["epsilon_rdp"]
        metrics[f"epsilon_pld/cohort_{cohort['cohort']}"] = cohort["epsilon_pld"]
    return metrics


def _campaign_tags(campaign: Campaign) -> dict[str, str]:
    with campaign.ledger() as ledger:
        identity = str(ledger.identity)
    names = {"dpal.campaign": campaign.config.name, "dpal.plan": campaign.plan.digest}
    return {**names, "dpal.hold": identity}


def _worse_tags(phases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Says of a phase's run that it is worse than an earlier phase, and by how much."""
    compared = against_best_before(phases, len(phases) - 1)
    return {"dpal.worse": compared.words()} if compared and compared.is_worse else {}


def _head_tags(campaign: Campaign, phase: Phase) -> dict[str, str]:
    manifest = campaign.files(phase).read_manifest() or {}
    return _ledger_tags(manifest.get("ledger_head", {}))


def _ledger_tags(head: dict[str, Any]) -> dict[str, str]:
    return {"ledger.sequence": str(head.get("sequence")), "ledger.head": str(head.get("digest"))}


def _tell(campaign: Campaign, tell: Callable[[], T], *, patient: bool = True) -> T:
    """Tells the campaign's server something, within the experiment."""
    return tell_mlflow(campaign.config.runtime, tell, patient=patient)
