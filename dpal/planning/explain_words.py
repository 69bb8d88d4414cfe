"""Words that explanations of plans have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpal.accounting.events import NEVER_SELECTED
from dpal.errors import DpalError
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec, Strategy
from dpal.planning.certify_campaign import certified_plan, planner_of
from dpal.planning.cohort_budget import Budget
from dpal.privacy import Accountant

ROUNDED = 5e-5  # what four digits do not show


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One thing that a person should know about a plan.

    Attributes:
      topic: a few words.
      text: some sentences.
      numbers: those in the text, for programs.
    """

    topic: str
    text: str
    numbers: dict[str, Any]


def solved(spec: CampaignSpec) -> Plan | str:
    """A plan by its strategy, or the reason why there is none. Not certified."""
    try:
        return planner_of(spec)(Budget(spec, spec.planning_epsilon))
    except DpalError as error:
        return str(error)


def certified_or_why(spec: CampaignSpec) -> Plan | str:
    """A certified plan, or the reason why there is none."""
    try:
        return certified_plan(spec).plan
    except DpalError as error:
        return str(error)


def first_noise(plan: Plan) -> float:
    """The noise multiplier of phase 0."""
    return plan.phases[0].training.noise_multiplier


def telling_noise(plan: Plan) -> float:
    """Of phase 0; under noise reduction of the phase with the least."""
    if plan.spec.strategy is Strategy.NOISE_REDUCTION:
        return min(phase.training.noise_multiplier for phase in plan.labeling_phases)
    return first_noise(plan)


def total_steps(plan: Plan) -> int:
    """Steps on labeled records, of all phases."""
    return sum(phase.steps for phase in plan.labeling_phases)


def accountant_name(accountant: Accountant) -> str:
    """An accountant, for people."""
    return {
        Accountant.PLD: "privacy loss distributions (PLD)",
        Accountant.RDP: "Rényi bounds (RDP)",
    }[accountant]


def against(plan: Plan, here: Plan) -> str:
    """Another plan's noise and steps, beside this one's."""
    noise, ours = telling_noise(plan), telling_noise(here)
    steps, total = total_steps(plan), total_steps(here)
    words = [
        "the same noise"
        if abs(noise - ours) < ROUNDED
        else f"noise {noise:.4f} instead of {ours:.4f} ({noise / ours - 1:+.1%})",
        "as many steps"
        if steps == total
        else f"{steps:,} steps instead of {total:,} ({steps / total - 1:+.1%})",
    ]
    return " and ".join(words)


def more(count: int) -> str:
    """How a count compares: '7 more than', or 'as many as'."""
    return f"{count:,} more than" if count else "as many as"


def cohort_name(name: str) -> str:
    """A cohort, inside a sentence."""
    return "the never-selected" if name == NEVER_SELECTED else f"cohort {name}"


def cohorts_set(names: list[str]) -> str:
    """Subject and verb: who sets something."""
    if len(names) == 1:
        return f"Cohort {names[0]} sets"
    return f"Cohorts {listed(names)} set"


def listed(values: list[Any]) -> str:
    """Values in a sentence, as in '1, 2 and 3'."""
    words = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def shares(values: list[float]) -> str:
    """Shares in percent, in a sentence."""
    return listed([f"{value:.0%}" if value >= 0.1 else f"{value:.1%}" for value in values])
