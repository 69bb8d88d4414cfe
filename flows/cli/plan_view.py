"""What `dpal plan` shows of one campaign: its plan, why it is so, and the published one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dpal.planning.explain import explain
from dpal.planning.paper_plan import PublishedSchedule, published_schedule
from dpal.planning.plan import CertifiedPlan, Plan
from dpal.planning.spec import CampaignSpec, Strategy
from dpal.planning.timeline import timeline
from dpal.reports.figures.plan import cohorts_figure, schedule_figure, spending_figure
from dpal.reports.figures.style import save
from dpal.reports.report import Table
from dpal.reports.summary import (
    cohort_table,
    other_strategy,
    plan_table,
    shares_table,
)

Figures = Mapping[str, Callable[[], Figure]]


@dataclass(frozen=True, kw_only=True)
class View:
    """Something to show.

    Attributes:
      record: for programs.
      tables: for people.
      words: paragraphs below the tables; a title and a text, either may be empty.
      figures: by file name; drawn only when they are wanted.
    """

    record: dict[str, Any]
    tables: tuple[Table, ...]
    words: tuple[tuple[str, str], ...]
    figures: Figures


def planned(
    certified: CertifiedPlan, *, asked: Strategy, explained: bool, remarks: Sequence[str] = ()
) -> View:
    """The certified plan of a campaign.

    Args:
      certified: the plan.
      asked: the strategy that was asked for; the plan's is another where only that one certifies.
      explained: whether to say why it has its numbers.
      remarks: what is remarkable about its data.
    """
    spec, summary = certified.plan.spec, certified.summary()
    closing = (
        f"certified: {certified.epsilon:.4f} of {spec.target.epsilon:g}, for any record on "
        f"whatever path (accountant {spec.accountant})"
    )
    words = [("", closing)]
    if spec.strategy is not asked:
        words.append(("", other_strategy(spec.strategy, asked)))
    words += [("", f"note: {remark}") for remark in remarks]
    if remarks:
        summary["remarks"] = list(remarks)
    if explained:
        explanation = explain(certified)
        summary["explanation"] = [asdict(remark) for remark in explanation]
        words += [(remark.topic, remark.text) for remark in explanation]
    return View(
        record=summary,
        tables=(
            plan_table(summary),
            cohort_table(summary),
            *([shares_table(summary)] if spec.blocks else []),
        ),
        words=tuple(words),
        figures=_plan_figures(certified.plan),
    )


def published(spec: CampaignSpec) -> View:
    """The published schedule for the same settings, and what it would really spend."""
    schedule = published_schedule(spec)
    summary, plan = schedule.summary(), schedule.plan
    marked = replace(plan, spec=replace(plan.spec, name=f"{spec.name} AS PUBLISHED, NOT CERTIFIED"))
    return View(
        record=summary,
        tables=(
            replace(plan_table(summary), title="Published schedule, NOT CERTIFIED"),
            replace(cohort_table(summary), title="What it would really spend"),
        ),
        words=(("Not certified, and never run by dpal", _verdict(schedule)),),
        figures={f"published-{name}": draw for name, draw in _plan_figures(marked).items()},
    )


def draw(figures: Figures, folder: Path) -> list[str]:
    """Writes figures and returns their paths."""
    paths = []
    for name, draw in figures.items():
        path = folder / name
        save(draw(), path)
        paths.append(str(path))
    return paths


def _verdict(schedule: PublishedSchedule) -> str:
    spec = schedule.plan.spec
    promised, clip = spec.target.epsilon, spec.optimizer.max_grad_norm
    sentences = [
        "This is what the published code plans for these settings: one noise multiplier by Rényi "
        "bounds, rates of one over the whole number of batches, epsilons equalised after every "
        "phase.",
        f"By its own accountant a record ends at {schedule.epsilon_rdp:.4f}, "
        + (
            f"within the promised {promised:g}."
            if schedule.keeps_its_promise
            else f"above the promised {promised:g}: epsilons do not add up, and nothing checks "
            "where cohorts end."
        ),
        f"Tight accounting over all paths finds {schedule.epsilon_pld:.4f}"
        + (
            "; the slack of the bounds, not the plan, keeps the promise."
            if schedule.epsilon_pld <= promised < schedule.epsilon_rdp
            else "."
        ),
    ]
    if clip != 1:
        sentences.append(
            f"As run it would come to {schedule.epsilon_as_run:.4f}: with "
            f"training.max_grad_norm {clip:g} the published code divides the noise of phase 0 "
            f"by {clip:g}."
        )
    sentences.append("No setting asks for this schedule; see what dpal plans: dpal plan FILE.")
    return " ".join(sentences)


def _plan_figures(plan: Plan) -> dict[str, Callable[[], Figure]]:
    return {
        "budget-by-release.png": lambda: spending_figure(plan, timeline(plan)),
        "budget-by-cohort.png": lambda: cohorts_figure(plan, timeline(plan)),
        "schedule.png": lambda: schedule_figure(plan),
    }
