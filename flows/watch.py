"""One look into a watched folder: new files become blocks, and a campaign on all of them."""

from __future__ import annotations

from prefect.exceptions import Pause

from dpal.config.watch import WatchConfig
from dpal.errors import CampaignBusy
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.progress_logging import notify
from flows.campaign import run_campaign
from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.watch import (
    count_unheld_as_refused,
    follow_campaign,
    look_into_folder,
    plan_campaign,
    register_files,
    show_watch,
    start_campaign,
    watch_folder,
)

_PATIENCE_SECONDS = 120.0  # another look may be at work


@flow(name="watch", retries=0, flow_run_name="watch {config.name}", validate_parameters=True)
def watch(config: WatchConfig) -> None:
    """Looks once. Done again, also after a crash anywhere, nothing happens twice."""
    require_allowed(config)
    root = watch_folder(config).root
    try:
        with lock_folder(root):
            look_into_folder(config)
            register_files(config)
            follow_campaign(config)
            plan_campaign(config)
            campaign = start_campaign(config)
            show_watch(config)
    except CampaignBusy:
        notify(f"another process looks for watch {config.name} now; nothing to do")
        return
    if campaign is None:
        return
    try:
        ended = run_campaign(campaign, return_state=True)
        if ended.is_cancelled():
            notify(f"campaign {campaign.name} was cancelled; the next look goes on with it")
        elif not ended.is_completed():
            error = ended.result(raise_on_failure=False)
            # Not where it is busy: somebody else may begin it now.
            if ended.is_failed() and not isinstance(error, CampaignBusy):
                with lock_folder(root, patience=_PATIENCE_SECONDS):
                    count_unheld_as_refused(config, str(error))
                    show_watch(config)
            ended.result()
    except Pause as waiting:
        notify(f"campaign {campaign.name} waits: {waiting}")
    except CampaignBusy as busy:
        notify(str(busy))
    with lock_folder(root, patience=_PATIENCE_SECONDS):
        follow_campaign(config)
        show_watch(config)
