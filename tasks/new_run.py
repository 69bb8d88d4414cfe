"""A run from a short form: its settings, and the flow run that it becomes."""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.states import Scheduled
from prefect.utilities.urls import url_for

from dpal.config.briefs import Brief
from dpal.config.runtime import RunConfig
from dpal.runs.kinds import RunKind
from dpal.runs.settings_of_briefs import settings_of_brief
from tasks.boundary import task
from tasks.watched_runs import in_any_folder, usual_deployment


@task()
def derive_settings(kind: RunKind, brief: Brief) -> RunConfig:
    """Looks at the data as a plan does; for any process of this machine."""
    return in_any_folder(settings_of_brief(kind, brief))


@task()
def give_to_workers(kind: RunKind, config: RunConfig) -> str | None:
    """Asks for a flow run of such settings, once, also where this one is tried again.

    Returns:
      The address of its page; None where no server has a deployment of its kind.
    """
    deployment, context = usual_deployment(kind), FlowRunContext.get()
    if deployment is None or context is None or context.flow_run is None:
        return None
    with get_client(sync_client=True) as client:
        run = client.create_flow_run_from_deployment(
            deployment,
            parameters={"config": config.model_dump(mode="json")},
            state=Scheduled(),
            name=config.name,
            idempotency_key=f"new-{context.flow_run.id}",
        )
    return url_for(run) or str(run.id)
