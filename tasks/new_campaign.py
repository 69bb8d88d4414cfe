"""A campaign from a short form: its settings, and the flow run that it becomes."""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.states import Scheduled
from prefect.utilities.urls import url_for

from dpal.config.brief import CampaignBrief
from dpal.config.campaign import CampaignConfig
from dpal.runs.settings_of_brief import settings_of_brief
from tasks.boundary import task
from tasks.watch_campaigns import campaign_deployment, in_any_folder


@task()
def derive_settings(brief: CampaignBrief) -> CampaignConfig:
    """Looks at the data as a plan does; for any process of this machine."""
    return in_any_folder(settings_of_brief(brief))


@task()
def give_to_workers(config: CampaignConfig) -> str | None:
    """Asks for a flow run of the campaign, once, also where this one is tried again.

    Returns:
      The address of its page; None where no server has a deployment of campaigns.
    """
    name, values = config.name, config.model_dump(mode="json")
    deployment, context = campaign_deployment(), FlowRunContext.get()
    if deployment is None or context is None or context.flow_run is None:
        return None
    with get_client(sync_client=True) as client:
        run = client.create_flow_run_from_deployment(
            deployment,
            parameters={"config": values},
            state=Scheduled(),
            name=name,
            idempotency_key=f"new-{context.flow_run.id}",
        )
    return url_for(run) or str(run.id)
