"""A new campaign from a short form: settings follow from the data, and a run is started."""

from __future__ import annotations

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.brief import CampaignBrief, parse_brief
from flows.campaign import run_campaign
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.flow_run_page import run_name
from tasks.new_campaign import derive_settings, give_to_workers


def start_name() -> str:
    """The name of a run that starts a campaign. What was decided may still be unchecked."""
    return f"start {run_name()}"


# Checked inside: what is wrong is then one sentence on the page.
@flow(name="new-campaign", retries=0, flow_run_name=start_name, validate_parameters=False)
def new_campaign(config: CampaignBrief) -> str | State:
    """Starts a campaign with settings that suit its data, and returns its page.

    One of this name that has begun goes on with the settings that it has.

    Args:
      config: what a person decides.
    """
    brief = parse_brief(config)
    require_allowed(brief)
    settings = derive_settings(brief)
    require_allowed(settings)
    address = give_to_workers(settings)
    if address is None:  # nobody to give it to: here and now
        return run_campaign(settings)
    return Completed(message=f"campaign {brief.name} was given to the workers: {address}")
