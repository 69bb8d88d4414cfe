"""Looks once at every campaign that waits for people, and resumes those that need not."""

from __future__ import annotations

from pathlib import Path

from tasks.allow_list import require_allowed
from tasks.boundary import flow
from tasks.wait_for_people import waiting_campaigns


@flow(name="collect-labels", retries=0, validate_parameters=True)
def collect_labels(artifacts: Path = Path("artifacts")) -> int:
    """Resumes the campaigns whose labels are complete; `dpal desk` runs it every minute.

    Args:
      artifacts: folder of all campaigns.

    Returns:
      How many campaigns were resumed.
    """
    require_allowed(artifacts=artifacts)
    waiting = waiting_campaigns(artifacts)
    if not waiting:
        return 0  # before torch is imported: so it is most minutes of the day
    from tasks.collect_waiting import Collected, collect_campaign

    outcomes = [collect_campaign(folder.root) for folder in waiting]
    return outcomes.count(Collected.RESUMED)
