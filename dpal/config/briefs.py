"""What a person decides of a run: short forms, from which all settings follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from dpal.accounting.votes.mechanisms import FEWEST_TEACHERS
from dpal.config.data_place import DataPlace
from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.section import Count, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.privacy import Unit


class Brief(Section):
    """What a person decides of a run, whatever kind it is of: it has a name."""

    if TYPE_CHECKING:  # each has its own, where a form shows it
        name: str


B = TypeVar("B", bound=Brief)
_Private = Annotated[DataPlace, Guarded(key="data.pool")]
_Public = Annotated[DataPlace, Guarded(key="public.pool")]
_Weights = Annotated[
    Path | None, Guarded(key="data.backbone.weights", free=(None,)), choice("A folder", "None")
]


class CampaignBrief(Brief):
    """Data, a promise, and how many labels; the rest follows from what is public about the data."""

    model_config = ConfigDict(title="A new campaign")

    name: Name
    """Names the campaign, its folder and its model."""
    data: _Private
    """Parquet file or folder with private records: id, and image, features or text_a."""
    validation: Annotated[
        DataPlace | None,
        Guarded(key="data.validation", free=(None,)),
        choice("A file", "As the data says, else a fifth of it"),
    ] = Field(None, title="Held-out records")
    """Labeled records by which models are measured. Without a file: the rows that the data calls
    test, else a fifth of it, which is held out by a coin for each record and stays protected."""
    why_public: str = Field("", title="Why everybody may see the held-out records")
    """In words: a published data set, people who agreed. Empty protects them: figures get noise."""
    label_column: str = "label"
    """Name of the column of labels; empty ones are filled in by people."""
    group_column: Annotated[str | None, choice("A column", "Each record is one")] = Field(
        None, title="Whose a record is"
    )
    """The column that names people with several records: all that one has is then protected."""
    epsilon: PositiveFloat = Field(8.0, examples=[1, 3, 8])
    """What any record may lose; smaller is safer, 1 to 8 is common."""
    labels: Annotated[int | None, Field(ge=2), choice("A number", "By the data")] = None
    """How many may be bought in all: of records, or of people where they have several."""
    weights: _Weights = Field(None, title="Pretrained model")
    """For texts alone: folder of a public model that reads them."""

    @model_validator(mode="after")
    def _counted(self) -> CampaignBrief:
        if self.group_column is not None and self.labels is None:
            raise ValueError(
                "labels is how many people of group_column may be labeled; say it, as the data do "
                "not say how many there are"
            )
        return self


class ImprovementBrief(Brief):
    """A finished campaign and public records, some of which get a label; costs no epsilon."""

    model_config = ConfigDict(title="A new improvement with public records")

    name: Name
    """Names the improvement, its folder and its model."""
    campaign: Name = Field(title="Finished campaign")
    """Its model is improved; data, model and promise follow it."""
    public: _Public = Field(title="Public records")
    """Parquet file or folder with records like the private ones, of which nobody needs
    protection."""
    label_column: str = "label"
    """Name of the column of labels; where some are empty, people fill in those that are asked
    for."""
    labels: Annotated[int | None, Field(ge=1), choice("A number", "By the records")] = None
    """How many public records get a label; free of epsilon, and work for people."""


class VotingBrief(Brief):
    """Private and public records, a promise, and how many questions teachers answer."""

    model_config = ConfigDict(title="A new private voting")

    name: Name
    """Names the voting, its folder and its model."""
    data: _Private
    """Parquet file or folder with private, labeled records: id, and image, features or text_a."""
    public: _Public = Field(title="Public records")
    """Parquet file or folder with records like these, of which nobody needs protection; teachers
    vote on their labels."""
    validation: Annotated[DataPlace, Guarded(key="data.validation")] = Field(
        title="Held-out records"
    )
    """Labeled records that everybody may see, by which the model is measured."""
    why_public: str = Field(min_length=1, title="Why everybody may see the held-out records")
    """In words: a published data set, people who agreed."""
    label_column: str = "label"
    """Name of the column of labels, in all three."""
    group_column: Annotated[
        str | None, choice("A column", "A column named group, if there is one")
    ] = Field(None, title="Whose a record is")
    """The column that names people with several records: all that one has is then protected."""
    epsilon: PositiveFloat = Field(8.0, examples=[1, 3, 8])
    """What any record may lose for all questions together; smaller is safer, 1 to 8 is common."""
    queries: Annotated[int | None, Field(ge=1), choice("A number", "By the public records")] = (
        Field(None, title="Questions")
    )
    """How many public records teachers are asked about."""
    teachers: Annotated[
        int | None, Field(ge=FEWEST_TEACHERS), choice("A number", "By the private records")
    ] = None
    """So many models, each on its own part of the private records; more of them hide each
    better."""
    weights: _Weights = Field(None, title="Pretrained model")
    """For texts alone: folder of a public model that reads them."""


class VotesBrief(Brief):
    """Ballots that lie in files, who is behind them, and a promise."""

    model_config = ConfigDict(title="New votes on ballots in files")

    name: Name
    """Names the account of these teachers in the ledger; it is charged for all that they answer."""
    ballots: Annotated[list[Path], Field(min_length=1), Guarded(key="ballots.files")]
    """Parquet: id, teacher, and ballot (0/1 lists), scores (lists) or class; one file, or one for
    each teacher."""
    records: Count = Field(title="Private records")
    """Behind all teachers together."""
    unit: Unit = Unit.RECORD
    """What belongs to one teacher alone, and is protected: each record, or each group."""
    epsilon: PositiveFloat = Field(8.0, examples=[1, 3, 8])
    """What any of them may lose for all questions together; smaller is safer, 1 to 8 is common."""
    answer_from: Annotated[
        float | None, Field(gt=0, le=1), choice("A share", "Every question is answered")
    ] = None
    """Share of the teachers whose agreement is answered with chance 0.9, such as 0.7; noise is
    smaller then."""
    after: Annotated[Name | None, choice("An account", "None")] = None
    """Account of the same teachers that has answered before; what it spent counts."""


def parse_brief(form: type[B], values: Brief | Mapping[str, Any]) -> B:
    """Checks what a form sent.

    Args:
      form: which one it was.
      values: as they came.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    if isinstance(values, form):
        return values
    try:
        return form.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, form) from error
