"""What a search among settings came to: each trial, what it reached, and which one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder, damaged
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.runs.campaign import Campaign


@dataclass(frozen=True, kw_only=True)
class SearchChoice:
    """Follows from what was released, and from nothing else.

    Attributes:
      settings: of each trial, in order.
      reached: metrics of each, by the keys of a phase's.
      best: number of the trial whose model and settings go on, from 1.
    """

    settings: tuple[OptimizerSpec, ...]
    reached: tuple[Mapping[str, Any], ...]
    best: int

    @property
    def optimizer(self) -> OptimizerSpec:
        """The settings that go on."""
        return self.settings[self.best - 1]

    def to_json(self) -> str:
        """As text; settings stand in the plan, too."""
        settings = [asdict(one) for one in self.settings]
        told = {"best": self.best, "settings": settings, "trials": self.reached}
        return json.dumps(told, indent=2)


def search_choice(campaign: Campaign) -> SearchChoice | None:
    """What the campaign's search came to; None where its plan has none.

    Raises:
      DataError: the file that says so is missing or damaged.
    """
    if campaign.plan.trial is None:
        return None
    path, trials = campaign.folder.phase(0).search, campaign.plan.spec.trials
    told = recorded_search(campaign.folder)
    if told is None:
        raise DataError(
            f"{path} is missing, which says what the search came to; restore it (`dvc checkout` "
            f"or `dvc pull` in {campaign.folder.root.parent}), nothing more was released"
        )
    if not len(told["trials"]) == len(trials) >= told["best"]:
        raise damaged(path)
    return SearchChoice(settings=trials, reached=tuple(told["trials"]), best=told["best"])


def optimizer_of(campaign: Campaign) -> OptimizerSpec:
    """The settings that a campaign trains with: the planned ones, or those that its search found.

    Raises:
      DataError: as `search_choice`.
    """
    choice = search_choice(campaign)
    return campaign.plan.spec.optimizer if choice is None else choice.optimizer


def recorded_search(folder: CampaignFolder) -> Mapping[str, Any] | None:
    """What `search_settings` wrote down: `best`, `settings`, `trials`; None where it did not.

    Raises:
      DataError: the file is damaged.
    """
    path = folder.phase(0).search
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        whole = 1 <= int(told["best"]) <= len(told["trials"]) == len(told["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path) from error
    if not whole:
        raise damaged(path)
    return dict(told)
