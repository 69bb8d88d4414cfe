"""A search among settings of the training: what a person asks for."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat

from dpal.config.form_choices import choice
from dpal.config.section import Count, Section
from dpal.config.training import Momentum, TrainingConfig
from dpal.planning.campaign_spec import Search
from dpal.planning.training_recipe import OptimizerName


class TrialConfig(Section):
    """What one trial changes under `training`; what is null stays as it is there."""

    model_config = ConfigDict(title="Trial")

    optimizer: Annotated[OptimizerName | None, choice("An optimizer", "As it is")] = None
    """What turns gradients into steps."""
    learning_rate: Annotated[PositiveFloat | None, choice("A number", "As it is")] = None
    """Step size."""
    max_grad_norm: Annotated[PositiveFloat | None, choice("A number", "As it is")] = Field(
        None, title="Clipping norm"
    )
    """Longest gradient of one record."""
    momentum: Annotated[Momentum | None, choice("A number", "As it is")] = None
    """Of sgd and sgd_agc."""
    weight_decay: Annotated[NonNegativeFloat | None, choice("A number", "As it is")] = None
    """Pull of the weights towards zero."""


class SearchConfig(Section):
    """Settings of the training that are tried on the initial cohort, each charged."""

    model_config = ConfigDict(title="Among trials")

    trials: list[TrialConfig] = Field(min_length=1, title="Further trials")
    """What is tried beside `training` itself, which is the first trial: each entry says what it
    changes there, such as {learning_rate: 2}. The best on the validation set goes on."""
    epochs: Annotated[Count | None, choice("A number", "A quarter")] = None
    """Passes of each trial over the initial cohort; null is a quarter of
    schedule.epochs_per_phase."""

    def to_spec(self, training: TrainingConfig, epochs: int) -> Search:
        """The same as a frozen value.

        Args:
          training: what trials change.
          epochs: of a phase; a trial has a quarter of them where nothing else is said.

        Raises:
          ParameterError: a value is impossible.
        """
        return Search(
            others=tuple(
                training.model_copy(update=trial.model_dump(exclude_none=True)).to_optimizer()
                for trial in self.trials
            ),
            epochs=self.epochs or -(-epochs // 4),
        )
