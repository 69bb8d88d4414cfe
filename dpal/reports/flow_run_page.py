"""What the page of a flow run tells: the promise, where the campaign stands, where to look.

Released facts only: numbers of records are those of the plan, never those found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.plain_language import acquisition_chosen
from dpal.reports.plan_and_phase_tables import labels_counted, promise
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.report import Block, Table, capital, table
from dpal.reports.validation_figures import against_best_before, headline, percent

_BAR = 24  # characters


@dataclass(frozen=True, kw_only=True)
class Place:
    """Something worth opening, and where it is.

    Attributes:
      name: what it is.
      address: a URL, a path or a command.
      why: what a person finds there.
    """

    name: str
    address: str
    why: str

    def line(self) -> str:
        """As a point of a list; only a URL is a link."""
        web = self.address.startswith(("http://", "https://"))
        where = f"[{self.address}]({self.address})" if web else f"`{self.address}`"
        return f"- **{self.name}**: {where} ({self.why})"


def story(
    title: str,
    summary: Mapping[str, Any],
    *,
    now: str,
    spent: float | None,
    blocks: Sequence[Block],
    places: Sequence[Place],
) -> str:
    """Tells a run of any kind in Markdown.

    Args:
      title: what kind of run it is, and its name.
      summary: of its certified plan.
      now: what happens at the moment, in a sentence.
      spent: epsilon so far; None where that is not known yet.
      blocks: what its kind alone has to tell.
      places: where to look further.
    """
    so_far = [] if spent is None else [f"**Spent:** {_bar(spent, summary['target_epsilon'])}"]
    looks = ["## Where to look", "\n".join(place.line() for place in places)] if places else []
    told = [f"# {title}", f"**Now:** {now}", f"**Promised:** {promise(summary)}.", *so_far]
    return "\n\n".join([*told, *map(block_in_markdown, blocks), *looks])


def campaign_story(
    summary: Mapping[str, Any],
    phases: Sequence[Mapping[str, Any]],
    *,
    now: str,
    places: Sequence[Place],
    choice: Mapping[str, Any] | None = None,
) -> str:
    """Tells a campaign: what is planned of each phase, and what the finished ones reached.

    Args:
      summary: of its certified plan.
      phases: metrics of the finished phases.
      now: what happens.
      places: where to look.
      choice: how public records chose the acquisition; None where the settings named it.
    """
    note = (
        f"{capital(labels_counted(summary['unit']))} are those of the plan. Accuracy is measured "
        "on the validation set, which is not protected."
    )
    spent = phases[-1]["campaign_epsilon"] if phases else 0.0
    chosen = () if choice is None else (acquisition_chosen(choice),)
    blocks = (_table(summary, phases, now), note, *chosen)
    title = f"Campaign {summary['name']}"
    return story(title, summary, now=now, spent=spent, blocks=blocks, places=places)


def outcome(summary: Mapping[str, Any], reached: Mapping[str, Any]) -> str:
    """How a campaign ended, in one line.

    Args:
      summary: of its certified plan.
      reached: what it cost, and the figures of its model.
    """
    name, value = headline(reached)
    return (
        f"finished: validation {name} {percent(value)} at epsilon "
        f"{reached['campaign_epsilon']:.4f} of {summary['target_epsilon']:g}"
    )


def steps_done(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> float:
    """Per cent of the plan's private steps that are in finished phases."""
    steps = [phase["steps"] for phase in summary["phases"]]
    return float(100.0 * sum(steps[: len(phases)]) / sum(steps))


def _bar(spent: float, target: float) -> str:
    """The budget as a line of characters and in numbers."""
    full = min(_BAR, round(_BAR * spent / target))
    bar = "\u2588" * full + "\u2591" * (_BAR - full)
    return f"`{bar}` epsilon {spent:.4f} of {target:g}"


def _table(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]], now: str) -> Table:
    """A row a phase: what is planned, and what is reached."""
    name = headline(phases[0])[0] if phases else "accuracy"
    rows, labels = [], 0
    for number, plan in enumerate(summary["phases"]):
        labels = plan.get("most_labels_in_all", labels + plan["cohort_size"])
        done = phases[number] if number < len(phases) else None
        under_way = number == len(phases) and f"phase-{number}" in now
        rows.append(
            {
                "phase": number,
                "state": "done" if done else "under way" if under_way else "planned",
                f"{labels_counted(summary['unit'])}, up to": f"{labels:,}",
                "private steps": f"{plan['steps']:,}",
                f"validation {name}": _reached(phases, number) if done else "-",
                "epsilon": f"{done['campaign_epsilon']:.4f}" if done else "-",
            }
        )
    return table("Phases", rows)


def _reached(phases: Sequence[Mapping[str, Any]], phase: int) -> str:
    """A phase's headline figure, and by how much it is worse than an earlier one."""
    compared, figure = against_best_before(phases, phase), percent(headline(phases[phase])[1])
    worse = compared is not None and compared.is_worse
    return f"{figure} ({compared.words()})" if worse and compared else figure
