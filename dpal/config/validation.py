"""Whose records figures are measured on: what a person declares, and where it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol, Self

from pydantic import ConfigDict, Field, PositiveFloat, model_validator

from dpal.config.data import DataConfig
from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.section import Count, Section
from dpal.data.held_out import MOST_HELD_OUT, HeldOutShare
from dpal.errors import ConfigError
from dpal.files.stored_objects import Place


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
    share: Annotated[
        float | None,
        Field(gt=0, le=MOST_HELD_OUT),
        choice("A share of the pool", "What data.validation names"),
    ] = None
    """Of the pool's records (of its groups, with data.group_column), held out by a declared coin
    for each id and protected, in place of data.validation; at most 0.5."""
    epsilon: Annotated[PositiveFloat | None, choice("A number", "The promise's")] = None
    """Of protected records: what all figures together may cost each; null is privacy.epsilon."""
    auc: bool = False
    """Of protected records with two classes, or several labels: release the area under the ROC
    curve, too, from noisy histograms of scores; other figures get 1.4 times the noise."""
    group_records: Count = 1
    """Of protected records, where privacy.unit, or the data set's, is group: the first records of
    each group that are measured, at most. Noise is in proportion."""

    @model_validator(mode="before")
    @classmethod
    def _share_is_protected(cls, values: Any) -> Any:
        """A share of the pool is as private as the pool is."""
        if isinstance(values, Mapping) and values.get("share") is not None:
            if values.get("public") or values.get("protected") is False:
                raise ValueError(
                    "validation.share holds records of the pool out, and they stay protected; "
                    "leave validation.public and validation.protected out"
                )
            return {**values, "protected": True}
        return values

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


def without_file_of_its_own(values: Any) -> Any:
    """Settings as they are written, in which a share of the pool needs no `data.validation`."""
    if not isinstance(values, Mapping):
        return values
    validation, data = values.get("validation"), values.get("data", {})
    share = validation.get("share") if isinstance(validation, Mapping) else None
    if isinstance(validation, DeclaredValidation):
        share = validation.share
    if share is None:
        return values
    if isinstance(data, DataConfig) and "validation" not in data.model_fields_set:
        return {**values, "data": data.model_copy(update={"validation": None})}
    if isinstance(data, Mapping) and "validation" not in data:
        return {**values, "data": {**data, "validation": None}}
    return values


def require_one_place(config: Measuring) -> None:
    """Requires that a validation set is in a file, or a share of the pool.

    Raises:
      ValueError: it is both or neither, or nobody could count what the share costs.
    """
    share = None if config.validation is None else config.validation.share
    if share is None and config.data.validation is None:
        raise ValueError(
            "data.validation is null, and nothing says what models are measured on; name a file, "
            "or hold a share of the pool out with validation: {share: 0.2}"
        )
    if share is not None and config.data.dataset is not None:
        raise ValueError(
            f"validation.share holds records out of the pool, and data.dataset "
            f"{config.data.dataset} counts all of them as learned from; give data.validation "
            "records that are in no data set"
        )
    if share is not None and config.data.validation is not None:
        raise ValueError(
            f"validation.share holds a share of the pool out, and data.validation names "
            f"{config.data.validation}; leave one of the two out (data.validation: null)"
        )


def refuse_share(validation: DeclaredValidation | None) -> None:
    """Refuses a share of the pool, for runs that are no campaigns.

    Raises:
      ValueError: one is asked for.
    """
    if validation is not None and validation.share is not None:
        raise ValueError(
            "validation.share holds out records that stay protected, and this measures as often "
            "as it likes, without noise; give data.validation public records (validation: "
            "{public: true, why: in words})"
        )


def held_out_share(data: DataConfig, declared: DeclaredValidation | None) -> HeldOutShare | None:
    """What holds records out of the pool; None where a file is the validation set."""
    if declared is None or declared.share is None:
        return None
    return HeldOutShare(share=declared.share, column=data.group_column or "id")


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


def require_public(config: Measuring) -> Place:
    """The validation set, of which figures may leave as they are.

    Raises:
      ConfigError: it is not declared public. Nothing was released.
    """
    place = config.data.validation
    if declared_validation(config).protected:
        raise ConfigError.before_release(
            f"{place or 'validation.share'} is protected, and this measures as often as it likes, "
            "without noise; give it public records (validation: {public: true, why: in words})"
        ).about("validation", "protected")
    if place is None:
        raise ConfigError.before_release(
            "data.validation is null, and this measures on records of a file; name one"
        ).about("data.validation", "missing")
    return place


def as_it_was_measured(declared: DeclaredValidation | None) -> DeclaredValidation:
    """What is declared of a validation set whose figures are out.

    Runs of versions that asked for no declaration have measured as on public records; what only
    reads what they left needs none.
    """
    return declared or DeclaredValidation(
        public=True, why="measured on when no declaration was asked for"
    )
