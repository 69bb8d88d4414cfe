"""What the page of a flow run tells: the promise, where the campaign stands, where to look.

Released facts only: numbers of records are those of the plan, never those found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.report import Table
from dpal.reports.summary import promise
from dpal.reports.validation import headline, percent

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
    summary: Mapping[str, Any],
    phases: Sequence[Mapping[str, Any]],
    *,
    now: str,
    places: Sequence[Place],
) -> str:
    """Tells a campaign in Markdown.

    Args:
      summary: the certified plan's summary.
      phases: metrics of the finished phases.
      now: what happens at the moment, in a sentence.
      places: where to look further.
    """
    return "\n\n".join(
        [
            f"# Campaign {summary['name']}",
            f"**Now:** {now}",
            f"**Promised:** {promise(summary)}.",
            f"**Spent:** {_bar(summary, phases)}",
            block_in_markdown(_table(summary, phases, now)),
            "Labels are those of the plan. Accuracy is measured on the validation set, which is "
            "not protected.",
            "## Where to look",
            "\n".join(place.line() for place in places),
        ]
    )


def outcome(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> str:
    """How a campaign ended, in one line."""
    name, value = headline(phases[-1])
    return (
        f"finished: validation {name} {percent(value)} at epsilon "
        f"{phases[-1]['campaign_epsilon']:.3f} of {summary['target_epsilon']:g}"
    )


def steps_done(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> float:
    """Per cent of the plan's private steps that are in finished phases."""
    steps = [phase["steps"] for phase in summary["phases"]]
    return float(100.0 * sum(steps[: len(phases)]) / sum(steps))


def _bar(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> str:
    """The budget as a line of characters and in numbers."""
    target = summary["target_epsilon"]
    spent = phases[-1]["campaign_epsilon"] if phases else 0.0
    full = min(_BAR, round(_BAR * spent / target))
    bar = "\u2588" * full + "\u2591" * (_BAR - full)
    return f"`{bar}` epsilon {spent:.3f} of {target:g}"


def _table(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]], now: str) -> Table:
    """A row a phase: what is planned, and what is reached."""
    name = headline(phases[0])[0] if phases else "accuracy"
    rows, labels = [], 0
    for number, plan in enumerate(summary["phases"]):
        labels += plan["cohort_size"]
        reached, spent, state = "-", "-", "planned"
        if number < len(phases):
            reached = percent(headline(phases[number])[1])
            spent, state = f"{phases[number]['campaign_epsilon']:.4f}", "done"
        elif number == len(phases) and f"phase-{number}" in now:
            state = "under way"
        rows.append((str(number), state, f"{labels:,}", f"{plan['steps']:,}", reached, spent))
    columns = ("phase", "state", "labels, up to", "private steps", f"validation {name}", "epsilon")
    return Table("Phases", columns, tuple(rows))
