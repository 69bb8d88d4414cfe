"""What the page of a campaign's flow run shows beside its log: one story, kept up to date.

A page that cannot be written is no reason to stop: whatever it says stands in the campaign's
files as well.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.runtime import flow_run

from dpal.config.runtime import RuntimeConfig
from dpal.files.artifacts import CampaignFolder
from dpal.planning.plan import Phase
from dpal.reports.commands import verify_here
from dpal.reports.figures.campaign import budget_figure
from dpal.reports.figures.style import as_png
from dpal.reports.run_page import Place, campaign_story, outcome, steps_done
from dpal.runs.campaign_run import Campaign
from dpal.runs.notify import notify
from dpal.runs.open_ledger import key_word
from tasks.tracking.runs import campaign_address
from tasks.workers import artifacts_of


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An artifact of the run."""

    key: str
    type: str
    data: Any
    description: str


# What stands on the pages of this process's runs, so that only changes are sent.
_PAGES: dict[UUID, dict[str, tuple[UUID, Shown | None]]] = {}


def run_name() -> str:
    """The name of the campaign's flow run: the campaign's. Settings may still be unchecked."""
    config = flow_run.get_parameters().get("config")
    name = config.get("name") if isinstance(config, dict) else getattr(config, "name", None)
    return str(name or "campaign")


def open_page(campaign: Campaign) -> None:
    """Starts the story of a run and tags the run, so that it is found."""
    tell_story(campaign, "the plan is certified; nothing of this run is released yet.")
    target = campaign.plan.spec.target
    tags = {"dpal", campaign.config.name, f"epsilon {target.epsilon:g}"}
    if campaign.config.data.dataset:
        tags.add(f"data set {campaign.config.data.dataset}")
    if number := flow_run.get_id():
        with _reached() as client:
            client.update_flow_run(UUID(number), tags=tags | set(flow_run.get_tags() or ()))


def tell_selection(campaign: Campaign, phase: Phase) -> None:
    """Says that a phase selects."""
    tell_story(campaign, f"{phase.name} selects up to {phase.cohort_size:,} records.")


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
    figure = as_png(budget_figure(campaign.certified.summary(), phases))
    budget = Shown(
        key="budget",
        type="image",
        data="data:image/png;base64," + base64.b64encode(figure).decode(),
        description=f"Epsilon by cohort, as the ledger adds it up, after phase {phase.index}.",
    )
    tell_story(campaign, f"phase {phase.index} is finished.", budget)


def tell_campaign_end(campaign: Campaign) -> str:
    """Ends the story, and returns its last line."""
    last = outcome(campaign.certified.summary(), campaign.folder.finished_phases())
    tell_story(campaign, f"{last}.")
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
        campaign_story(summary, phases, now=now, places=places),
    )
    progress = Shown(
        key="progress",
        type="progress",
        data=steps_done(summary, phases),
        description=f"Campaign {name}: {len(phases)} of {len(summary['phases'])} phases",
    )
    update_artifacts(told, progress, *others)


def page_of(kind: str, title: str, now: str, story: str) -> Shown:
    """A run's story as an artifact.

    Args:
      kind: first word of its key.
      title: ends in the run's name.
      now: what happens at the moment.
      story: in Markdown.
    """
    key = f"{kind}-{title.rpartition(' ')[2].replace('_', '-')}"
    return Shown(key=key, type="markdown", data=story, description=f"{title}: {now}")


def run_links(folder: CampaignFolder, runtime: RuntimeConfig, *, begun: bool) -> list[Place]:
    """Where a person looks further at a run of any kind; only what is there."""
    files = (
        ("Report", folder.report_page, "for everybody, opens without a server"),
        ("Certificate", folder.certificate, "what dpal verify checks"),
        ("Ledger", folder.ledger_page, "every charge, opens without a server"),
    )
    places = [
        Place(name=name, address=str(path.resolve()), why=why)
        for name, path, why in files
        if path.is_file()
    ]
    check = verify_here(folder, key_word(runtime))
    why = "adds everything up again; elsewhere --key takes the owner's key"
    if not folder.certificate.is_file():
        check, why = f"dpal ledger verify {folder.root}", "recomputes the chain of entries"
    return [*places, *([Place(name="Check it yourself", address=check, why=why)] if begun else [])]


def _places(campaign: Campaign, *, begun: bool) -> list[Place]:
    mlflow = Place(name="MLflow", address=campaign_address(campaign), why="metrics, ledger, model")
    return [mlflow, *run_links(campaign.folder, campaign.config.runtime, begun=begun)]


def update_artifacts(*shown: Shown) -> None:
    """Makes the run's artifacts, or changes those it has: one a key, also after a resume."""
    if flow_run.get_id() is None:
        return
    run = UUID(str(flow_run.get_id()))
    with _reached() as client:
        if run not in _PAGES:
            _PAGES[run] = {
                str(artifact.key): (artifact.id, None) for artifact in artifacts_of(client, run)
            }
        page = _PAGES[run]
        for artifact in shown:
            number, before = page.get(artifact.key, (None, None))
            if number is None:
                made = client.create_artifact(ArtifactCreate(flow_run_id=run, **asdict(artifact)))
                page[artifact.key] = made.id, artifact
            elif before != artifact:
                change = ArtifactUpdate(data=artifact.data, description=artifact.description)
                client.update_artifact(number, change)
                page[artifact.key] = number, artifact


@contextmanager
def _reached() -> Iterator[SyncPrefectClient]:
    """A connection to the server; where it does not answer, the page stays as it is."""
    try:
        with get_client(sync_client=True) as client:
            yield client
    except (httpx.HTTPError, RuntimeError) as error:
        reason = type(error).__name__
        notify(
            f"the page of this run was not brought up to date ({reason}); nothing else is affected"
        )
