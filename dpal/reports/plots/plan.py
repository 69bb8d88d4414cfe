"""Figures of a plan: budgets by cohort and phase, and its schedule.

Every figure says whose epsilon it shows: the promise, delta, adjacency, unit and accountant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dpal.accounting.events import NEVER_SELECTED, SELECTION
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.epsilon_timeline import Timeline
from dpal.planning.explain_releases import Grown
from dpal.planning.schedule import BasePhase
from dpal.planning.self_training import base_of
from dpal.reports.plan_and_phase_tables import cohort_words, shared_promise
from dpal.reports.plots import style

_HATCH: Final = "////"
_FEWEST: Final = 3  # bars that one alone leaves room for
_NEAR: Final = 0.93  # of the promise; a number above such a bar would cross its line


def spending_figure(plan: Plan, grown: Timeline) -> Figure:
    """How epsilon grows from release to release, one line per cohort, and over all paths."""
    figure, [axes] = _canvas(plan, "Budget spent from release to release", size=(8.6, 4.8))
    places = range(len(grown.releases))
    top = axes.get_xaxis_transform()
    for place, (kind, phase) in enumerate(grown.releases):
        if kind == SELECTION:
            axes.axvspan(place - 0.5, place + 0.5, color="#f1f4f7", zorder=0)
            shown = {"fontsize": 7, "ha": "center", "va": "top", "xycoords": top}
            style.note(axes, f"selection {phase}", (place, 0.99), shift=(0, 0), **shown)
    colors = style.colors_for(len(plan.phases))
    for number, (cohort, epsilons) in enumerate(grown.cohorts.items()):
        never = cohort == NEVER_SELECTED
        axes.plot(
            places,
            epsilons,
            marker="o",
            markersize=4,
            color=style.GREY if never else colors[number],
            linestyle=":" if never else "-",
            label=f"{cohort_words(cohort)}: {epsilons[-1]:.4f}",
        )
    axes.plot(
        places,
        grown.campaign,
        color=style.INK,
        linestyle=(0, (4, 2)),
        linewidth=1,
        label=f"over all paths: {grown.campaign[-1]:.4f}",
    )
    style.promise_line(axes, plan.spec.target.epsilon, highest=max(grown.campaign))
    words = {SELECTION: "select"}
    axes.set_xticks(
        places, [f"{words.get(kind, 'train')}\n{phase}" for kind, phase in grown.releases]
    )
    axes.set_xlabel("release, and the phase it belongs to")
    axes.set_ylabel(f"epsilon ({grown.accountant.upper()})")
    style.legend_beside(axes)
    return figure


def cohorts_figure(plan: Plan, grown: Timeline) -> Figure:
    """What every cohort ends with, and how much of it each phase added."""
    figure, [axes] = _canvas(plan, "Budget by cohort, and the phase that spent it", size=(8.6, 4.8))
    colors, promised = style.colors_for(len(plan.phases)), plan.spec.target.epsilon
    for place, epsilons in enumerate(grown.cohorts.values()):
        before = 0.0
        for (kind, phase), epsilon in zip(grown.releases, epsilons, strict=True):
            axes.bar(
                place,
                epsilon - before,
                bottom=before,
                width=0.66,
                color=colors[phase],
                edgecolor="white",
                linewidth=0.6,
                hatch=_HATCH if kind == SELECTION else None,
            )
            before = epsilon
        # Above the promised line where both would meet.
        top = max(before, promised) if before > _NEAR * promised else before
        style.note(axes, f"{before:.4f}", (place, top), shift=(0, 3), ha="center")
    style.promise_line(axes, promised, highest=max(grown.campaign), at_right=True)
    axes.set_xticks(
        range(len(grown.cohorts)),
        [f"{cohort_words(cohort)}\n{plan.cohort_size(cohort):,}" for cohort in grown.cohorts],
        fontsize=8,
    )
    axes.set_xlabel(
        f"{plan.spec.target.unit}s that entered training in the same phase, and how many they are"
    )
    axes.set_ylabel(f"epsilon ({grown.accountant.upper()}), added up in order")
    handles = [Patch(color=color, label=f"phase {phase}") for phase, color in enumerate(colors)]
    if any(kind == SELECTION for kind, _ in grown.releases):
        handles.append(
            Patch(facecolor=style.GREY, edgecolor="white", hatch=_HATCH, label="selection")
        )
    style.legend_beside(axes, handles=handles)
    return figure


def schedule_figure(plan: Plan) -> Figure:
    """Steps, sample rates and noise of every phase, beside the naive schedule."""
    figure, [steps, rates, noise] = _canvas(
        plan, "Steps, sample rates and noise by phase", size=(8.6, 7.6), nrows=3, sharex=True
    )
    phases, base, members = plan.phases, base_of(plan.spec), f"{plan.spec.target.unit}s"
    places = list(range(len(phases)))
    _draw_steps(steps, plan, base)
    naive: dict[str, Any] = {"marker": "s", "markersize": 9, "markerfacecolor": "none"}
    rate = [phase.sample_rate for phase in base]
    rates.plot(places, rate, "--", color=style.GREY, label="naive schedule", **naive)
    new = [phase.training.sample_rate_new for phase in phases]
    rates.plot(places, new, color=style.BLUE, marker="o", label=f"{members} of the phase")
    if len(phases) > 1:
        old = [phase.training.sample_rate_old for phase in phases[1:]]
        rates.plot(
            places[1:],
            old,
            color=style.WARM,
            marker="o",
            label=f"{members} labeled before",
        )
    rates.set_ylabel("sample rate of a step")
    rates.set_ylim(bottom=0)
    multipliers = [phase.training.noise_multiplier for phase in phases]
    noise.plot(places, multipliers, color=style.BLUE, marker="o")
    noise.set_ylim(0, 1.25 * max(multipliers))
    for place, phase in enumerate(phases):
        text = f"{multipliers[place]:.3f}\nbatch {phase.training.expected_batch_size:,.0f}"
        style.note(noise, text, (place, multipliers[place]), shift=(0, -6), ha="center", va="top")
    noise.set_ylabel("noise multiplier")
    noise.set_xticks(
        places, [f"phase {number}\n+{phase.cohort_size:,}" for number, phase in enumerate(phases)]
    )
    noise.set_xlabel(f"phase, and the {members} it adds")
    for axes in (steps, rates):
        style.legend_beside(axes)
    return figure


def _draw_steps(axes: Axes, plan: Plan, base: Sequence[BasePhase]) -> None:
    """Bars of each phase's steps, those on new records alone above the others."""
    left, right = style.beside(0, 2, len(base)), style.beside(1, 2, len(base))
    caught = [phase.catch_up.steps if phase.catch_up else 0 for phase in plan.phases]
    trained = [phase.training.steps for phase in plan.phases]
    naive = [phase.steps for phase in base]
    wide = 0.9 * style.BARS / 2
    axes.bar(left, naive, wide, color=style.GRID, edgecolor=style.GREY, label="naive schedule")
    axes.bar(right, trained, wide, color=style.BLUE, label="this plan")
    if any(caught):
        new_alone = f"new {plan.spec.target.unit}s alone"
        axes.bar(
            right,
            caught,
            wide,
            bottom=trained,
            color=style.WARM,
            label=new_alone,
        )
    total = [sum(both) for both in zip(trained, caught, strict=True)]
    for place, count in zip([*left, *right], [*naive, *total], strict=True):
        style.note(axes, f"{count:,}", (place, count), shift=(0, 2), ha="center")
    axes.set_ylabel("steps")
    axes.margins(y=0.15)


def promise_words(spec: CampaignSpec) -> str:
    """What an epsilon of these figures means."""
    target = spec.target
    parts = {
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.3g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": spec.accountant.value,
    }
    return "promised: " + ", ".join(f"{word} {value}" for word, value in parts.items())


def _canvas(plan: Plan, title: str, **more: Any) -> tuple[Figure, list[Axes]]:
    spec = plan.spec
    how = "random selection" if not spec.selects else f"{spec.acquisition}, {spec.selection}"
    return style.canvas(
        f"{title}: {spec.name}, {spec.strategy}, {how}", promise_words(spec), **more
    )


def growth_figure(summary: Mapping[str, Any], story: Grown) -> Figure:
    """What each release costs alone, and what all of them up to it come to together.

    Args:
      summary: of the certified plan, for its promise.
      story: its releases added up.
    """
    title = f"Budget spent from release to release: {summary['name']}"
    figure, [axes] = style.canvas(title, shared_promise([summary]), size=(8.6, 4.8))
    places = range(len(story.names))
    axes.bar(places, story.alone, width=0.5, color=style.BLUE, label="each alone")
    axes.plot(places, story.together, marker="o", color=style.INK, label="all up to it")
    style.promise_line(axes, summary["target_epsilon"], highest=max(story.together, default=0.0))
    axes.set_xlim(-0.6, max(len(story.names), _FEWEST) - 0.4)
    axes.set_xticks(places, story.names, rotation=20, ha="right", fontsize=8)
    axes.set_ylabel(f"epsilon ({story.accountant.upper()})")
    style.legend_beside(axes)
    return figure


def values_figure(
    name: str, varied: Sequence[str], rows: Sequence[Mapping[str, Any]], telling: Sequence[str]
) -> Figure:
    """Epsilon of plans side by side, and the numbers that tell them apart, by what is varied.

    Args:
      name: of the run.
      varied: dotted names of the settings.
      rows: one a plan, with their values, `planned`, and where there is one its epsilon and
        promise.
      telling: names of further numbers of each.
    """
    made = [row for row in rows if row["planned"]]
    title, shown = f"{name}: plans over {', '.join(varied)}", ("epsilon", *telling)
    size = (8.6, 2.2 + 2.0 * len(shown))
    figure, every = style.canvas(title, shared_promise(made), size=size, nrows=len(shown))
    for axes, key in zip(every, shown, strict=True):
        axes.bar(range(len(made)), [row[key] for row in made], width=0.6, color=style.BLUE)
        axes.set_xticks(
            range(len(made)), ["\n".join(str(row[setting]) for setting in varied) for row in made]
        )
        axes.set_xlim(-0.6, max(len(made), _FEWEST) - 0.4)
        axes.set_ylabel(key.replace("_", " "))
    return figure
