"""What a person writes who wants new files to become campaigns: the settings of a watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator
from pydantic import model_validator as _model_validator

from dpal.config.campaign import CampaignConfig
from dpal.config.cron import next_time, require_cron, require_timezone
from dpal.config.data import DataConfig
from dpal.config.guarded_settings import Guarded
from dpal.config.runtime import RuntimeConfig
from dpal.config.section import Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.config.validation import DeclaredValidation
from dpal.errors import ConfigError
from dpal.files.stored_objects import Place, StoredObject

_NAME = r"^[a-z0-9][a-z0-9_-]{0,55}$"  # leaves room for a rerun's number
_USUAL_MINUTES = 5.0
_YEAR_MINUTES = 366 * 24 * 60  # a date much further ahead is none that a clock can tell
_PLACEHOLDER = Path("pool")


def _without(settings: type[BaseModel], *left_out: str, **changed: Any) -> Any:
    """The same settings but for some, so that a form does not ask what a watch decides."""
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in settings.model_fields.items()
        if name not in left_out
    }
    made = create_model(
        f"Watched{settings.__name__}",
        __base__=Section,
        __doc__=settings.__doc__,
        **(fields | changed),
    )
    made.described_in = settings
    return made


if TYPE_CHECKING:

    class CampaignTemplate(Section):
        """A campaign's settings without its name, its pool and its data set."""

        start_from: str | None
        data: DataConfig
        validation: DeclaredValidation | None
        runtime: RuntimeConfig

else:
    _Data = _without(DataConfig, "pool", "dataset", "group_column")
    CampaignTemplate = _without(
        CampaignConfig, "name", data=(_Data, Field(default_factory=_Data, title="Data"))
    )


class WatchConfig(Section):
    """New Parquet files in a folder become blocks of a data set, and a campaign on all of them."""

    name: str = Field(pattern=_NAME)
    """Names the watch; its campaigns are NAME-0001, NAME-0002 and so on."""
    folder: Annotated[str, Guarded()]
    """Where new files arrive: a folder, or object storage (s3://bucket/inbox)."""
    dataset: Annotated[Name, Guarded(place=False, key="data.dataset")] = Field(title="Data set")
    """Registered data set (dpal data register) whose limit holds; new files become its blocks."""
    every_minutes: float | None = Field(
        None, gt=0, le=_YEAR_MINUTES, allow_inf_nan=False, title="Every so many minutes"
    )
    """How often the folder is looked at; null is 5, or as cron says."""
    cron: str | None = None
    """When the folder is looked at instead, such as '0 6 * * 1'."""
    timezone: str = Field("UTC", title="Time zone of cron")
    """Such as Europe/Berlin."""
    settle_seconds: float = Field(60.0, ge=0, allow_inf_nan=False, title="Settled after seconds")
    """A file is read once its size and time have stood still for so long."""
    unfinished_seconds: float = Field(
        600.0, ge=0, allow_inf_nan=False, title="Given up after seconds"
    )
    """A file that breaks off is taken for an upload in progress for so long, and is put into
    quarantine then."""
    quarantine: Annotated[str | None, Guarded(free=(None,))] = None
    """Where files go that cannot be used; null is quarantine in the folder."""
    campaign: CampaignTemplate
    """Settings of every campaign that the watch starts."""

    @property
    def minutes(self) -> float:
        """Minutes between two looks, where there is no cron."""
        return self.every_minutes or _USUAL_MINUTES

    @property
    def rhythm(self) -> str:
        """When the folder is looked at, in words: "every 5 minutes"."""
        if self.cron is not None:
            return f"by cron {self.cron} ({self.timezone})"
        return "every minute" if self.minutes == 1 else f"every {self.minutes:g} minutes"

    @property
    def quarantine_place(self) -> str:
        """Where files go that cannot be used."""
        return self.quarantine or f"{self.folder.rstrip('/')}/quarantine"

    def next_look(self, after: datetime) -> datetime:
        """When the folder is looked at next.

        Args:
          after: a time with a zone.
        """
        if self.cron is not None:
            return next_time(self.cron, self.timezone, after)
        return after + timedelta(minutes=self.minutes)

    def campaign_on(
        self, name: str, pool: Place | Sequence[Place], *, start_from: str | None = None
    ) -> CampaignConfig:
        """The settings of one of its campaigns.

        Args:
          name: of the campaign.
          pool: its private records.
          start_from: finished campaign that it goes on from.
        """
        values = self.campaign.model_dump()
        place = pool if isinstance(pool, Path | StoredObject) else list(pool)
        values["data"] |= {"pool": place, "dataset": self.dataset}
        values["runtime"] |= {"cron": None, "timezone": None}  # the watch starts it, no clock
        return CampaignConfig.model_validate({**values, "name": name, "start_from": start_from})

    @field_validator("campaign")
    @classmethod
    def _of_one_machine(cls, campaign: CampaignTemplate) -> CampaignTemplate:
        campaign.runtime.require_one_machine()
        return campaign

    @field_validator("folder", "quarantine")
    @classmethod
    def _shareable(cls, place: str | None) -> str | None:
        # Settings are shown on pages and kept in files: no secret may be in one.
        if place is not None and urlsplit(place).password is not None:
            raise ValueError(
                "folder holds a password, and settings are shown on pages; leave it out and put "
                "it where the storage's client looks, such as AWS_SECRET_ACCESS_KEY"
            )
        return place

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, text: str | None) -> str | None:
        return require_cron(text, setting="cron")

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str | None:
        return require_timezone(name, setting="timezone")

    @_model_validator(mode="after")
    def _consistent(self) -> WatchConfig:
        if self.cron is not None and self.every_minutes is not None:
            raise ValueError("cron and every_minutes both say when to look; keep one of the two")
        if self.quarantine and self.quarantine.rstrip("/") == self.folder.rstrip("/"):
            raise ValueError(
                "quarantine is the watched folder itself, where its files would be found again; "
                "choose another place"
            )
        try:
            self.campaign_on(f"{self.name}-0001", _PLACEHOLDER, start_from=self.campaign.start_from)
        except ValidationError as error:
            raise ValueError(f"campaign: {settings_refusal(error, CampaignConfig)}") from error
        return self


def is_watch(values: Mapping[str, Any]) -> bool:
    """Whether settings are those of a watch, and not of a campaign."""
    return "folder" in values and "campaign" in values


def template_values(values: Mapping[str, Any], *, dataset: object) -> dict[str, Any]:
    """What a whole campaign's settings say for the campaigns of a watch.

    Its name and its pool do not count: the watch gives both.

    Raises:
      ConfigError: it is about another data set.
    """
    kept = {key: value for key, value in values.items() if key != "name"}
    data = kept.get("data")
    if isinstance(data, Mapping):
        if data.get("dataset") not in (None, dataset):
            raise ConfigError(
                f"the campaign's data.dataset is {data['dataset']} and the watch's dataset is "
                f"{dataset}; make them one"
            )
        kept["data"] = {key: data[key] for key in data if key not in ("pool", "dataset")}
    return kept


def parse_watch(values: Mapping[str, Any]) -> WatchConfig:
    """Checks what a person wrote, the campaign's settings being in it.

    Raises:
      ConfigError: a key is unknown (with the nearest valid one), missing, of the wrong
        type, or contradicts another.
    """
    try:
        return WatchConfig.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, WatchConfig) from error
