"""Figure of what a run has spent: every cohort against the promise, in one chart."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from dpal.ledger.campaign_account import CampaignAccount
from dpal.reports.ledger_tables import promised_in
from dpal.reports.plan_and_phase_tables import any_path, cohort_words, terms
from dpal.reports.plots import style

_NEAR = 0.7
_PLANNED = 0.25  # how strong the color is of what is planned and not spent yet


def spent_figure(account: CampaignAccount, planned: Mapping[str, float]) -> Figure:
    """What every cohort has lost so far, what its plan will come to, and the promise as a line.

    Args:
      account: of a run.
      planned: epsilon of each cohort, and on `any_path`, at the end of the plan; may lack some.
    """
    key = f"epsilon_{account.accountant.value}"
    spent = {cohort_words(cohort.cohort): getattr(cohort, key) for cohort in account.cohorts}
    anybody = any_path(account.target.unit)
    spent[anybody] = account.epsilon
    promised = account.target.epsilon
    figure, [axes] = style.canvas(
        f"Epsilon spent by {account.name}",
        terms(promised_in(account)),
        size=(7.2, 1.6 + 0.42 * len(spent)),
        along="x",
    )
    for place, (name, epsilon) in enumerate(spent.items()):
        color = style.BLUE if name == anybody else style.GREY
        color = color if epsilon <= promised else style.PROMISE
        whole = max(epsilon, planned.get(name, epsilon))
        axes.barh(place, whole, height=0.62, color=color, alpha=_PLANNED)
        axes.barh(place, epsilon, height=0.62, color=color)
        said = f"{epsilon:.4f}" + (f" of {whole:.4f} planned" if whole > epsilon else "")
        beside = max(whole, promised) if whole > _NEAR * promised else whole  # not on the line
        style.note(axes, said, (beside, place), shift=(5, 0), va="center")
    axes.axvline(promised, color=style.PROMISE, linewidth=1.2, linestyle="--")
    style.note(axes, f"promised: {promised:g}", (promised, -0.5), shift=(4, 0), color=style.PROMISE)
    axes.set_yticks(range(len(spent)), list(spent), color=style.INK, fontsize=9)
    axes.set_ylim(len(spent) - 0.5, -0.9)
    axes.set_xlim(0, 1.35 * max(promised, *spent.values()))  # room for the words beside a bar
    axes.set_xlabel(
        f"epsilon ({account.accountant.value.upper()}); what is pale is planned",
        color=style.QUIET,
        fontsize=9,
    )
    return figure
