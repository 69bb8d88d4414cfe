"""One look of the desk into a watched folder, in a process of its own and without a flow run."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from dpal.config.watch import WatchConfig, parse_watch
from dpal.errors import CampaignBusy, ConfigError, DpalError
from dpal.ledger.folder_lock import lock_folder
from flows.cli.terminal import prepare_process


def look_in_process(values: Mapping[str, Any], answer: Connection) -> None:
    """Looks once, and says what was in the way.

    Args:
      values: settings of the watch, as its deployment has them.
      answer: is sent one public sentence where a person has to do something.
    """
    prepare_process()
    try:
        look_without_run(parse_watch(values))
    except CampaignBusy:
        return  # somebody else looks
    except DpalError as error:
        answer.send(str(error))
        raise SystemExit(2) from None


def look_without_run(config: WatchConfig) -> None:
    """The steps of the flow `watch`, with campaigns left to workers.

    Raises:
      NotAllowed: settings come from Prefect's server, and the owner's list does not have them.
      ConfigError: no worker could be given a campaign.
      DpalError: as the steps.
    """
    from tasks.allow_list import require_listed
    from tasks.watch import (
        follow_campaign,
        look_into_folder,
        plan_campaign,
        register_files,
        show_watch,
        start_campaign,
        watch_folder,
    )
    from tasks.watched_runs import DEPLOYMENT, campaign_deployment

    require_listed(config)
    if campaign_deployment() is None:
        raise ConfigError(
            f"the Prefect server has no deployment {DEPLOYMENT}, by which campaigns of watch "
            f"{config.name} are given to workers; make it with: dpal deploy. Nothing was read"
        )
    with lock_folder(watch_folder(config).root):
        for step in (
            look_into_folder,
            register_files,
            follow_campaign,
            plan_campaign,
            start_campaign,
            show_watch,
        ):
            step.fn(config)
