"""What is trained and how: the sections of a configuration that decide what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from dpal.canonical import place_digest
from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import Guarded
from dpal.config.registered_names import Registered
from dpal.config.section import Fraction, Section, Share
from dpal.models.architectures import ARCHITECTURES, Architecture
from dpal.models.normalisation import Normalisation
from dpal.models.spec import ADAPTED, ModelSpec, Task
from dpal.planning.linear_head_spec import HeadKind, LinearHead, TrainingMethod
from dpal.planning.training_recipe import (
    Augmentation,
    Averaging,
    AveragingKind,
    Clipping,
    ClippingKind,
    OptimizerName,
    OptimizerSpec,
    Precision,
    RateSchedule,
    Recipe,
)

Momentum = Annotated[float, Field(ge=0, lt=1)]
ModelName = Annotated[str, Registered(names=lambda: tuple(ARCHITECTURES))]


class ModelConfig(Section):
    """What is trained."""

    name: ModelName = Field("tutorial_cnn", title="Architecture")
    """Which network."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of mlp and tutorial_cnn."""
    hidden: list[int] = Field([], title="Hidden layers")
    """Widths of mlp's hidden layers, such as 128."""
    dropout: float = Field(0.0, ge=0, le=0.9)
    """Chance that a unit is dropped in training; not of the small models."""
    weights: Annotated[Path | None, Guarded(free=(None,)), choice("A file or folder", "Afresh")] = (
        Field(None, title="Pretrained weights")
    )
    """Public pretrained weights: a .safetensors file (nfnet_f0: also .npz), for text_classifier a
    folder with tokenizer and configuration; null starts afresh."""
    trainable: list[str] = Field([], title="What trains")
    """Beginnings of the names of the parameters that train; empty for all, or for what the
    architecture usually trains."""
    adapter_rank: int = Field(0, ge=0, le=1024, title="Rank of adapters")
    """Of text_classifier: beside layers that stay as they are, products of this rank train (LoRA);
    0 trains layers themselves."""
    adapted_layers: list[str] = Field(list(ADAPTED), title="Adapted layers", min_length=1)
    """Last parts of the names of the layers that get an adapter."""
    max_tokens: int = Field(128, ge=2, le=8192, title="Longest text")
    """Of text_classifier, in tokens: a longer text is cut."""
    seed: NonNegativeInt = 0
    """Of the initial weights; public."""

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.hidden and not self.architecture.has_widths:
            others = ", ".join(each.name for each in ARCHITECTURES.values() if each.has_widths)
            raise ValueError(f"model.hidden is for {others}, and model.name is {self.name}")
        if self.architecture.has_widths and not self.hidden:
            raise ValueError(f"model.name {self.name} needs model.hidden, for instance [128]")
        if self.dropout and not self.architecture.drops:
            raise ValueError(
                f"model.dropout {self.dropout:g} would do nothing: {self.name} has no dropout; "
                "leave it 0 (scores by bald drop units by themselves)"
            )
        if self.adapter_rank and not self.architecture.reads_texts:
            raise ValueError(
                f"model.adapter_rank is for text_classifier, and model.name is {self.name}; leave "
                "it 0"
            )
        self._check_weights()
        return self

    def _check_weights(self) -> None:
        if self.architecture.reads_texts:
            if self.weights is None:
                raise ValueError(
                    f"model.name {self.name} needs model.weights, the folder of a pretrained "
                    "model with its tokenizer (config.json, model.safetensors, tokenizer.json)"
                )
            return
        others = self.architecture.has_own_format
        if self.weights and self.weights.suffix != ".safetensors" and not others:
            raise ValueError(
                f"model.weights {self.weights} cannot be read for {self.name}; give a "
                ".safetensors file with its parameters' names, or null to start afresh"
            )

    @property
    def architecture(self) -> Architecture:
        """What is known of the model before it is built."""
        return ARCHITECTURES[self.name]

    def to_spec(
        self,
        *,
        input_shape: Sequence[int],
        classes: int,
        task: Task,
        normalisation: Normalisation | None,
    ) -> ModelSpec:
        """Joins wishes with what is public about the data.

        Args:
          input_shape: shape of one record.
          classes: number of classes or labels.
          task: what a record's label is.
          normalisation: public numbers by which inputs are centred and scaled.

        Raises:
          ParameterError: sizes are impossible, or the pretrained weights are not there.
        """
        return ModelSpec(
            name=self.name,
            input_shape=tuple(input_shape),
            classes=classes,
            task=task,
            activation=self.activation,
            hidden=tuple(self.hidden),
            dropout=self.dropout,
            weights=None if self.weights is None else str(self.weights),
            weights_digest=None if self.weights is None else place_digest(self.weights),
            trainable=tuple(self.trainable),
            normalisation=normalisation,
            seed=self.seed,
            adapter_rank=self.adapter_rank,
            adapted_layers=tuple(self.adapted_layers) if self.adapter_rank else ADAPTED,
        )


class ClippingConfig(Section):
    """How one record's gradient is bounded."""

    model_config = ConfigDict(title="Set here")

    kind: ClippingKind = ClippingKind.FLAT
    """flat: the whole gradient. per_layer: an equal share for each layer. adaptive: to a noisy
    quantile of the norms, paid for by more noise."""
    quantile: Fraction = 0.5
    """Of adaptive: share of gradients to leave whole."""
    quantile_step: PositiveFloat = Field(0.2, title="Step of the quantile")
    """Of adaptive: how fast the bound moves (logarithmic)."""
    count_noise: PositiveFloat = Field(0.05, title="Noise of the count")
    """Of adaptive: noise of the count, over the expected batch size."""


class AugmentationConfig(Section):
    """Random views of an image; their gradients are averaged before clipping, at no cost."""

    model_config = ConfigDict(title="Set here")

    multiplicity: int = Field(1, ge=1, le=64, title="Views")
    """Views per record and step; time grows in proportion."""
    flip: bool = Field(False, title="Mirrored")
    """Whether views may be mirrored left to right."""
    shift: NonNegativeInt = Field(0, title="Moved")
    """Most pixels by which a view is moved."""


class AveragingConfig(Section):
    """Which weights are released, select and are measured; free, as it follows the noise."""

    model_config = ConfigDict(title="Set here")

    kind: AveragingKind = AveragingKind.NONE
    """none: the last weights. exponential: a moving average over all steps. tail: the mean over the
    last steps of each phase."""
    decay: Fraction = 0.999
    """Of exponential."""
    tail: Share = 0.25
    """Of tail: share of a phase's steps."""


class TrainingConfig(Section):
    """How noisy gradients become steps, or a linear model is fitted without any."""

    method: TrainingMethod = TrainingMethod.DP_SGD
    """dp_sgd: noisy gradients, step by step. least_squares and prototypes: a linear model in one
    noisy release of each phase's own records, for model logistic on features."""
    components: int = Field(50, ge=1, title="Directions of features")
    """Of least_squares and prototypes: how many are kept, by a public validation set; all of them
    where it is protected."""
    max_feature_norm: Annotated[PositiveFloat | None, choice("At most", "By itself")] = Field(
        None, title="Length of features"
    )
    """Of least_squares and prototypes: longest features of a record; null takes the median length
    in a public validation set, or the root of how many there are."""
    optimizer: OptimizerName = "sgd"
    """What turns gradients into steps. sgd_agc: sgd with adaptive gradient clipping, for nets
    without normalisation."""
    learning_rate: PositiveFloat = 0.5
    """Step size."""
    max_grad_norm: PositiveFloat = Field(0.3, title="Clipping norm")
    """Longest gradient of one record."""
    momentum: Momentum = 0.9
    """Of sgd and sgd_agc."""
    weight_decay: NonNegativeFloat = 0.0
    """Pull of the weights towards zero; adamw applies it apart."""
    agc_clipping: PositiveFloat = Field(0.1, title="Clipping of sgd_agc")
    """Of sgd_agc: largest gradient of a unit over its weights."""
    clipping: Folded[ClippingConfig] = Field(default_factory=ClippingConfig)
    """How one record's gradient is bounded; usually as a whole, to the norm above."""
    augmentation: Folded[AugmentationConfig] = Field(default_factory=AugmentationConfig)
    """Random views of an image, at no cost in privacy; usually none."""
    averaging: Folded[AveragingConfig] = Field(default_factory=AveragingConfig)
    """Which weights are released; usually the last ones."""
    rate_schedule: RateSchedule = RateSchedule.CONSTANT
    """How the learning rate falls over each phase: constant, cosine, linear."""
    warmup: float = Field(0.0, ge=0, le=0.9, title="Warm-up")
    """Share of a phase's steps in which the rate grows first."""
    precision: Precision = Precision.FP32
    """Of the passes: fp32, tf32, bf16. Faster ones clip a little lower, so that rounding is
    covered."""

    def to_optimizer(self) -> OptimizerSpec:
        """The optimizer, as a frozen value."""
        return OptimizerSpec(
            name=self.optimizer,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            max_grad_norm=self.max_grad_norm,
            weight_decay=self.weight_decay,
            agc_clipping=self.agc_clipping,
        )

    def to_head(self) -> LinearHead | None:
        """How a linear model is fitted, as a frozen value; None where steps train."""
        if self.method is TrainingMethod.DP_SGD:
            return None
        return LinearHead(
            kind=HeadKind(self.method.value),
            components=self.components,
            max_feature_norm=self.max_feature_norm,
        )

    @model_validator(mode="after")
    def _one_method(self) -> TrainingConfig:
        """Requires that nothing is asked of a method which it cannot do.

        What an optimizer is told is no contradiction: settings may try both methods.
        """
        if self.method is TrainingMethod.DP_SGD:
            kept = type(self).model_fields["components"].default
            asked = {
                "components": self.components != kept,
                "max_feature_norm": self.max_feature_norm is not None,
            }
        else:
            views = self.augmentation
            asked = {
                "augmentation": views.flip or views.shift > 0,
                "averaging": self.averaging.kind is not AveragingKind.NONE,
                "clipping": self.clipping.kind is not ClippingKind.FLAT,
            }
        if idle := [name for name, given in asked.items() if given]:
            raise ValueError(
                f"training.{idle[0]} would do nothing beside training.method {self.method}; leave "
                "it out, or use another method"
            )
        return self

    def to_recipe(self) -> Recipe:
        """The rest, as a frozen value.

        Raises:
          ParameterError: settings contradict each other.
        """
        return Recipe(
            clipping=Clipping(**dict(self.clipping)),
            augmentation=Augmentation(**dict(self.augmentation)),
            averaging=Averaging(**dict(self.averaging)),
            rate_schedule=self.rate_schedule,
            warmup=self.warmup,
            precision=self.precision,
        )
