"""What of a training changes with its steps, and what of that is written down."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor, nn

from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.training.checkpoints import pack_carried, pack_state, put_carried, put_training
from dpal.training.clipping import Clipper
from dpal.training.committee import Committee
from dpal.training.optimizers import build_optimizer
from dpal.training.weight_averaging import WeightAverage


class Written(StrEnum):
    """What is written down of a training.

    STATE: all that it goes on from, in mid-phase.
    CARRIED: what the next phase takes up beside the released model.
    RELEASED: the weights that are released.
    """

    STATE = "state"
    CARRIED = "carried"
    RELEASED = "released"


class TrainingState:
    """A model in training, and all that goes with it from step to step.

    Attributes:
      model: that trains; of a sharded one the rows that this process holds.
      optimizer: over its parameters.
      average: of its weights.
      clipper: carries an adaptive bound.
      committee: members for the next selection.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        spec: OptimizerSpec,
        recipe: Recipe,
        steps: int,
        committee: bool,
    ) -> None:
        """Begins at the model's present weights.

        Args:
          model: changed in place.
          spec: its optimizer.
          recipe: clipping and averaging.
          steps: of the phase.
          committee: whether the next selection asks one.
        """
        self.model = model
        self.optimizer = build_optimizer(spec, model.parameters())
        self.average = WeightAverage(model, recipe.averaging, steps)
        self.clipper = Clipper(
            recipe.clipping, max_grad_norm=spec.max_grad_norm, precision=recipe.precision
        )
        self.committee = Committee(model, steps, wanted=committee)

    def write(self, kind: Written) -> bytes:
        """Gives one kind of what is written down, as safetensors."""
        match kind:
            case Written.STATE:
                return pack_state(
                    self.model, self.optimizer, self.average, self.clipper, self.committee
                )
            case Written.CARRIED:
                return pack_carried(
                    self.model, self.optimizer, self.average, self.clipper, self.committee
                )
            case Written.RELEASED:
                weights = self.average.averaged_state_dict().items()
                return save({name: value.cpu().contiguous() for name, value in weights})

    def restore(self, kind: Written, path: Path) -> None:
        """Puts back what was written to a file, in place.

        Raises:
          ParameterError: the file holds what this training would not take up, or another average.
        """
        self.put(kind, load_file(path), path)

    def put(self, kind: Written, stored: Mapping[str, Tensor], path: Path) -> None:
        """Puts back what a file holds; raises what `restore` raises."""
        if kind is Written.STATE:
            put_training(stored, path, self.model, self.optimizer, self.average, self.clipper,
                         self.committee)  # fmt: skip
        elif kind is Written.CARRIED:
            put_carried(stored, path, self.model, self.optimizer, self.average, self.clipper)
        else:
            self.model.load_state_dict(dict(stored))
