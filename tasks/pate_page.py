"""What the page of private voting's flow run shows: one story, kept up to date."""

from __future__ import annotations

from dpal.reports.commands import verify_here
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.validation import headline, percent
from dpal.reports.vote_tables import cost_table
from dpal.reports.voting_report import methods_table, told
from dpal.runs.ensemble import Ensemble
from dpal.runs.open_ledger import key_word
from dpal.runs.student import judgements
from tasks.prefect_page import Shown, show


def tell_voting(ensemble: Ensemble, now: str) -> None:
    """Writes the story of the flow run's page anew."""
    summary, name = ensemble.certified.summary(), ensemble.config.name
    parts = [
        f"# Private voting {name}",
        f"**Now:** {now}",
        f"{summary['teachers']} teachers, {summary['mechanism']} voting, "
        f"{summary['blocks'][0]:,} queries for the student.",
        block_in_markdown(cost_table(summary)),
    ]
    methods, phases = judgements(ensemble), ensemble.folder.finished_phases()
    if phases and methods:
        parts += told(summary, phases[0], methods)
        parts.append(block_in_markdown(methods_table(methods)))
        check = verify_here(ensemble.folder, key_word(ensemble.config.runtime))
        parts.append(f"Check it yourself: `{check}`")
    show(
        Shown(
            key=f"votes-{name.replace('_', '-')}",
            type="markdown",
            data="\n\n".join(parts),
            description=f"Private voting {name}: {now}",
        )
    )


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
