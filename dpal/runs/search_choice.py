"""What a search among settings came to: each trial, what it reached, and which one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpal.errors import DataError
from dpal.files.artifacts import damaged
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.runs.campaign_run import Campaign


@dataclass(frozen=True, kw_only=True)
class SearchChoice:
    """Follows from what was released, and from nothing else.

    Attributes:
      trials: metrics of each, in order, by the keys of a phase's.
      best: number of the trial whose model and settings go on, from 1.
      optimizer: its settings.
    """

    trials: tuple[Mapping[str, Any], ...]
    best: int
    optimizer: OptimizerSpec

    def to_json(self) -> str:
        """As text, with what `Plan` knows of it repeated for people."""
        told = {"best": self.best, "optimizer": asdict(self.optimizer), "trials": self.trials}
        return json.dumps(told, indent=2)


def search_choice(campaign: Campaign) -> SearchChoice | None:
    """What the campaign's search came to; None where its plan has none.

    Raises:
      DataError: the file that says so is missing or damaged.
    """
    if campaign.plan.trial is None:
        return None
    path = campaign.folder.phase(0).search
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        best = int(told["best"])
        trials = campaign.plan.spec.trials
        if not 1 <= best <= len(trials) == len(told["trials"]):
            raise damaged(path)
        return SearchChoice(trials=tuple(told["trials"]), best=best, optimizer=trials[best - 1])
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing, which says what the search came to; restore it (`dvc checkout` "
            f"or `dvc pull` in {campaign.folder.root.parent}), nothing more was released"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path) from error
