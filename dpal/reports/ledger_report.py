"""The ledger of a run, told to auditors. The same entries give the same report."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.accounting.events import FIGURES, TRIAL
from dpal.certificate.sentences import NO_DATA_SET, STATEMENTS, statements_about
from dpal.ledger.campaign_account import (
    CampaignAccount,
    State,
    campaign_account,
    campaigns_in,
    epsilons_so_far,
)
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_history import dataset_of, history, parts_of
from dpal.ledger.entries import Entry, EntryKind
from dpal.privacy import Unit
from dpal.reports.charts import style_of
from dpal.reports.ledger_tables import (
    above_in,
    blocks_table,
    cohorts_table,
    limit_in_words,
    parts_table,
    promised_in,
    releases_table,
    short_table,
    time_table,
)
from dpal.reports.ledger_words import when
from dpal.reports.plan_and_phase_tables import kept_so_far, promise, terms
from dpal.reports.report import (
    Commands,
    Legend,
    Report,
    ReportSection,
    Rows,
    Verdict,
    section,
    sentences,
)
from dpal.reports.verify_commands import check_commands

_DAYS = (
    "Entries of a campaign carry the day on which its plan was held: when each was written is not "
    "recorded, as durations follow how many labels were bought."
)
_RELEASES = (
    "A release is anything computed from private records that leaves. It is charged before it is "
    "drawn, and stays charged whatever happens to it. Its charge is by how much it raised what "
    "anybody protected may have lost by then."
)
_MECHANISMS = (
    "What was run on private records, on whom, and with which parameters: all that is needed to "
    "add the losses up again."
)
_CHECK = (
    "This page is a copy for reading and proves nothing by itself. The ledger is the truth; these "
    "commands recompute every digest and every epsilon, on any machine that has it:"
)
_OTHERS = (
    "this campaign's promise is about this campaign alone; what it and others take together of the "
    "same records is bounded by the data set's limit"
)


def ledger_report(
    entries: Sequence[Entry],
    campaign: str,
    *,
    title: str,
    doubt: str | None,
    certificate: str | None,
    has_model: bool = True,
    whole_groups: bool = False,
) -> Report:
    """Tells what a run did to the ledger.

    Args:
      entries: all of the ledger, whose chain is whole.
      campaign: whose story it is.
      title: of the page: what kind of run that is, and its name.
      doubt: why this may not be the newest copy of the ledger; None if an anchor says it is.
      certificate: digest of the campaign's certificate, once it has one.
      has_model: whether a model is verified with it.
      whole_groups: whether all records of a group of a data set take part, and not one of each.

    Raises:
      LedgerError: the campaign holds no plan.
    """
    account, story = campaign_account(entries, campaign), history(entries, campaign)
    others = [campaign_account(entries, name) for name in campaigns_in(story)]
    so_far = {entry: spent for other in others for entry, spent in epsilons_so_far(other).items()}
    name, head = dataset_of(entries, campaign), entries[-1]
    again = (f"dpal ledger page {campaign} --to page.html", "This page, made anew.")
    checks = check_commands(campaign, certificate=certificate, has_model=has_model)
    kinds, grouped = {one.kind for one in account.planned}, account.target.unit is Unit.GROUP
    said = {
        **STATEMENTS,
        **statements_about(
            stopped=False,
            secret_draws=False,
            self_training=False,
            protected_validation=FIGURES in kinds,
            measured_groups=grouped,
            groups=grouped and (whole_groups or not name),
            searched=TRIAL in kinds,
        ),
    }
    beyond = [*said["exceptions"], said["tuning"], _OTHERS if name else NO_DATA_SET]
    return Report(
        title=title,
        about=f"Privacy ledger, as of entry {head.sequence} of {when(head.recorded_at)} UTC",
        promise=promise(promised_in(account)),
        verdict=_verdict(entries, account, doubt, certificate),
        sections=(
            section(
                "Timeline: what was spent, and what is left",
                short_table(account, so_far),
                note=f"{_RELEASES} {_progress(account)}",
            ),
            section("Budget by cohort", cohorts_table(account), note=_how_to_read(account)),
            *([_dataset(entries, name)] if name else []),
            section("Every mechanism", releases_table(account), note=_MECHANISMS),
            section("Every entry", time_table(story, so_far), note=_whose(name, others)),
            section("How to check it", _CHECK, Commands((*checks, again))),
            section("What is not covered", sentences(beyond)),
        ),
        digests=_digests(entries, account, certificate),
    )


def _verdict(
    entries: Sequence[Entry], account: CampaignAccount, doubt: str | None, certificate: str | None
) -> Verdict:
    """Judges a run by a ledger whose chain is whole."""
    kept, said = kept_so_far(account.epsilon, promised_in(account))
    mishaps = _mishaps(entries, account)
    if not kept:
        title = "More was spent than promised."
    elif doubt is not None:
        title = "The promise is kept as far as this copy of the ledger says; there is a doubt."
    elif mishaps:
        title = "The promise is kept, and the ledger is whole; mind the marked points."
    else:
        title = "The promise is kept, and the ledger is whole."
    whole = f"The chain of all {len(entries):,} entries is whole: none is altered, missing or out "
    newest = (
        "It is the newest copy known to the machine that wrote this page: its head is the one that "
        "was anchored there."
    )
    missing = "There is no certificate yet; a finished campaign has one."
    points = (
        (kept, said),
        (True, f"{whole}of place."),
        (doubt is None, doubt or newest),
        (bool(certificate), f"Certified: certificate {certificate}." if certificate else missing),
        *((False, mishap) for mishap in mishaps),
    )
    return Verdict(title, "broken" if not kept else "mind" if mishaps or doubt else "kept", points)


def _mishaps(entries: Sequence[Entry], account: CampaignAccount) -> list[str]:
    lost = [
        reservation.release.name
        for reservation in account.releases
        if reservation.state is State.FORFEIT
    ]
    adopted = [str(entry.sequence) for entry in entries if entry.kind is EntryKind.ADOPT]
    told = []
    if lost:
        told.append(f"Spent, and no longer accounted for by its files: {', '.join(lost)}.")
    if adopted:
        told.append(
            f"A person vouched for this copy of the ledger (entry {', '.join(adopted)}); the "
            "reason stands among the entries."
        )
    return told


def _digests(entries: Sequence[Entry], account: CampaignAccount, certificate: str | None) -> Rows:
    """What names the ledger, the run and its plan."""
    opening = [entry for entry in entries if entry.kind is EntryKind.OPEN]
    return (
        ("head of the ledger", f"entry {entries[-1].sequence}, {entries[-1].digest}"),
        ("last entry of the campaign", f"entry {account.last.sequence}, {account.last.digest}"),
        ("plan", account.plan),
        ("pool (salted)", account.pool),
        *(("ledger", str(entry.body["identity"])) for entry in opening),
        *([("certificate", certificate)] if certificate else []),
    )


def _how_to_read(account: CampaignAccount) -> str:
    unit, above = account.target.unit, above_in(account)
    said = (
        f"Epsilon at {terms(promised_in(account))}. A cohort is {unit}s with one privacy history: "
        "those that began to train in the same phase, or those behind the same votes. The last "
        f"row holds for every {unit}, whatever path it took; the promise is about that one. The "
        f"red line is the promise, {account.target.epsilon:g}, which is kept by "
        f"{account.accountant.upper()}; the other column is for information: another bound on the "
        "same loss, which may pass the line."
    )
    return said if above is None else f"{said} {above}"


def _dataset(entries: Sequence[Entry], name: str) -> ReportSection:
    dataset, parts = data_set(entries, name), parts_of(entries, name)
    held = {part.campaign: not part.ended for part in parts}
    legend = [
        (f"{campaign}{' (held, not spent yet)' * still}", style_of(number), still)
        for number, (campaign, still) in enumerate(held.items())
    ]
    about = (
        f"Its owner's limit for every {dataset.limit.unit}: {limit_in_words(dataset.limit)}. "
        "Records that arrived together are a block, with the whole limit to themselves, less "
        "what was spent on them before. Shares of a block add up over campaigns; epsilons do not."
    )
    shares = Legend((*legend, ("left", "track", False)))
    tables = blocks_table(dataset, parts), parts_table(name, parts)
    return section(f"Data set {name}", shares, *tables, note=about)


def _progress(account: CampaignAccount) -> str:
    total = len(account.planned)
    done = sum(reservation.state is State.COMMIT for reservation in account.releases)
    ended = " The campaign has ended and can release nothing more." if account.ended else ""
    return f"{done} of {total} planned releases are committed.{ended}"


def _whose(name: str | None, others: Sequence[CampaignAccount]) -> str:
    """Whose entries are told, and at which deltas."""
    names = ", ".join(campaign.name for campaign in others)
    told = f"the campaigns on data set {name} ({names}), those of its owner" if name else ""
    deltas = ", ".join(f"{campaign.target.delta:.3g} ({campaign.name})" for campaign in others)
    return (
        f"All entries of {told or 'this campaign'}, and those about the ledger itself. {_DAYS} The "
        f"epsilon is its campaign's so far, at that campaign's delta: {deltas}."
    )
