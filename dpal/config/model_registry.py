"""Of which registered model a run makes a version, and how the champion among them moves."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.section import Name, Section

CHAMPION = "champion"  # the alias that the rule moves
MOST_LOSS = 0.1  # more than that is no version of the same quality


class ChampionRule(StrEnum):
    """What moves the alias champion to another version of a registered model."""

    PERSON = "person"
    NOT_WORSE = "not_worse"


class RegistryConfig(Section):
    """Of which registered model this run makes a version, and what makes it the champion."""

    line: Annotated[
        Name | None,
        Guarded(place=False, free=(None,)),
        choice("A name", "The data set's, else the run's"),
    ] = Field(None, title="Registered as a version of")
    """The registered model is dpal-LINE. null: LINE is the registered data set, so that reruns on
    it, and campaigns of a watch, are versions of one model; without a data set it is the run."""
    champion: Annotated[ChampionRule, Guarded(place=False, free=(ChampionRule.PERSON,))] = Field(
        ChampionRule.PERSON, title="What moves the champion"
    )
    """person: dpal promote alone. not_worse: a new version becomes champion by itself if its
    certificate holds, its model is better than the most frequent answer, and its validation figure
    is not below any earlier champion's by more than most_loss, on the same validation set."""
    most_loss: float = Field(0.01, ge=0, le=MOST_LOSS, allow_inf_nan=False, title="Most loss")
    """Of not_worse: by how much the figure may be lower; 0.01 is one point of accuracy."""
