"""How training turns records into steps, beyond sample rates and noise: fixed beforehand.

Part of the plan, because it decides what is computed from records. Nothing here costs
budget: clipping bounds every record whatever the recipe, an adaptive threshold is paid for
by more noise on the gradients, and the rest works on single records or on released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, get_args

from dpal import check
from dpal.errors import ParameterError

OptimizerName = Literal["sgd", "sgd_agc", "adam", "adamw", "nadam"]
OPTIMIZERS: tuple[str, ...] = get_args(OptimizerName)

# Norms are sums of squares in float32, which holds none below 1e-45: of a record's gradient that is
# shorter than about 1e-22, or than 1e-18 in a hundred million numbers, nothing is measured, and
# nothing would be clipped. An adaptive bound may fall to a millionth of where it begins.
LEAST_NORM: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """How noisy gradients become steps.

    Attributes:
      name: one of `OPTIMIZERS`.
      learning_rate: step size, before a schedule.
      momentum: of sgd and sgd_agc; the others ignore it.
      max_grad_norm: clipping norm C of one record's gradient; LEAST_NORM at least.
      weight_decay: share of the weights that is taken off per unit of learning rate; adamw
        takes it off apart from the gradient, the others add it to the noisy gradient.
      agc_clipping: of sgd_agc: largest norm of a unit's noisy gradient over the norm of its
        weights.
    """

    name: str
    learning_rate: float
    momentum: float
    max_grad_norm: float
    weight_decay: float = 0.0
    agc_clipping: float = 0.1

    def __post_init__(self) -> None:
        check.one_of(OPTIMIZERS, **{"training.optimizer": self.name})
        check.positive(
            **{
                "training.learning_rate": self.learning_rate,
                "training.agc_clipping": self.agc_clipping,
            }
        )
        check.at_least(LEAST_NORM, **{"training.max_grad_norm": self.max_grad_norm})
        check.within(0, 1, **{"training.momentum": self.momentum})
        check.at_least(0, **{"training.weight_decay": self.weight_decay})

    @property
    def alike(self) -> OptimizerSpec:
        """The same without what it ignores: equal ones train alike."""
        momentum = self.momentum if self.name in ("sgd", "sgd_agc") else 0.0
        clipping = self.agc_clipping if self.name == "sgd_agc" else 1.0
        return replace(self, momentum=momentum, agc_clipping=clipping)


class ClippingKind(StrEnum):
    """What is clipped.

    FLAT: the whole gradient of a record.
    PER_LAYER: the part of each layer, to an equal share of the squared norm.
    ADAPTIVE: the whole gradient, to a released quantile of the norms.
    """

    FLAT = "flat"
    PER_LAYER = "per_layer"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """How a record's gradient is bounded; the bound at the start is `max_grad_norm`.

    Attributes:
      kind: what is clipped.
      quantile: share of records whose gradients an adaptive bound should leave whole.
      quantile_step: how fast an adaptive bound moves, on a logarithmic scale.
      count_noise: noise standard deviation on an adaptive bound's count of records, over
        `expected_batch_size`; the gradients' noise grows so that both together cost what
        the gradients alone would.

    Source:
      Adaptive: Andrew, Thakkar, McMahan & Ramaswamy (2021), "Differentially private
      learning with adaptive clipping", Algorithm 1 and Theorem 1.
    """

    kind: ClippingKind = ClippingKind.FLAT
    quantile: float = 0.5
    quantile_step: float = 0.2
    count_noise: float = 0.05

    def __post_init__(self) -> None:
        check.inside(0, 1, **{"training.clipping.quantile": self.quantile})
        check.positive(
            **{
                "training.clipping.quantile_step": self.quantile_step,
                "training.clipping.count_noise": self.count_noise,
            }
        )

    def gradient_noise(self, noise_multiplier: float, *, expected_batch_size: float) -> float:
        """Noise multiplier of the gradient alone, when gradient and count cost as planned.

        Args:
          noise_multiplier: of both together.
          expected_batch_size: public divisor.

        Raises:
          ParameterError: the count's noise leaves no room for the gradient.
        """
        if self.kind is not ClippingKind.ADAPTIVE:
            return noise_multiplier
        count = 2 * self.count_noise * expected_batch_size  # over its sensitivity, 1/2
        if count <= noise_multiplier:
            raise ParameterError(
                f"training.clipping.count_noise {self.count_noise:g} of a batch of "
                f"{expected_batch_size:g} is too little noise on the count for a noise multiplier "
                f"of {noise_multiplier:.4g}; set it above "
                f"{noise_multiplier / (2 * expected_batch_size):.3g}"
            )
        return 1.0 / math.sqrt(noise_multiplier**-2 - count**-2)


class Precision(StrEnum):
    """Arithmetic of forward and backward passes; norms, sums and noise stay in float32 or 64."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"

    @property
    def slack(self) -> float:
        """How much larger than computed a record's contribution may be, relatively.

        Clipping aims below `max_grad_norm` by this much, so that the noise multiplier in
        the accountant is the true one. Measured: 1e-5 in float32, 2.2e-3 in bfloat16.
        """
        return {Precision.FP32: 1e-4, Precision.TF32: 1e-3, Precision.BF16: 5e-3}[self]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random views of a record, whose gradients are averaged before clipping.

    Attributes:
      multiplicity: views per record and step; 1 without `flip` and `shift` is the record.
      flip: whether views may be mirrored left to right.
      shift: most pixels by which a view is moved, in either direction.

    Source: De, Berrada, Hayes, Smith & Balle (2022), Sec. 3.2.
    """

    multiplicity: int = 1
    flip: bool = False
    shift: int = 0

    @property
    def changes_records(self) -> bool:
        """Whether a view is anything but the record itself."""
        return self.flip or self.shift > 0

    def __post_init__(self) -> None:
        check.at_least(1, **{"training.augmentation.multiplicity": self.multiplicity})
        check.at_least(0, **{"training.augmentation.shift": self.shift})
        if self.multiplicity > 1 and not self.changes_records:
            raise ParameterError(
                f"training.augmentation.multiplicity {self.multiplicity} would repeat one view of "
                "a record; set training.augmentation.flip or shift, or multiplicity 1"
            )


class AveragingKind(StrEnum):
    """Which weights are released beside the last ones.

    NONE: the last ones alone.
    EXPONENTIAL: a moving average over all steps.
    TAIL: the mean over the last steps of a phase.
    """

    NONE = "none"
    EXPONENTIAL = "exponential"
    TAIL = "tail"


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """How released weights are averaged: post-processing, and free.

    Attributes:
      kind: which average is the model that selects, is evaluated and is released.
      decay: of the exponential average; early in training it is smaller.
      tail: share of a phase's steps, the last ones, that the mean is over.
    """

    kind: AveragingKind = AveragingKind.NONE
    decay: float = 0.999
    tail: float = 0.25

    def __post_init__(self) -> None:
        check.inside(0, 1, **{"training.averaging.decay": self.decay})
        check.positive(**{"training.averaging.tail": self.tail})
        check.within(0, 1, **{"training.averaging.tail": self.tail})


class RateSchedule(StrEnum):
    """How the learning rate moves over the steps of a phase, from its full value."""

    CONSTANT = "constant"
    COSINE = "cosine"
    LINEAR = "linear"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about training that the optimizer and the phases leave open.

    Attributes:
      clipping: how a record's gradient is bounded.
      augmentation: views of a record.
      averaging: which weights count.
      rate_schedule: of the learning rate, in every phase anew.
      warmup: share of a phase's steps in which the rate grows to its full value.
      precision: arithmetic of the passes.
    """

    clipping: Clipping = field(default_factory=Clipping)
    augmentation: Augmentation = field(default_factory=Augmentation)
    averaging: Averaging = field(default_factory=Averaging)
    rate_schedule: RateSchedule = RateSchedule.CONSTANT
    warmup: float = 0.0
    precision: Precision = Precision.FP32

    def __post_init__(self) -> None:
        check.within(0, 0.9, **{"training.warmup": self.warmup})
