"""Figures of a plan: budgets by cohort and phase, and its schedule.

Every figure says whose epsilon it shows: the promise, delta, adjacency, unit and accountant.
"""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dpal.accounting.events import NEVER_SELECTED, SELECTION
from dpal.planning.plan import Plan
from dpal.planning.schedule import base_phases
from dpal.planning.spec import CampaignSpec
from dpal.planning.timeline import Timeline
from dpal.reports.render.figures import (
    BLUE,
    GREY,
    GRID,
    INK,
    PROMISE,
    QUIET,
    WARM,
    colors_for,
    dress,
    headline,
    note,
)

_HATCH: Final = "////"
_NEAR: Final = 0.93  # of the promise; a number above such a bar would cross its line


def spending_figure(plan: Plan, grown: Timeline) -> Figure:
    """How epsilon grows from release to release, one line per cohort, and over all paths."""
    figure, axes = _figure(plan, "Budget spent from release to release", size=(8.6, 4.8))
    places = range(len(grown.releases))
    for at, (kind, phase) in enumerate(grown.releases):
        if kind == SELECTION:
            axes.axvspan(at - 0.5, at + 0.5, color="#f1f4f7", zorder=0)
            axes.text(
                at,
                0.99,
                f"selection {phase}",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=7,
                color=QUIET,
            )
    colors = colors_for(len(plan.phases))
    for number, (cohort, epsilons) in enumerate(grown.cohorts.items()):
        never = cohort == NEVER_SELECTED
        axes.plot(
            places,
            epsilons,
            marker="o",
            markersize=4,
            color=GREY if never else colors[number],
            linestyle=":" if never else "-",
            label=f"{_who(cohort)}: {epsilons[-1]:.3f}",
        )
    axes.plot(
        places,
        grown.campaign,
        color=INK,
        linestyle=(0, (4, 2)),
        linewidth=1,
        label=f"over all paths: {grown.campaign[-1]:.3f}",
    )
    _promise_line(axes, plan.spec.target.epsilon, highest=max(grown.campaign))
    axes.set_xticks(
        places,
        [
            f"{'select' if kind == SELECTION else 'train'}\n{phase}"
            for kind, phase in grown.releases
        ],
    )
    axes.set_xlabel("release, and the phase it belongs to")
    axes.set_ylabel(f"epsilon ({grown.accountant.upper()})")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def cohorts_figure(plan: Plan, grown: Timeline) -> Figure:
    """What every cohort ends with, and how much of it each phase added."""
    figure, axes = _figure(plan, "Budget by cohort, and the phase that spent it", size=(8.6, 4.8))
    colors, promised = colors_for(len(plan.phases)), plan.spec.target.epsilon
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
        note(axes, f"{before:.3f}", (place, top), shift=(0, 3), ha="center")
    _promise_line(axes, promised, highest=max(grown.campaign), at_right=True)
    axes.set_xticks(
        range(len(grown.cohorts)),
        [f"{_who(cohort)}\n{plan.cohort_size(cohort):,}" for cohort in grown.cohorts],
        fontsize=8,
    )
    axes.set_xlabel("records that entered training in the same phase, and how many they are")
    axes.set_ylabel(f"epsilon ({grown.accountant.upper()}), added up in order")
    handles = [Patch(color=color, label=f"phase {at}") for at, color in enumerate(colors)]
    if any(kind == SELECTION for kind, _ in grown.releases):
        handles.append(Patch(facecolor=GREY, edgecolor="white", hatch=_HATCH, label="selection"))
    axes.legend(
        handles=handles, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    return figure


def schedule_figure(plan: Plan) -> Figure:
    """Steps, sample rates and noise of every phase, beside the naive schedule."""
    figure = Figure(figsize=(8.6, 7.6), layout="constrained")
    steps, rates, noise = figure.subplots(3, 1, sharex=True)
    _title(figure, plan, "Steps, sample rates and noise by phase")
    phases, base = plan.phases, base_phases(plan.spec.schedule)
    places = list(range(len(phases)))
    caught = [phase.catch_up.steps if phase.catch_up else 0 for phase in phases]
    trained = [phase.training.steps for phase in phases]
    steps.bar(
        [at - 0.2 for at in places],
        [one.steps for one in base],
        width=0.36,
        color=GRID,
        edgecolor=GREY,
        label="naive schedule",
    )
    steps.bar([at + 0.2 for at in places], trained, width=0.36, color=BLUE, label="this plan")
    if any(caught):
        steps.bar(
            [at + 0.2 for at in places],
            caught,
            bottom=trained,
            width=0.36,
            color=WARM,
            label="new records alone",
        )
    for at in places:
        for shift, count in ((-0.2, base[at].steps), (0.2, trained[at] + caught[at])):
            note(steps, f"{count:,}", (at + shift, count), shift=(0, 2), ha="center")
    steps.set_ylabel("steps")
    steps.margins(y=0.15)
    rates.plot(
        places,
        [one.sample_rate for one in base],
        color=GREY,
        linestyle="--",
        marker="s",
        markersize=9,
        markerfacecolor="none",
        label="naive schedule",
    )
    rates.plot(
        places,
        [phase.training.sample_rate_new for phase in phases],
        color=BLUE,
        marker="o",
        label="records of the phase",
    )
    if len(phases) > 1:
        rates.plot(
            places[1:],
            [phase.training.sample_rate_old for phase in phases[1:]],
            color=WARM,
            marker="o",
            label="records labeled before",
        )
    rates.set_ylabel("sample rate of a step")
    rates.set_ylim(bottom=0)
    noise.plot(
        places,
        [phase.training.noise_multiplier for phase in phases],
        color=BLUE,
        marker="o",
        label="noise multiplier",
    )
    noise.set_ylim(0, 1.25 * max(phase.training.noise_multiplier for phase in phases))
    for at, phase in enumerate(phases):
        sigma, batch = phase.training.noise_multiplier, phase.training.expected_batch_size
        text = f"{sigma:.3f}\nbatch {batch:,.0f}"
        note(noise, text, (at, sigma), shift=(0, -6), ha="center", va="top")
    noise.set_ylabel("noise multiplier")
    noise.set_xticks(
        places, [f"phase {at}\n+{phase.cohort_size:,}" for at, phase in enumerate(phases)]
    )
    noise.set_xlabel("phase, and the records it adds")
    for axes in (steps, rates, noise):
        dress(axes)
    for axes in (steps, rates):
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def promise_words(spec: CampaignSpec, *, swept: str = "") -> str:
    """What an epsilon of these figures means.

    Args:
      spec: the campaign.
      swept: a setting that varies over the figure, so that its value here means nothing.
    """
    target = spec.target
    parts = {
        "epsilon": f"{target.epsilon:g}",
        "delta": f"{target.delta:.3g}",
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": spec.accountant.value,
    }
    section, _, name = swept.partition(".")
    if section == "privacy" and name in parts:
        parts[name] = "as swept"
    return "promised: " + ", ".join(f"{word} {value}" for word, value in parts.items())


def _figure(plan: Plan, title: str, *, size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    _title(figure, plan, title)
    dress(axes)
    return figure, axes


def _title(figure: Figure, plan: Plan, title: str) -> None:
    spec = plan.spec
    how = "random selection" if not spec.selects else f"{spec.acquisition}, {spec.selection}"
    headline(figure, f"{title}: {spec.name}, {spec.strategy}, {how}", promise_words(plan.spec))


def _promise_line(axes: Axes, epsilon: float, *, highest: float, at_right: bool = False) -> None:
    axes.axhline(epsilon, color=PROMISE, linewidth=1.2, linestyle="--", zorder=1)
    place, side, shift = (1, "right", -4) if at_right else (0, "left", 4)
    axes.annotate(
        f"promised: {epsilon:g}",
        (place, epsilon),
        xytext=(shift, 3),
        fontsize=8,
        ha=side,
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        color=PROMISE,
    )
    axes.set_ylim(0, 1.18 * max(epsilon, highest))


def _who(cohort: str) -> str:
    return "never selected" if cohort == NEVER_SELECTED else f"cohort {cohort}"
