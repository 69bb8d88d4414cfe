"""Artifacts on the page of a flow run, of whatever kind: made once, and kept up to date.

A page that cannot be written is no reason to stop: whatever it says stands in the run's files as
well.
"""

from __future__ import annotations

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
from dpal.reports.flow_run_page import Place
from dpal.reports.verify_commands import verify_here
from dpal.runs.open_ledger import key_word
from dpal.runs.progress_logging import notify
from tasks.training_pool.wait_for_training import artifacts_of


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
        ("Model card", folder.cards[0], "what is promised, what is not, what it is worth"),
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


def update_artifacts(*shown: Shown) -> None:
    """Makes the run's artifacts, or changes those it has: one a key, also after a resume."""
    if flow_run.get_id() is None:
        return
    run = UUID(str(flow_run.get_id()))
    with reached_server() as client:
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


def publish_story(key: str, story: str) -> None:
    """Puts a story on the server's page of artifacts, unless its newest there says the same.

    Args:
      key: by which people find it.
      story: in Markdown. It belongs to the flow run that tells it, if there is one.
    """
    with reached_server() as client:
        # The client's own methods send nulls, which the server refuses.
        wanted = {"artifacts": {"key": {"any_": [key]}}}
        newest = client.request("POST", "/artifacts/latest/filter", json=wanted).json()
        run = flow_run.get_id()
        if run is None and newest and newest[0]["data"] == story:
            return
        made = {"key": key, "type": "markdown", "data": story}
        owner = {} if run is None else {"flow_run_id": str(run)}
        client.request("POST", "/artifacts/", json={**made, **owner})


@contextmanager
def reached_server() -> Iterator[SyncPrefectClient]:
    """A connection to the server; where it does not answer, the page stays as it is."""
    try:
        with get_client(sync_client=True) as client:
            yield client
    except (httpx.HTTPError, RuntimeError) as error:
        reason = type(error).__name__
        notify(
            f"the page of this run was not brought up to date ({reason}); nothing else is affected"
        )
