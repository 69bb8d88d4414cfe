"""One training without noise of a run, by a worker of a pool."""

from __future__ import annotations

from dpal.errors import TrainingStopped
from tasks.allow_list import require_allowed
from tasks.await_prefect_server import await_server
from tasks.boundary import flow
from tasks.training_monitor import monitoring_training
from tasks.training_pool.repeatable_order import (
    RepeatableOrder,
    following_repeatable_order,
    train_here,
)


@flow(
    name="train-repeatable",
    retries=0,
    flow_run_name="{order.config[name]}-{order.training}",
    validate_parameters=True,
)
def train_repeatable(order: RepeatableOrder) -> None:
    """Trains what an order names: teachers, a student, fine-tuning. It releases nothing."""
    require_allowed(order.settings())
    try:
        with (
            monitoring_training(order.training),
            following_repeatable_order(order) as (run, training),
        ):
            train_here(run, training)
        await_server()  # it may have gone and come back in the meantime
    except TrainingStopped:
        await_server()
        raise
