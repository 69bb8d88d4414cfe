"""What the page of a campaign's flow run shows beside its log: one story, kept up to date."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from matplotlib.figure import Figure
from prefect.exceptions import Pause
from prefect.runtime import flow_run

from dpal.ledger.campaign_account import campaign_account
from dpal.planning.campaign_plan import Phase
from dpal.reports.flow_run_page import Place, campaign_story, outcome, steps_done
from dpal.reports.plots.campaign import budget_figure
from dpal.reports.plots.epsilon_by_cohort import spent_figure
from dpal.reports.plots.style import as_png
from dpal.reports.validation_figures import worthless
from dpal.runs.campaign import Campaign
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import reached
from tasks.boundary import is_public
from tasks.flow_run_page import Shown, page_of, reached_server, run_links, update_artifacts
from tasks.tracking.campaign_runs import campaign_address
from tasks.tracking.mlflow_ledger import planned_epsilons
from tasks.tracking.mlflow_notes import flow_run_address


def open_page(campaign: Campaign) -> None:
    """Starts the story of a run and tags the run, so that it is found."""
    tell_story(campaign, "the plan is certified; nothing of this run is released yet.")
    # A run's page begins with its log; what is kept up to date is two pages away from there.
    if page := flow_run_address():
        key = f"campaign-{campaign.config.name.replace('_', '-')}"
        notify(f"how it stands: {page.partition('/runs/')[0]}/artifacts/key/{key}")
    target = campaign.plan.spec.target
    tags = {"dpal", campaign.config.name, f"epsilon {target.epsilon:g}"}
    if campaign.config.data.dataset:
        tags.add(f"data set {campaign.config.data.dataset}")
    if number := flow_run.get_id():
        with reached_server() as client:
            client.update_flow_run(UUID(number), tags=tags | set(flow_run.get_tags() or ()))


@contextmanager
def page_until_end(campaign: Campaign) -> Iterator[None]:
    """Within this block the page is right: who fails or is stopped says so there, in a sentence."""
    try:
        yield
    except Pause:
        raise
    except BaseException as error:
        why = str(error) if is_public(error) else "the state of this run says why."
        with suppress(Exception):  # it may be the server that failed
            tell_story(campaign, f"stopped: {why}")
        raise


def tell_selection(campaign: Campaign, phase: Phase) -> None:
    """Says that a phase selects."""
    if phase.is_self_training:
        tell_story(campaign, f"{phase.name} takes the records that nobody labeled.")
        return
    unit = campaign.plan.spec.target.unit
    tell_story(campaign, f"{phase.name} selects {phase.records_in_words} {unit}s.")


def tell_waiting(campaign: Campaign, phase: Phase) -> None:
    """Says that people label."""
    where = campaign.config.labeler.kind.replace("_", " ")
    tell_story(
        campaign,
        f"{phase.name} waits for people to label (labeler: {where}). No worker is held meanwhile, "
        "and the campaign goes on by itself once the labels are complete.",
    )


def tell_training(campaign: Campaign, phase: Phase) -> None:
    """Says that a phase trains, and where."""
    pool = campaign.config.runtime.training_pool
    where = f"on a worker of pool {pool}" if pool else "in this run's own process"
    tell_story(campaign, f"{phase.name} trains {phase.steps:,} private steps {where}.")


def tell_phase(campaign: Campaign, phase: Phase) -> None:
    """Says what a finished phase reached, and draws the budget anew."""
    phases = campaign.folder.finished_phases()
    if phase.index < len(phases) - 1:
        return  # a run that goes on comes past those that were finished before
    figure = as_png(_budget(campaign, phases))
    budget = Shown(
        key="budget",
        type="image",
        data="data:image/png;base64," + base64.b64encode(figure).decode(),
        description=f"Epsilon by cohort, as the ledger adds it up, after phase {phase.index}.",
    )
    tell_story(campaign, f"phase {phase.index} is finished.", budget)


def _budget(campaign: Campaign, phases: Sequence[Mapping[str, Any]]) -> Figure:
    """Epsilon by phase; of one phase, which would be a point, as bars."""
    summary = campaign.certified.summary()
    if len(summary["phases"]) > 1:
        return budget_figure(summary, phases)
    account = campaign_account(campaign.known_entries(), campaign.name)
    return spent_figure(account, planned_epsilons(summary))


def tell_campaign_end(campaign: Campaign) -> str:
    """Ends the story, and returns its last line."""
    last = outcome(campaign.certified.summary(), reached(campaign.folder))
    said = worthless(reached(campaign.folder))
    tell_story(campaign, f"{last}. {said or ''}".rstrip())
    return last


def tell_story(campaign: Campaign, now: str, *others: Shown) -> None:
    """Writes the story anew: what happens now, where the campaign stands, where to look."""
    if flow_run.get_id() is None:
        return
    summary, phases = campaign.certified.summary(), campaign.folder.finished_phases()
    name = campaign.config.name
    places = _places(campaign, begun=bool(phases))
    told = page_of(
        "campaign",
        f"Campaign {name}",
        now,
        campaign_story(summary, phases, now=now, places=places, choice=campaign.start.choice),
    )
    progress = Shown(
        key="progress",
        type="progress",
        data=steps_done(summary, phases),
        description=f"Campaign {name}: {len(phases)} of {len(summary['phases'])} phases",
    )
    update_artifacts(told, progress, *others)


def _places(campaign: Campaign, *, begun: bool) -> list[Place]:
    mlflow = Place(name="MLflow", address=campaign_address(campaign), why="metrics, ledger, model")
    return [mlflow, *run_links(campaign.folder, campaign.config.runtime, begun=begun)]
