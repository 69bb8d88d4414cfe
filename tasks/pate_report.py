"""Certificate and page of private voting."""

from __future__ import annotations

from prefect.cache_policies import NO_CACHE

from dpal.reports.commands import verify_here
from dpal.reports.methods import methods_table
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.validation import headline, percent
from dpal.reports.vote_tables import cost_table
from dpal.reports.voting_report import told
from dpal.runs.ensemble import Ensemble
from dpal.runs.open_ledger import key_word
from dpal.runs.vote_account import certify_votes
from tasks.boundary import task
from tasks.prefect_page import Shown, show
from tasks.student import judgements


@task(cache_policy=NO_CACHE)
def certify_student(ensemble: Ensemble) -> None:
    """Writes certificate.json from what the ledger holds."""
    certify_votes(ensemble.account, model=ensemble.files.model)


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
