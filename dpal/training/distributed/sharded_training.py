"""A rank's part of a training whose model is sharded: its rows of all that is trained.

Every rank adds noise to its own rows, from a cryptographic stream of its own, and steps them. Each
row has one owner, so that each number of the sum gets noise once.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from torch import Tensor

from dpal.training.distributed.messages import ShardModel
from dpal.training.distributed.shard_group import ShardGroup
from dpal.training.distributed.sharded_model import ShardedModel
from dpal.training.distributed.sharded_state import ShardedState
from dpal.training.training_state import TrainingState


class ShardedTraining:
    """What a rank holds of a training, on every rank alike.

    Attributes:
      group: all ranks.
      model: of which this rank has some rows.
      state: of these rows.
    """

    def __init__(
        self,
        order: ShardModel,
        group: ShardGroup,
        whole: MutableMapping[str, Tensor] | None = None,
    ) -> None:
        """Takes this rank's rows; all ranks at the same time.

        Args:
          order: what is trained.
          group: all ranks.
          whole: all weights by name, at rank 0; they are forgotten one by one.
        """
        self.group, self.model = group, ShardedModel(order.model, group, whole)
        own = TrainingState(
            self.model.rows,
            spec=order.spec,
            recipe=order.recipe,
            steps=order.steps,
            committee=order.committee,
        )
        self.state = ShardedState(own, group)
