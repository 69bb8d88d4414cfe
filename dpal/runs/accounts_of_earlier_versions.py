"""How an account that was opened before is charged, so that it goes on as it began."""

from __future__ import annotations

from pathlib import Path

from dpal.accounting.events import NoisyVotes
from dpal.accounting.votes.mechanisms import PLURALITY
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.planning.voting_plan import SUMMARY


def charged_by_answers(folder: Path) -> bool:
    """Whether winners of the account in a folder are charged by what answers tell.

    Accounts that earlier versions opened are charged by their noisy counts, and their plan is held:
    it stays what it is. New ones are charged by answers.
    """
    if not (folder / RECORD).is_file():
        return True
    plan = CampaignFolder(folder).read_record()["plan"]
    if plan.get("mechanism") not in PLURALITY:
        return True
    blocks = [release for release in plan["releases"] if release["release"] != SUMMARY]
    return not any(release["mechanism"] == NoisyVotes.mechanism for release in blocks)


def earlier_bound(folder: Path) -> tuple[float, CostBound] | None:
    """Sigma and bound of an account that a version opened which knew no other way to choose them.

    None for a new account, and for one whose guess is recorded: its bound is found again.
    """
    if not (folder / RECORD).is_file():
        return None
    plan = CampaignFolder(folder).read_record()["plan"]
    bound = plan.get("bound")
    if bound is None or "agreement" in plan:
        return None
    return float(plan["sigma"]), CostBound(**bound)
