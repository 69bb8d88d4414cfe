"""What the page of private voting's flow run shows: one story, kept up to date."""

from __future__ import annotations

from dpal.reports.methods import methods_table
from dpal.reports.report import Block
from dpal.reports.run_page import story
from dpal.reports.validation import headline, percent
from dpal.reports.vote_tables import cost_table
from dpal.reports.voting_report import told
from dpal.runs.ensemble import Ensemble
from dpal.runs.student import judgements
from tasks.prefect_page import page_of, places_of, show


def tell_voting(ensemble: Ensemble, now: str) -> None:
    """Writes the story of the flow run's page anew."""
    summary, phases = ensemble.certified.summary(), ensemble.folder.finished_phases()
    about = (
        f"{summary['teachers']} teachers, {summary['mechanism']} voting, "
        f"{summary['blocks'][0]:,} queries for the student."
    )
    methods = judgements(ensemble)
    done = bool(phases and methods)
    reached: list[Block] = []
    if done:
        reached = [*told(summary, phases[0], methods), methods_table(methods)]
    title = f"Private voting {ensemble.config.name}"
    page = story(
        title,
        summary,
        now=now,
        spent=summary["epsilon"] if done else None,
        blocks=(about, cost_table(summary), *reached),
        places=places_of(ensemble.folder, ensemble.config.runtime, begun=done),
    )
    show(page_of("votes", title, now, page))


def tell_voting_end(ensemble: Ensemble) -> str:
    """Ends the story, and returns its last line."""
    name, value = headline(ensemble.folder.finished_phases()[0])
    target = ensemble.spec.target
    last = (
        f"student: validation {name} {percent(value)} at epsilon {ensemble.certified.epsilon:.4f} "
        f"of {target.epsilon:g} (delta {target.delta:.3g}, {target.adjacency}, {target.unit})"
    )
    tell_voting(ensemble, last)
    return last
