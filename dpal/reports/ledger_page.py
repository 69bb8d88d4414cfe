"""The ledger of a campaign as one page: it opens without a server and loads nothing.

Everything on it is read off the ledger, so that the same entries give the same page. All
texts are escaped, and the page itself forbids scripts and addresses of any kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.cohorts import Accountant
from dpal.ledger.account import (
    CampaignAccount,
    ReleaseAccount,
    campaign_account,
    campaigns_in,
    epsilons_so_far,
)
from dpal.ledger.datasets import data_set
from dpal.ledger.entries import Entry
from dpal.ledger.history import Part, dataset_of, history, parts_of
from dpal.reports.ledger_plots import campaign_colors
from dpal.reports.ledger_tables import (
    limit_in_words,
    parts_table,
    promise_of,
    releases_table,
    time_table,
)
from dpal.reports.ledger_verdict import commands, digests, terms, uncovered, verdict
from dpal.reports.ledger_words import STATES, when
from dpal.reports.render.figures import BLUE, PROMISE
from dpal.reports.render.html import rendered
from dpal.reports.summary import Table

_PROMISE_AT = 92.0  # where on a bar the promise is, of 100: there is room to pass it
_NUMBERS = {"entry", "epsilon", "size", "takes part", "epsilon alone", "of it"}
_WHOLE = {"day (UTC)", "release", "who", "block", "campaign", "state"}  # not broken into lines
_DAYS = (
    "Entries of a campaign carry the day on which its plan was held: when each was written is not "
    "recorded, as durations follow how many labels were bought."
)


def ledger_page(
    entries: Sequence[Entry],
    campaign: str,
    *,
    doubt: str | None,
    certificate: str | None,
) -> str:
    """Writes the page.

    Args:
      entries: all of the ledger, whose chain is whole.
      campaign: whose page it is.
      doubt: why this may not be the newest copy of the ledger; None if an anchor says it is.
      certificate: digest of the campaign's certificate, once it has one.

    Returns:
      HTML.

    Raises:
      LedgerError: the campaign holds no plan.
    """
    account = campaign_account(entries, campaign)
    story = history(entries, campaign)
    others = [campaign_account(entries, name) for name in campaigns_in(story)]
    so_far: dict[int, float] = {}
    for one in others:
        so_far |= epsilons_so_far(one)
    name = dataset_of(entries, campaign)
    head = entries[-1]
    facts = {
        "name": campaign,
        "promise": promise_of(account),
        "terms": terms(account),
        "limit": f"{account.target.epsilon:g}",
        "accountant": account.accountant.upper(),
        "promise_at": _PROMISE_AT,
        "head": {"sequence": head.sequence, "time": when(head.recorded_at)},
        "verdict": verdict(entries, account, doubt=doubt, certificate=certificate),
        "cohorts": _cohorts(account),
        "dataset": None if name is None else _dataset(entries, name),
        "progress": _progress(account),
        "releases": [_release(one, so_far, account) for one in account.releases],
        "mechanisms": _laid_out(releases_table(account)),
        "story": _story_in_words(name, others),
        "deltas": ", ".join(f"{one.target.delta:.3g} ({one.name})" for one in others),
        "entries": _laid_out(time_table(story, so_far)),
        "digests": digests(entries, account, certificate),
        "commands": commands(campaign, certificate),
        "uncovered": uncovered(name),
    }
    return rendered("ledger.html", facts)


def _segment(share: float, color: str, *, start: float = 0.0, held: bool = False) -> dict[str, Any]:
    """A piece of a bar of width 100; what does not fit is cut off."""
    width = max(0.0, min(100.0 - start, share))
    return {"start": f"{start:.3f}", "width": f"{width:.3f}", "color": color, "held": held}


def _cohorts(account: CampaignAccount) -> list[dict[str, Any]]:
    by_rdp = account.accountant is Accountant.RDP
    rows = [
        {
            "name": one.cohort.replace("_", " ") if not one.cohort.isdecimal()
                    else f"cohort {one.cohort}",
            "segments": _spent(one.epsilon_rdp if by_rdp else one.epsilon_pld, account),
            "pld": f"{one.epsilon_pld:.4f}",
            "rdp": f"{one.epsilon_rdp:.4f}",
            "selection": f"{one.selection_epsilon:.4f}",
            "total": False,
        }
        for one in account.cohorts
    ]  # fmt: skip
    whole = f"{account.epsilon:.4f}"
    rows.append(
        {
            "name": "any record, any path",
            "segments": _spent(account.epsilon, account),
            "pld": "" if by_rdp else whole,
            "rdp": whole if by_rdp else "",
            "selection": "",
            "total": True,
        }
    )
    return rows


def _spent(epsilon: float, account: CampaignAccount) -> list[dict[str, Any]]:
    color = BLUE if epsilon <= account.target.epsilon else PROMISE
    return [_segment(_PROMISE_AT * epsilon / account.target.epsilon, color)]


def _dataset(entries: Sequence[Entry], name: str) -> dict[str, Any]:
    known, parts = data_set(entries, name), parts_of(entries, name)
    held = {one.campaign: not one.ended for one in parts}
    colors = campaign_colors(parts)
    whole = known.limit.filter.limit.divergence
    blocks = []
    for one in known.blocks:
        left = one.left(known.limit).divergence / whole if whole else 0.0
        blocks.append(
            {
                "block": one.block,
                "size": f"{one.size:,}",
                "taken": f"{one.epsilon_taken(known.limit):.4f}",
                "left": f"{100 * left:.1f}%",
                "segments": _stacked([part for part in parts if part.block == one.block], colors),
            }
        )
    return {
        "name": name,
        "limit": limit_in_words(known.limit),
        "epsilon": f"{known.limit.filter.epsilon:g}",
        "campaigns": [
            {"name": one, "color": colors[one], "held": still} for one, still in held.items()
        ],
        "blocks": blocks,
        "parts": _laid_out(parts_table(name, parts)),
    }


def _stacked(parts: Sequence[Part], colors: Mapping[str, str]) -> list[dict[str, Any]]:
    pieces, start = [], 0.0
    for one in parts:
        color = colors[one.campaign]
        pieces.append(_segment(100 * one.share, color, start=start, held=not one.ended))
        start = min(100.0, start + 100 * one.share)
    return pieces


def _progress(account: CampaignAccount) -> str:
    total, done = len(account.planned), sum(one.state.value == "commit" for one in account.releases)
    ended = " The campaign has ended and can release nothing more." if account.ended else ""
    return f"{done} of {total} planned releases are committed.{ended}"


def _release(
    one: ReleaseAccount, so_far: Mapping[int, float], account: CampaignAccount
) -> dict[str, Any]:
    on_disk = f" {one.steps_on_disk:,} steps on disk" if one.steps_on_disk else ""
    return {
        "sequence": one.sequence,
        "name": one.release.name,
        "state": one.state.value,
        "state_words": STATES[one.state],
        "note": on_disk if one.state.value == "reserve" else "",
        "segments": _spent(so_far[one.sequence], account),
        "epsilon": f"{so_far[one.sequence]:.4f}",
    }


def _laid_out(table: Table) -> dict[str, Any]:
    return {"columns": table.columns, "rows": table.rows, "numbers": _NUMBERS, "whole": _WHOLE}


def _story_in_words(name: str | None, others: Sequence[CampaignAccount]) -> str:
    if name is None:
        return f"All entries of this campaign, and those about the ledger itself. {_DAYS}"
    return (
        f"All entries of the campaigns on data set {name} ("
        f"{', '.join(one.name for one in others)}), those of its owner, and those about the "
        f"ledger itself. {_DAYS}"
    )
