"""Why a plan of any kind costs what it costs, in words. Every number is computed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.planning.explain_words import Remark
from dpal.planning.plan_interface import Certified, RunPlan
from dpal.privacy import Accountant, Adjacency

_CHANGE = {
    Adjacency.ZERO_OUT: "is blanked",
    Adjacency.REPLACE_ONE: "is replaced by any other",
}
_MOST_LISTED = 8  # releases; of more the first and the last are named


@dataclass(frozen=True, kw_only=True)
class Grown:
    """How epsilon grows from release to release.

    Attributes:
      names: of the releases, in order; the first is what was released before, if anything was.
      alone: what each would cost by itself.
      together: what all up to each cost.
      accountant: by which.
    """

    names: tuple[str, ...]
    alone: tuple[float, ...]
    together: tuple[float, ...]
    accountant: Accountant


def grown(plan: RunPlan) -> Grown:
    """Adds up a plan release by release, by its own accountant."""
    releases, before, target = list(plan.releases()), plan.before, plan.target
    names, alone, together = [], [], []
    if before is not None and (before.releases or before.declared is not None):
        start = total_epsilon(before, (), target, accountant=plan.accountant)
        names.append(before.campaign or "the start")
        alone.append(start)
        together.append(start)
    for count, release in enumerate(releases, start=1):
        names.append(release.name)
        alone.append(total_epsilon(None, [release], target, accountant=plan.accountant))
        whole = total_epsilon(
            before or PriorSpend(), releases[:count], target, accountant=plan.accountant
        )
        # Each total has its own grid; what was spent stays spent.
        together.append(max([whole, *together[-1:]]))
    return Grown(
        names=tuple(names),
        alone=tuple(alone),
        together=tuple(together),
        accountant=plan.accountant,
    )


def explain_releases(certified: Certified[RunPlan]) -> tuple[Remark, ...]:
    """Explains the promise, what is released, what it adds up to, and what is left."""
    story = grown(certified.plan)
    return (_promise(certified), *_released(story), _left(certified))


def _promise(certified: Certified[RunPlan]) -> Remark:
    target = certified.plan.target
    return Remark(
        topic="What is promised",
        text=(
            f"For every private {target.unit}: if its content {_CHANGE[target.adjacency]} "
            f"(adjacency {target.adjacency}), no statement about all that is released becomes more "
            f"than exp({target.epsilon:g}) times as likely, but for a chance of delta "
            f"{target.delta:.3g}. The plan spends {certified.epsilon:.4f} by the accountant "
            f"{certified.plan.accountant}; dp-accounting, the second opinion, finds "
            f"{certified.epsilon_oracle:.4f}."
        ),
        numbers={
            "target_epsilon": target.epsilon,
            "delta": target.delta,
            "epsilon": certified.epsilon,
            "epsilon_oracle": certified.epsilon_oracle,
        },
    )


def _released(story: Grown) -> tuple[Remark, ...]:
    if not story.names:
        text = "Nothing that depends on private records."
        return (Remark(topic="What is released", text=text, numbers={}),)
    listed = list(zip(story.names, story.alone, strict=True))
    shown = listed if len(listed) <= _MOST_LISTED else [listed[0], listed[-1]]
    said = ", ".join(f"{name} ({epsilon:.4f} alone)" for name, epsilon in shown)
    more = f", {len(listed):,} releases in all" if len(shown) < len(listed) else ""
    apart = sum(story.alone)
    text = f"In order: {said}{more}."
    if len(listed) > 1:
        text += (
            f" Their epsilons alone add up to {apart:.4f}; composed they cost "
            f"{story.together[-1]:.4f}, as what is improbable for one release is not so for all."
        )
    numbers: dict[str, Any] = {"alone": list(story.alone), "together": story.together[-1]}
    return (Remark(topic="What is released", text=text, numbers=numbers),)


def _left(certified: Certified[RunPlan]) -> Remark:
    target = certified.plan.target
    left = target.epsilon - certified.epsilon
    text = (
        f"{left:.4f} of epsilon {target.epsilon:g} is not used; it cannot be released later under "
        "this promise, as the plan is held as a whole."
        if left > 5e-5
        else f"Nothing of epsilon {target.epsilon:g} is left."
    )
    return Remark(topic="What is left", text=text, numbers={"left": max(0.0, left)})
