"""Campaign specs for planner tests."""

from __future__ import annotations

from dpal.models.spec import ModelSpec
from dpal.planning.spec import (
    Acquisition,
    CampaignSpec,
    OptimizerSpec,
    Schedule,
    SelectionMode,
    Strategy,
)
from dpal.privacy import Adjacency, PrivacyTarget


def campaign(
    *,
    pool_size: int = 60_000,
    epsilon: float = 8.0,
    delta: float = 1e-6,
    selection_epsilon: float = 2.0,
    initial: int = 1000,
    queries: tuple[int, ...] = (500, 300, 200),
    batch_size: int = 256,
    epochs: int = 10,
    strategy: Strategy = Strategy.STEP_AMPLIFICATION,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    acquisition: Acquisition = Acquisition.ENTROPY,
) -> CampaignSpec:
    return CampaignSpec(
        name="planned",
        pool_size=pool_size,
        target=PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency),
        strategy=strategy,
        acquisition=acquisition,
        selection=SelectionMode.PAPER,
        selection_epsilon=selection_epsilon,
        schedule=Schedule(
            initial=initial, queries=queries, batch_size=batch_size, epochs_per_phase=epochs
        ),
        model=ModelSpec(name="logistic", input_shape=(8,), classes=3),
        optimizer=OptimizerSpec(name="sgd", learning_rate=0.5, momentum=0.0, max_grad_norm=1.0),
    )
