"""Whose records figures are measured on: what a person declares, and where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import ConfigDict, PositiveFloat, model_validator

from dpal.config.data import DataConfig
from dpal.config.guarded import Guarded
from dpal.config.section import Count, Section
from dpal.config.settings_form import choice
from dpal.errors import ConfigError


class DeclaredValidation(Section):
    """Whether everybody may see the records of the validation set, or figures protect them."""

    model_config = ConfigDict(title="Declared here")

    # Figures on records that are called public leave as they are.
    public: Annotated[bool, Guarded(place=False, free=(False,))] = False
    """That these records are public: every figure on them leaves as it is."""
    why: str = ""
    """Of public records, in words: a published data set, people who agreed."""
    protected: bool = False
    """That these records are private: figures on them leave as noisy counts, once a phase, and keep
    the promise."""
    epsilon: Annotated[PositiveFloat | None, choice("A number", "The promise's")] = None
    """Of protected records: what all figures together may cost each; null is privacy.epsilon."""
    auc: bool = False
    """Of protected records with two classes, or several labels: release the area under the ROC
    curve, too, from noisy histograms of scores; other figures get 1.4 times the noise."""
    group_records: Count = 1
    """Of protected records, where privacy.unit, or the data set's, is group: the first records of
    each group that are measured, at most. Noise is in proportion."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.public is self.protected:
            raise ValueError(
                "validation is either public or protected; set public: true and why (everybody may "
                "see its records), or protected: true (figures get noise, and are charged)"
            )
        if self.public and not self.why.strip():
            raise ValueError(
                "validation.public declares that nobody has to be protected in the validation set; "
                "say in validation.why what makes that true"
            )
        if self.public and self.epsilon is not None:
            raise ValueError(
                "validation.epsilon is of protected records, and these are public; leave it null"
            )
        if self.public and self.auc:
            raise ValueError(
                "validation.auc is of protected records, and these are public; leave it out"
            )
        if self.public and self.group_records != 1:
            raise ValueError(
                "validation.group_records is of protected records, and these are public; leave it "
                "out"
            )
        return self


MayBeDeclared = Annotated[
    DeclaredValidation | None, choice("Declared here", "Not declared: nothing runs")
]


class Measuring(Protocol):
    """Settings that name a validation set."""

    @property
    def data(self) -> DataConfig:
        """Where it is."""

    @property
    def validation(self) -> DeclaredValidation | None:
        """What is declared of it."""


def declared_validation(config: Measuring) -> DeclaredValidation:
    """What is declared of a validation set.

    Raises:
      ConfigError: nothing is. Nothing was released.
    """
    if config.validation is None:
        raise ConfigError.before_release(
            f"validation says nothing of {config.data.validation}; declare validation: {{public: "
            "true, why: in words} where everybody may see its records, or validation: {protected: "
            "true} so that figures get noise and are charged"
        ).about("validation", "missing")
    return config.validation


def require_public(config: Measuring) -> Path:
    """The validation set, of which figures may leave as they are.

    Raises:
      ConfigError: it is not declared public. Nothing was released.
    """
    if declared_validation(config).protected:
        raise ConfigError.before_release(
            f"{config.data.validation} is protected, and this measures as often as it likes, "
            "without noise; give it public records (validation: {public: true, why: in words})"
        ).about("validation", "protected")
    return config.data.validation


def as_it_was_measured(declared: DeclaredValidation | None) -> DeclaredValidation:
    """What is declared of a validation set whose figures are out.

    Runs of versions that asked for no declaration have measured as on public records; what only
    reads what they left needs none.
    """
    return declared or DeclaredValidation(
        public=True, why="measured on when no declaration was asked for"
    )
