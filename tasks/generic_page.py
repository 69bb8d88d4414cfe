"""What the page of a flow run shows of improvements, voting and kinds of one's own: one story."""

from __future__ import annotations

from typing import Any

from dpal.reports.flow_run_page import story
from dpal.reports.validation_figures import figures_in, headline, percent
from dpal.runs.kinds import KINDS
from dpal.runs.run import Run
from tasks.flow_run_page import page_of, run_links, update_artifacts


def tell_run(run: Run[Any], now: str) -> None:
    """Writes the story anew: what happens now, what it costs, what it reached."""
    summary, phases = run.certified.summary(), run.folder.finished_phases()
    done = bool(phases) or run.folder.certificate.is_file()
    shown = KINDS[run.kind].use_cases().shown(run.folder) if done else run.plan_tables()
    page = story(
        run.title,
        summary,
        now=now,
        spent=run.certified.epsilon if done else None,
        blocks=(*run.plan_words(), *shown),
        places=run_links(run.folder, run.runtime, begun=done),
    )
    update_artifacts(page_of(run.kind, run.title, now, page))


def tell_run_end(run: Run[Any]) -> str:
    """Ends the story, and returns its last line."""
    phases, target = run.folder.finished_phases(), run.plan.target
    reached = ""
    if phases and figures_in(phases[-1]):
        name, value = headline(phases[-1])
        reached = f"validation {name} {percent(value)} at "
    last = (
        f"{reached}epsilon {run.certified.epsilon:.4f} of {target.epsilon:g} (delta "
        f"{target.delta:.3g}, {target.adjacency}, {target.unit})"
    )
    tell_run(run, last)
    return last
