"""Whether a promise is kept, how to check it, and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.certificate.statements import NO_DATA_SET, STATEMENTS
from dpal.ledger.account import CampaignAccount, State
from dpal.ledger.entries import Entry, Kind
from dpal.reports.commands import ELSEWHERE, ELSEWHERE_WITHOUT_MODEL
from dpal.reports.ledger_tables import promised_in
from dpal.reports.report import Commands, Points, Verdict, sentences
from dpal.reports.summary import kept_so_far

_OTHERS = (
    "this campaign's promise is about this campaign alone; what it and others take together of the "
    "same records is bounded by the data set's limit"
)


def verdict(
    entries: Sequence[Entry],
    account: CampaignAccount,
    *,
    doubt: str | None,
    certificate: str | None,
) -> Verdict:
    """Judges a campaign by a ledger whose chain is whole.

    Args:
      entries: all of the ledger.
      account: the campaign's.
      doubt: why this may not be the newest copy of the ledger, if it may not.
      certificate: digest of the campaign's certificate, once it has one.
    """
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
    points = [
        (kept, said),
        (
            True,
            f"The chain of all {len(entries):,} entries is whole: none is altered, missing or "
            "out of place.",
        ),
        (
            doubt is None,
            doubt
            or "It is the newest copy known to the machine that wrote this page: its head "
            "is the one that was anchored there.",
        ),
        (
            certificate is not None,
            f"Certified: certificate {certificate}."
            if certificate
            else "There is no certificate yet; a finished campaign has one.",
        ),
    ]
    return Verdict(
        title=title,
        tone="broken" if not kept else "mind" if mishaps or doubt else "kept",
        points=(*points, *((False, one) for one in mishaps)),
    )


def digests(
    entries: Sequence[Entry], account: CampaignAccount, certificate: str | None
) -> list[tuple[str, str]]:
    """What names the ledger, the campaign and its plan, each with a label."""
    opening = [entry for entry in entries if entry.kind is Kind.OPEN]
    return [
        ("head of the ledger", f"entry {entries[-1].sequence}, {entries[-1].digest}"),
        ("last entry of the campaign", f"entry {account.last.sequence}, {account.last.digest}"),
        ("plan", account.plan),
        ("pool (salted)", account.pool),
        *(("ledger", str(entry.body["identity"])) for entry in opening),
        *([("certificate", certificate)] if certificate else []),
    ]


def commands(campaign: str, certificate: str | None, *, has_model: bool) -> Commands:
    """Commands that check a campaign, and what each does."""
    found = [
        (
            f"dpal ledger verify {campaign}",
            "The chain, the files that were committed, the anchor.",
        )
    ]
    if certificate:
        found.append(
            (
                ELSEWHERE if has_model else ELSEWHERE_WITHOUT_MODEL,
                "Every epsilon again from the events, with another accountant; the digest below "
                "must be the one it names, and KEY the data owner's (dpal ledger key prints it).",
            )
        )
    again = (f"dpal ledger page {campaign} --to page.html", "This page, made anew.")
    return Commands((*found, again))


def uncovered(dataset: str | None) -> Points:
    """What the promise does not speak of."""
    others = _OTHERS if dataset else NO_DATA_SET
    return sentences([*STATEMENTS["exceptions"], STATEMENTS["tuning"], others])


def _mishaps(entries: Sequence[Entry], account: CampaignAccount) -> list[str]:
    lost = [one.release.name for one in account.releases if one.state is State.FORFEIT]
    adopted = [str(entry.sequence) for entry in entries if entry.kind is Kind.ADOPT]
    told = []
    if lost:
        told.append(f"Spent, and no longer accounted for by its files: {', '.join(lost)}.")
    if adopted:
        told.append(
            f"A person vouched for this copy of the ledger (entry {', '.join(adopted)}); the "
            "reason stands among the entries."
        )
    return told
