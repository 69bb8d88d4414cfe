"""One phase of a campaign, trained here or by a worker of a pool."""

from __future__ import annotations

from dpal.errors import TrainingStopped
from dpal.files.object_store import ArtifactRef
from tasks.allow_list import require_allowed
from tasks.await_prefect_server import await_server
from tasks.boundary import flow
from tasks.campaign import train_model
from tasks.training_monitor import monitoring_training
from tasks.training_pool.phase_files import TrainingOrder, following_order, hand_over, take_inputs


@flow(
    name="train-phase",
    retries=0,
    flow_run_name="{order.config.name}-phase-{order.phase}",
    validate_parameters=True,
)
def train_phase(order: TrainingOrder) -> tuple[ArtifactRef, ...]:
    """Trains the phase that an order names, goes on where that was interrupted, and hands it over.

    Which campaign it is, its plan and its inputs are checked by digest first.
    """
    require_allowed(order)
    try:
        with monitoring_training(f"phase-{order.phase}"), following_order(order) as campaign:
            phase = take_inputs(campaign, order)
            train_model(campaign, phase)
            await_server()  # it may have gone and come back in the meantime
            return hand_over(campaign, phase)
    except TrainingStopped:
        await_server()
        raise
