"""The training of a campaign's phase on a work pool."""

from __future__ import annotations

from prefect.cache_policies import NO_CACHE

from dpal.config.campaign import CampaignConfig
from dpal.errors import LedgerMissing
from dpal.files.object_store import ArtifactRef
from dpal.ledger.campaign_view import CampaignView
from dpal.planning.campaign_plan import Phase
from dpal.runs.campaign import Campaign
from dpal.runs.kinds import folder_of
from dpal.runs.open_ledger import open_ledger
from tasks.boundary import task
from tasks.training_pool.order_and_wait import (
    PoolTraining,
    find_receipt,
    train_elsewhere,
    wait_for_ordered,
)
from tasks.training_pool.phase_files import TrainingOrder


@task(retries=0, cache_policy=NO_CACHE)  # it orders again by itself
def train_on_pool(
    campaign: Campaign, phase: Phase, order: TrainingOrder
) -> tuple[ArtifactRef, ...]:
    """Has a worker train a phase, again if it is lost, and returns its receipt.

    Raises:
      TrainingLost: it failed, or was lost too often without getting any further.
      TrainingStopped: it was cancelled. What it had made is persisted.
    """

    def standing() -> tuple[int, bool]:
        with campaign.ledger() as ledger:
            release = phase.training_release
            return ledger.persisted_steps(release), ledger.committed(release) is not None

    with campaign.ledger() as ledger:
        tags = _tags(ledger, phase.index)
    training = PoolTraining(
        pool=str(campaign.config.runtime.training_pool),
        flow="train-phase",
        what=phase.name,
        order=order.as_json(),
        tags=tags,
        standing=standing,
        further=lambda reached: f" and goes on after {reached:,} of {phase.steps:,} steps",
        keeps="what it had made is persisted and stays paid",
    )
    train_elsewhere(training, campaign.folder.root)
    return find_receipt(tags)


def wait_for_earlier(config: CampaignConfig) -> None:
    """Waits for a training that a process of this campaign ordered before it was killed."""
    pool = config.runtime.training_pool
    if pool is None:
        return
    try:
        store = open_ledger(config.runtime, create=False)
    except LedgerMissing:
        return
    try:
        view = CampaignView(store, config.name, folder_of(config).root)
        tags = _tags(view) if view.identity else []
    finally:
        store.close()
    wait_for_ordered(tags, pool)


def _tags(view: CampaignView, phase: int | None = None) -> list[str]:
    """What finds the runs that train for a campaign; no other campaign has them."""
    own = [f"dpal:{(view.identity or '')[:32]}"]
    return own if phase is None else [*own, f"phase-{phase}"]
