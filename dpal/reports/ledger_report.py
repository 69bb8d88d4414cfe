"""The ledger of a run, told to auditors. The same entries give the same report."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.accounting.cohorts import Accountant
from dpal.ledger.account import (
    CampaignAccount,
    State,
    campaign_account,
    campaigns_in,
    epsilons_so_far,
)
from dpal.ledger.datasets import data_set
from dpal.ledger.entries import Entry
from dpal.ledger.history import dataset_of, history, parts_of
from dpal.reports.charts import style_of
from dpal.reports.ledger_tables import (
    limit_in_words,
    numbers_of,
    parts_table,
    promised_in,
    releases_table,
    time_table,
)
from dpal.reports.ledger_verdict import commands, digests, uncovered, verdict
from dpal.reports.ledger_words import STATES, when
from dpal.reports.report import (
    Aside,
    Bar,
    Legend,
    Report,
    Section,
    Segment,
    Table,
    spent_bar,
)
from dpal.reports.summary import cohort_words, promise, terms

_DAYS = (
    "Entries of a campaign carry the day on which its plan was held: when each was written is not "
    "recorded, as durations follow how many labels were bought."
)


def ledger_report(
    entries: Sequence[Entry],
    campaign: str,
    *,
    title: str,
    doubt: str | None,
    certificate: str | None,
    has_model: bool = True,
) -> Report:
    """Tells what a run did to the ledger.

    Args:
      entries: all of the ledger, whose chain is whole.
      campaign: whose story it is.
      title: of the page: what kind of run that is, and its name.
      doubt: why this may not be the newest copy of the ledger; None if an anchor says it is.
      certificate: digest of the campaign's certificate, once it has one.
      has_model: whether a model is verified with it.

    Raises:
      LedgerError: the campaign holds no plan.
    """
    account, story = campaign_account(entries, campaign), history(entries, campaign)
    others = [campaign_account(entries, name) for name in campaigns_in(story)]
    so_far = {entry: spent for one in others for entry, spent in epsilons_so_far(one).items()}
    name, head, promised = dataset_of(entries, campaign), entries[-1], promised_in(account)
    deltas = ", ".join(f"{one.target.delta:.3g} ({one.name})" for one in others)
    return Report(
        title=title,
        about=f"Privacy ledger, as of entry {head.sequence} of {when(head.recorded_at)} UTC",
        promise=promise(promised),
        verdict=verdict(entries, account, doubt=doubt, certificate=certificate),
        sections=(
            Section("Budget by cohort", (_how_to_read(account), _cohorts(account))),
            *([] if name is None else [_dataset(entries, name)]),
            Section(
                "Timeline of releases",
                (
                    Aside(
                        "A release is anything computed from private records that leaves. It is "
                        "charged before it is drawn, and stays charged whatever happens to it. "
                        + _progress(account)
                    ),
                    _timeline(account, so_far),
                ),
            ),
            Section(
                "Every mechanism",
                (
                    Aside(
                        "What was run on private records, on whom, and with which parameters: all "
                        "that is needed to add the losses up again."
                    ),
                    releases_table(account),
                ),
            ),
            Section(
                "Every entry",
                (
                    Aside(
                        f"{_told(name, others)} The epsilon is its campaign's so far, at that "
                        f"campaign's delta: {deltas}."
                    ),
                    time_table(story, so_far),
                ),
            ),
            Section(
                "How to check it",
                (
                    "This page is a copy for reading and proves nothing by itself. The ledger is "
                    "the truth; these commands recompute every digest and every epsilon, on any "
                    "machine that has it:",
                    commands(campaign, certificate, has_model=has_model),
                ),
            ),
            Section("What is not covered", (uncovered(name),)),
        ),
        digests=tuple(digests(entries, account, certificate)),
    )


def _how_to_read(account: CampaignAccount) -> Aside:
    return Aside(
        f"Epsilon at {terms(promised_in(account))}. A cohort is records with one privacy history: "
        "those labeled in the same phase, or those behind the same votes. The last row holds for "
        "every record, whatever path it took; the promise is about that one. The red line is the "
        f"promise, {account.target.epsilon:g}, which is kept by {account.accountant.upper()}; the "
        "other column is for information: another bound on the same loss, which may pass the line."
    )


def _cohorts(account: CampaignAccount) -> Table:
    by_rdp, target = account.accountant is Accountant.RDP, account.target.epsilon
    rows, bars = [], []
    for one in account.cohorts:
        numbers = (one.epsilon_pld, one.epsilon_rdp, one.selection_epsilon)
        rows.append((cohort_words(one.cohort), *(f"{number:.4f}" for number in numbers)))
        bars.append(spent_bar(one.epsilon_rdp if by_rdp else one.epsilon_pld, target))
    whole = f"{account.epsilon:.4f}"
    rows.append(("any record, any path", *(("", whole) if by_rdp else (whole, "")), ""))
    return Table(
        "Budget by cohort",
        ("cohort", "epsilon (PLD)", "epsilon (Rényi)", "of it, selections"),
        tuple(rows),
        bars=(*bars, spent_bar(account.epsilon, target)),
        bars_title=f"spent ({account.accountant.upper()})",
        total=True,
    )


def _dataset(entries: Sequence[Entry], name: str) -> Section:
    known, parts = data_set(entries, name), parts_of(entries, name)
    whole, numbers = known.limit.filter.limit.divergence, numbers_of(parts)
    held = {part.campaign: not part.ended for part in parts}
    rows, bars = [], []
    for block in known.blocks:
        left = block.left(known.limit).divergence / whole if whole else 0.0
        taken = f"{block.epsilon_taken(known.limit):.4f} of {known.limit.filter.epsilon:g}"
        rows.append((f"block {block.block}", f"{block.size:,}", taken, f"{100 * left:.1f}%"))
        segments = (
            Segment(
                width=100 * part.share,
                style=style_of(numbers[part.campaign]),
                held=not part.ended,
            )
            for part in parts
            if part.block == block.block
        )
        bars.append(Bar(segments=tuple(segments)))
    legend = [
        (f"{campaign}{' (held, not spent yet)' if still else ''}", style_of(number), still)
        for (campaign, still), number in zip(held.items(), numbers.values(), strict=True)
    ]
    return Section(
        f"Data set {name}",
        (
            Aside(
                f"Its owner's limit for every record: {limit_in_words(known.limit)}. Records that "
                "arrived together are a block, with the whole limit to themselves, less what was "
                "spent on them before. Shares of a block add up over campaigns; epsilons do not."
            ),
            Legend((*legend, ("left", "track", False))),
            Table(
                f"Data set {name}",
                ("block", "size", "epsilon taken", "left"),
                tuple(rows),
                bars=tuple(bars),
                bars_title="share of its budget",
            ),
            parts_table(name, parts),
        ),
    )


def _timeline(account: CampaignAccount, so_far: dict[int, float]) -> Table:
    rows, bars = [], []
    for one in account.releases:
        under_way = one.state is State.RESERVE and one.steps_on_disk
        state = STATES[one.state] + (f", {one.steps_on_disk:,} steps on disk" if under_way else "")
        spent = so_far[one.sequence]
        rows.append((f"entry {one.sequence}", one.release.name, state, f"{spent:.4f}"))
        bars.append(spent_bar(spent, account.target.epsilon))
    return Table(
        "Timeline of releases",
        ("entry", "release", "state", "epsilon so far"),
        tuple(rows),
        bars=tuple(bars),
        bars_title="spent by then, any path",
        badge="state",
    )


def _progress(account: CampaignAccount) -> str:
    total = len(account.planned)
    done = sum(one.state is State.COMMIT for one in account.releases)
    ended = " The campaign has ended and can release nothing more." if account.ended else ""
    return f"{done} of {total} planned releases are committed.{ended}"


def _told(name: str | None, others: Sequence[CampaignAccount]) -> str:
    if name is None:
        return f"All entries of this campaign, and those about the ledger itself. {_DAYS}"
    return (
        f"All entries of the campaigns on data set {name} ("
        f"{', '.join(one.name for one in others)}), those of its owner, and those about the "
        f"ledger itself. {_DAYS}"
    )
