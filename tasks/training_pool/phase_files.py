"""What a worker is told to train, and what it hands back: files by URL and digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import MissingResult
from pydantic import BaseModel, ConfigDict, Field

from dpal.config.campaign import CampaignConfig
from dpal.errors import LedgerError
from dpal.files.object_store import ArtifactRef, file_ref
from dpal.ledger.folder_lock import lock_folder
from dpal.planning.campaign_plan import Phase
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign import Campaign
from dpal.runs.kinds import folder_of
from dpal.runs.store_sync import bring_files, fetch_files, publish
from dpal.runs.store_upload import store_of
from tasks.boundary import task
from tasks.campaign import prepare_ordered
from tasks.training_pool.order_and_wait import give_receipt
from tasks.training_pool.worker_device import on_worker_device

_PATIENCE_SECONDS = 180.0  # whoever had the campaign before may be on its way out

_AT_HAND: ContextVar[Campaign | None] = ContextVar("campaign at hand", default=None)


class TrainingOrder(BaseModel):
    """One phase to be trained. It may be seen: digests in it are of files nobody can guess.

    Attributes:
      config: the campaign's settings, with absolute paths.
      phase: which one.
      plan: digest of the plan that the ledger holds.
      inputs: what is trained on, and from.
      drawer: in whose name the ledger is written.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: CampaignConfig = Field(title="Campaign")
    phase: int = Field(ge=0, title="Phase")
    plan: str = Field(title="Digest of the plan")
    inputs: tuple[ArtifactRef, ...] = Field(title="Files to train on")
    drawer: str = Field(title="In whose name")

    def as_json(self) -> dict[str, Any]:
        """As a flow run's parameter: settings as a person would write them."""
        order = self.model_dump(mode="json")
        return {**order, "config": self.config.model_dump(mode="json", exclude_defaults=True)}


@contextmanager
def at_hand(campaign: Campaign) -> Iterator[None]:
    """Lets an order within this block be followed with a campaign that is prepared already."""
    token = _AT_HAND.set(campaign)
    try:
        yield
    finally:
        _AT_HAND.reset(token)


@task(cache_policy=NO_CACHE)
def order_training(campaign: Campaign, phase: Phase) -> TrainingOrder:
    """Writes down what has to be trained; where a worker does, publishes the files that it needs.

    Trained here, nothing has to leave: the store may be one that holds what was released alone.
    """
    config = with_absolute_paths(campaign.config)
    inputs, folder = _inputs(campaign, phase), campaign.folder.root
    artifacts = {"artifacts": config.runtime.artifacts.resolve()}
    with campaign.ledger() as ledger:
        drawer = ledger.drawer
    return TrainingOrder(
        config=config.model_copy(update={"runtime": config.runtime.model_copy(update=artifacts)}),
        phase=phase.index,
        plan=campaign.plan.digest,
        inputs=(
            tuple(file_ref(folder, path) for path in inputs)
            if config.runtime.training_pool is None
            else publish(campaign, inputs)
        ),
        drawer=drawer,
    )


@contextmanager
def following_order(order: TrainingOrder) -> Iterator[Campaign]:
    """Prepares what an order is about, and claims it, unless this process leads the campaign.

    Raises:
      LedgerError: here, the settings or the data make another plan than the one ordered.
      CampaignBusy: another process holds the campaign and does not let go of it.
    """
    campaign = _AT_HAND.get()
    if campaign is not None:
        _require_ordered(campaign, order)
        yield campaign
        return
    with lock_folder(folder_of(order.config).root, patience=_PATIENCE_SECONDS):
        bring_files(order.config.name, order.config.runtime)
        prepared = prepare_ordered(on_worker_device(order.config))
        campaign = replace(prepared, acting_for=order.drawer)
        _require_ordered(campaign, order)
        yield campaign


@task(cache_policy=NO_CACHE)
def take_inputs(campaign: Campaign, order: TrainingOrder) -> Phase:
    """Brings the ordered files here and checks them, byte for byte.

    Raises:
      LedgerError: the order leaves a file out, or names another one than the ledger committed.
      StoreError: a file is missing or not the one that was ordered.
    """
    phase = campaign.plan.phases[order.phase]
    refs_by_name = {ref.name: ref for ref in order.inputs}
    needed = list(_inputs(campaign, phase))
    for path in needed:
        if campaign.files(phase).name_of(path) not in refs_by_name:
            raise LedgerError.before_release(
                f"the order to train {phase.name} does not name {path.name}; run the campaign "
                "again to order it anew"
            )
    releases = [phase.selection_release]
    if phase.index > 0:
        releases.append(campaign.plan.phases[phase.index - 1].training_release)
    with campaign.ledger() as ledger:
        known = [ledger.committed(release) or {} for release in releases]
    for name, digest in chain.from_iterable(committed.items() for committed in known):
        if name in refs_by_name and refs_by_name[name].sha256 != digest:
            raise LedgerError.before_release(
                f"the order to train {phase.name} names another {name} than the ledger committed; "
                "run the campaign again to order it anew"
            )
    # Those alone: an order may name more files of this run, which it would replace.
    fetch_files(campaign, [refs_by_name[campaign.files(phase).name_of(path)] for path in needed])
    return phase


@task(cache_policy=NO_CACHE)
def hand_over(campaign: Campaign, phase: Phase) -> tuple[ArtifactRef, ...]:
    """Publishes a phase's model and optimizer; on a worker, its page holds the receipt."""
    files = campaign.files(phase)
    receipt = publish(campaign, [files.optimizer, files.model])
    if _AT_HAND.get() is None:
        give_receipt(receipt, f"{phase.name}: what this run trained, by digest.")
    return receipt


def receipt_of(trained: State[Any]) -> tuple[ArtifactRef, ...]:
    """What a training in this process handed over; empty where only the ledger knows.

    A busy server may note the end of a run and fail to say so. Prefect's client then asks again,
    and is told the noted state, which has no data.
    """
    try:
        return tuple(trained.result())
    except MissingResult:
        if not trained.is_completed():
            raise
        return ()


@task(cache_policy=NO_CACHE)
def take_over(campaign: Campaign, phase: Phase, receipt: Sequence[ArtifactRef]) -> None:
    """Brings here what a worker trained; it must be what the ledger committed.

    Raises:
      LedgerError: nothing was committed, or something else.
      StoreError: a file is missing or altered.
    """
    with campaign.ledger() as ledger:
        committed, identity = ledger.committed(phase.training_release), ledger.identity or ""
    if committed is not None and not receipt:  # it was killed before it wrote one, or not heard
        receipt = _whereabouts(campaign, identity, committed)
    if committed is None or {ref.name: ref.sha256 for ref in receipt} != committed:
        raise LedgerError(
            f"what a worker says it trained in {phase.name} is not what the ledger committed; "
            "nothing more was released, run the same command again"
        )
    fetch_files(campaign, receipt)


def _require_ordered(campaign: Campaign, order: TrainingOrder) -> None:
    if campaign.plan.digest != order.plan:
        raise LedgerError.before_release(
            f"campaign {order.config.name} was ordered with plan {order.plan[:12]} and is plan "
            f"{campaign.plan.digest[:12]} here; use the same data, weights and version of dpal on "
            "both machines"
        )


def _inputs(campaign: Campaign, phase: Phase) -> list[Path]:
    """What is trained on, and from: the model before, or that of an earlier campaign."""
    files = campaign.files(phase)
    inputs = [files.selection, files.labels, files.pool]
    if phase.index > 0:
        before = campaign.folder.phase(phase.index - 1)
        inputs += [before.model, before.optimizer]
    elif campaign.start.earlier is not None:
        inputs.append(campaign.folder.start_model)
    return inputs


def _whereabouts(
    campaign: Campaign, identity: str, digests: Mapping[str, str]
) -> tuple[ArtifactRef, ...]:
    """Where committed files are: they were in the store, if there is one, before their commit."""
    folder, config = campaign.folder.root, campaign.config
    if config.runtime.store is None:
        return tuple(
            ArtifactRef(name=name, url=(folder / name).resolve().as_uri(), sha256=digest)
            for name, digest in digests.items()
        )
    store = store_of(config.name, config.runtime, identity)
    return tuple(store.ref(name, digest) for name, digest in digests.items())
