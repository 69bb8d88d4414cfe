"""Settings that a run's folder records."""

from __future__ import annotations

from typing import TypeVar, cast

from dpal.config.campaign import CampaignConfig
from dpal.config.improvement import PublicConfig
from dpal.config.runtime import RunConfig
from dpal.config.validation import as_it_was_measured
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.host import host
from dpal.runs.kinds import campaign_of, kind_of, parse_any, recorded_kind

S = TypeVar("S", bound=RunConfig)


def recorded_settings(folder: CampaignFolder) -> RunConfig:
    """Settings that a run was last run with, wherever its folder is now.

    Raises:
      ConfigError: they are not valid any more, or not all of them are there.
      NotAllowed: they name what only the data's owner may widen.
    """
    values = folder.read_record()["config"]
    values["runtime"]["artifacts"] = str(folder.root.resolve().parent)
    config, kind = parse_any(values), recorded_kind(folder)
    if kind_of(config) is not kind:
        raise ConfigError(
            f"{folder.name} is {kind.in_sentences}, and its folder does not record all of its "
            "settings; name the file that they are in"
        )
    host().require_allowed(config)
    return config


def settings_that_measured(folder: CampaignFolder) -> RunConfig:
    """The same, of a run that measures nothing any more, also where it declared nothing."""
    config = recorded_settings(folder)
    if "validation" not in type(config).model_fields:
        return config
    measured = as_it_was_measured(getattr(config, "validation"))  # noqa: B009  of most kinds
    return config.model_copy(update={"validation": measured})


def recorded_as(folder: CampaignFolder, settings: type[S]) -> S | None:
    """The same, where they are of such a schema; None where the folder is of another run."""
    if not issubclass(recorded_kind(folder).settings, settings):
        return None
    config = recorded_settings(folder)
    return config if isinstance(config, settings) else None


def recorded_config(folder: CampaignFolder) -> CampaignConfig:
    """Settings of a campaign.

    Raises:
      ConfigError: it is an improvement's, which is no campaign.
    """
    return campaign_of(settings_that_label(folder))


def settings_that_label(folder: CampaignFolder) -> CampaignConfig | PublicConfig:
    """Settings of a campaign or of an improvement, which ask somebody for labels.

    Raises:
      ConfigError: they are of another run.
    """
    kind = recorded_kind(folder)
    if "labeler" not in kind.settings.model_fields:
        raise ConfigError(
            f"{folder.name} is {kind.in_sentences} and no campaign; see its report.md, and run the "
            "same again to continue it"
        )
    return cast("CampaignConfig | PublicConfig", recorded_settings(folder))
