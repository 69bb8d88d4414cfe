"""Whose records figures are measured on: what a person declares, and where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import ConfigDict, model_validator

from dpal.config.data import DataConfig
from dpal.config.guarded import Guarded
from dpal.config.section import Section
from dpal.config.settings_form import choice
from dpal.errors import ConfigError


class DeclaredValidation(Section):
    """Whether everybody may see the records of the validation set."""

    model_config = ConfigDict(title="Declared here")

    # Figures on records that are called public leave as they are.
    public: Annotated[bool, Guarded(place=False, free=(False,))] = False
    """That these records are public: every figure on them leaves as it is."""
    why: str = ""
    """In words: a published data set, records that were made up, people who agreed."""

    @model_validator(mode="after")
    def _in_words(self) -> Self:
        if not self.public:
            raise ValueError(
                "validation.public is false, and figures leave as they are; measure on public "
                "records, and declare them: validation: {public: true, why: in words}"
            )
        if not self.why.strip():
            raise ValueError(
                "validation.public declares that nobody has to be protected in the validation set; "
                "say in validation.why what makes that true"
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
            f"validation says nothing of {config.data.validation}, and figures on it leave as they "
            "are; declare validation: {public: true, why: in words} where everybody may see its "
            "records, else measure on other ones"
        ).about("validation", "missing")
    return config.validation


def require_public(config: Measuring) -> Path:
    """The validation set, of which figures may leave as they are.

    Raises:
      ConfigError: it is not declared public. Nothing was released.
    """
    declared_validation(config)
    return config.data.validation


def as_it_was_measured(declared: DeclaredValidation | None) -> DeclaredValidation:
    """What is declared of a validation set whose figures are out.

    Runs of versions that asked for no declaration have measured as on public records; what only
    reads what they left needs none.
    """
    return declared or DeclaredValidation(
        public=True, why="measured on when no declaration was asked for"
    )
