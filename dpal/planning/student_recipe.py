"""How a student learns from the answers that teachers released: fixed beforehand.

Answers are noisy and public records are public, so that nothing here costs budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpal import check
from dpal.canonical import LATER


@dataclass(frozen=True, kw_only=True)
class StudentTraining:
    """Plain training on released answers: no noise, no clipping, no charge.

    Attributes:
      method: "supervised" learns from answered records alone; "mixmatch" also from unanswered
        ones. All from `views` to `ramp` is read by mixmatch only. "least_squares" solves a linear
        model of the answered records, and reads nothing else of this.
      optimizer: "sgd" or "adam".
      learning_rate: at the start; it falls to zero along a cosine.
      epochs: passes over the answered records.
      batch_size: answered records of a step, and with mixmatch as many unanswered ones.
      weight_decay: pull of the weights towards zero.
      shift: most pixels by which a view of an image is moved; 0 for features.
      noise: standard deviation of the Gaussian jitter that makes a view of features, in units
        of the model's inputs; 0 for images.
      seed: of the order of the records, their views and mixtures; public.
      views: of an unanswered record; its guess is their mean (K of the publication).
      temperature: guesses are sharpened to the power of 1 / temperature (T); 1 leaves them.
      mixup: parameter of the Beta law of mixtures (alpha); 0 mixes nothing.
      unlabeled_weight: of the squared error of guesses, once ramped up (lambda_U).
      ramp: share of the steps over which that weight rises from 0, in [0, 1].
      balance: how far rare answers weigh as much as frequent ones: 0 not at all, 1 in full. Of
        either method.

    Source:
      Berthelot et al. (2019), "MixMatch: a holistic approach to semi-supervised learning".
    """

    method: str
    optimizer: str
    learning_rate: float
    epochs: int
    batch_size: int
    weight_decay: float = 0.0
    shift: int = 0
    noise: float = 0.0
    seed: int = 0
    views: int = 2
    temperature: float = 0.5
    mixup: float = 0.75
    unlabeled_weight: float = 10.0
    ramp: float = 0.25
    balance: float = field(default=0.0, metadata=LATER)

    def __post_init__(self) -> None:
        check.one_of(("supervised", "mixmatch", "least_squares"), **{"student.method": self.method})
        check.one_of(("sgd", "adam"), **{"student.optimizer": self.optimizer})
        check.positive(
            **{
                "student.learning_rate": self.learning_rate,
                "student.temperature": self.temperature,
            }
        )
        check.at_least(
            1,
            **{
                "student.epochs": self.epochs,
                "student.batch_size": self.batch_size,
                "student.views": self.views,
            },
        )
        check.at_least(
            0,
            **{
                "student.weight_decay": self.weight_decay,
                "student.shift": self.shift,
                "student.noise": self.noise,
                "student.mixup": self.mixup,
                "student.unlabeled_weight": self.unlabeled_weight,
            },
        )
        check.within(0, 1, **{"student.ramp": self.ramp, "student.balance": self.balance})
