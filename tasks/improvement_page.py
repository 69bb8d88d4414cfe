"""What the page of an improvement's flow run shows: one story, kept up to date."""

from __future__ import annotations

from dpal.reports.improvement import cost_table, improvement_table
from dpal.reports.run_page import story
from dpal.reports.validation import headline, percent
from dpal.runs.improvement_run import Improving
from tasks.prefect_page import page_of, places_of, show


def tell_improvement(improving: Improving, now: str) -> None:
    """Writes the story anew: what happens now, and what it costs."""
    summary, phases = improving.certified.summary(), improving.folder.finished_phases()
    about = (
        f"{summary['labels']:,} public records by {summary['method']}; start "
        f"{summary['start'] or 'a model file'}."
    )
    reached = [improvement_table(summary, phases[0])] if phases else []
    title = f"Improvement {improving.config.name}"
    told = story(
        title,
        summary,
        now=now,
        spent=summary["epsilon"] if phases else None,
        blocks=(about, cost_table(summary), *reached),
        places=places_of(improving.folder, improving.config.runtime, begun=bool(phases)),
    )
    show(page_of("improvement", title, now, told))


def tell_improvement_end(improving: Improving) -> str:
    """Ends the story, and returns its last line."""
    name, value = headline(improving.folder.finished_phases()[0])
    target = improving.spec.target
    last = (
        f"validation {name} {percent(value)} at epsilon {improving.certified.epsilon:.4f} of "
        f"{target.epsilon:g} (delta {target.delta:.3g}, {target.adjacency}, {target.unit})"
    )
    tell_improvement(improving, last)
    return last
