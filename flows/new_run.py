"""A new run from a short form: settings follow from what was decided, and a run is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Completed

from dpal.config.briefs import (
    Brief,
    CampaignBrief,
    ImprovementBrief,
    VotesBrief,
    VotingBrief,
    parse_brief,
)
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, VOTES, VOTING, RunKind
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.flow_run_page import run_name
from tasks.new_run import derive_settings, give_to_workers

Started = str | State[Any]


def start_name() -> str:
    """The name of a run that starts another. What was decided may still be unchecked."""
    return f"start {run_name()}"


# Checked inside: what is wrong is then one sentence on the page.
SHORT_FORM: Mapping[str, Any] = {
    "retries": 0,
    "flow_run_name": start_name,
    "validate_parameters": False,
}


@flow(name="new-campaign", **SHORT_FORM)
def new_campaign(config: CampaignBrief) -> Started:
    """Starts a campaign with settings that suit its data, and returns its page.

    One of this name that has begun goes on with the settings that it has.

    Args:
      config: what a person decides.
    """
    return start(CAMPAIGN, parse_brief(CampaignBrief, config))


@flow(name="new-public", **SHORT_FORM)
def new_public(config: ImprovementBrief) -> Started:
    """Starts an improvement of a finished campaign with public records, and returns its page.

    One of this name that has begun goes on with the settings that it has.

    Args:
      config: what a person decides.
    """
    return start(IMPROVEMENT, parse_brief(ImprovementBrief, config))


@flow(name="new-pate", **SHORT_FORM)
def new_pate(config: VotingBrief) -> Started:
    """Starts private voting with settings that suit its data, and returns its page.

    One of this name that has begun goes on with the settings that it has.

    Args:
      config: what a person decides.
    """
    return start(VOTING, parse_brief(VotingBrief, config))


@flow(name="new-vote", **SHORT_FORM)
def new_vote(config: VotesBrief) -> Started:
    """Starts a release of votes on ballots in files, and returns its page.

    An account of this name that is there goes on with the settings that it has.

    Args:
      config: what a person decides.
    """
    return start(VOTES, parse_brief(VotesBrief, config))


def start(kind: RunKind, brief: Brief) -> Started:
    """Makes settings of what was decided, and gives them to the workers, or runs them here.

    Args:
      kind: of run.
      brief: what was decided.
    """
    require_allowed(brief)
    settings = derive_settings(kind, brief)
    require_allowed(settings)
    address = give_to_workers(kind, settings)
    if address is None:  # nobody to give it to: here and now
        module, _, name = kind.entrypoint.rpartition(".")
        run: Callable[[Any], Started] = getattr(import_module(module), name)
        return run(settings)
    return Completed(message=f"{kind.in_titles} {brief.name} was given to the workers: {address}")
