"""What the page of an improvement's flow run shows: one story, kept up to date."""

from __future__ import annotations

from dpal.reports.commands import verify_here
from dpal.reports.improvement import cost_table, improvement_table
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.validation import headline, percent
from dpal.runs.improvement_run import Improving
from dpal.runs.open_ledger import key_word
from tasks.prefect_page import Shown, show


def tell_improvement(improving: Improving, now: str) -> None:
    """Writes the story anew: what happens now, and what it costs."""
    summary, name = improving.certified.summary(), improving.config.name
    parts = [
        f"# Improvement {name}",
        f"**Now:** {now}",
        f"{summary['labels']:,} public records by {summary['method']}; start "
        f"{summary['start'] or 'a model file'}.",
        block_in_markdown(cost_table(summary)),
    ]
    if phases := improving.folder.finished_phases():
        parts.append(block_in_markdown(improvement_table(summary, phases[0])))
        check = verify_here(improving.folder, key_word(improving.config.runtime))
        parts.append(f"Check it yourself: `{check}`")
    show(
        Shown(
            key=f"improvement-{name.replace('_', '-')}",
            type="markdown",
            data="\n\n".join(parts),
            description=f"Improvement {name}: {now}",
        )
    )


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
