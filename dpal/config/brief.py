"""What a person decides of a campaign: a short form, from which all settings follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from dpal.config.data_place import DataPlace
from dpal.config.guarded import Guarded
from dpal.config.help import settings_refusal
from dpal.config.section import Name, Section
from dpal.config.settings_form import choice


class CampaignBrief(Section):
    """Data, a promise, and how many labels; the rest follows from what is public about the data."""

    model_config = ConfigDict(title="A new campaign")

    name: Name
    """Names the campaign, its folder and its model."""
    data: Annotated[DataPlace, Guarded(key="data.pool")]
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
    weights: Annotated[
        Path | None, Guarded(key="data.backbone.weights", free=(None,)), choice("A folder", "None")
    ] = Field(None, title="Pretrained model")
    """For texts alone: folder of a public model that reads them."""

    @model_validator(mode="after")
    def _counted(self) -> CampaignBrief:
        if self.group_column is not None and self.labels is None:
            raise ValueError(
                "labels is how many people of group_column may be labeled; say it, as the data do "
                "not say how many there are"
            )
        return self


def parse_brief(values: CampaignBrief | Mapping[str, Any]) -> CampaignBrief:
    """Checks what a form sent.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    if isinstance(values, CampaignBrief):
        return values
    try:
        return CampaignBrief.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, CampaignBrief) from error
