"""All settings of a campaign, from the few that a person decides."""

from __future__ import annotations

from typing import Any

import yaml

from dpal.config.brief import CampaignBrief
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.files.artifacts import RECORD
from dpal.privacy import Unit
from dpal.runs.first_settings import first_settings, look_at
from dpal.runs.kinds import folder_of
from dpal.runs.recorded_settings import recorded_as


def settings_of_brief(brief: CampaignBrief) -> CampaignConfig:
    """Settings that plan, as `dpal init --data` writes them; nothing is released.

    A campaign of this name that has begun goes on with the settings that it has.

    Raises:
      ConfigError: what was decided contradicts itself, or the campaign of this name is of another
        kind of run.
      DataError: a file is no pool, or no record with a label can be held out.
    """
    folder = folder_of(parse_config({"name": brief.name}))
    if (folder.root / RECORD).is_file() and (begun := recorded_as(folder, CampaignConfig)):
        return begun
    look = look_at(
        brief.data,
        brief.validation,
        label_column=brief.label_column,
        group_column=brief.group_column,
    )
    why = brief.why_public.strip() or None
    text = first_settings(
        look,
        brief.name,
        why_public=why,
        epsilon=brief.epsilon,
        labels=brief.labels,
        weights=brief.weights,
    )
    values: dict[str, Any] = yaml.safe_load(text)
    if brief.group_column is not None:
        values["data"]["group_column"] = brief.group_column
        values["privacy"]["unit"] = Unit.GROUP.value
    return parse_config(values)
