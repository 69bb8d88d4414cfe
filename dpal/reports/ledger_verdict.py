"""Whether a promise is kept, how to check it, and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpal.certificate.statements import NO_DATA_SET, STATEMENTS
from dpal.ledger.account import CampaignAccount, State
from dpal.ledger.entries import Entry, Kind
from dpal.reports.commands import ELSEWHERE

_OTHERS = (
    "this campaign's promise is about this campaign alone; what it and others take together of the "
    "same records is bounded by the data set's limit"
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a reader should know first.

    Attributes:
      title: in one sentence.
      tone: "kept", "mind" where something needs to be looked into, or "broken".
      points: what was found, and whether it is as it should be.
    """

    title: str
    tone: str
    points: tuple[tuple[bool, str], ...]


def terms(account: CampaignAccount) -> str:
    """What belongs to every epsilon of a campaign."""
    target = account.target
    return f"delta {target.delta:.3g}, adjacency {target.adjacency}, unit {target.unit}"


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
    # Stated as what must hold: NaN is no promise kept.
    kept = account.epsilon <= account.target.epsilon
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
        (
            kept,
            f"Any record has lost at most epsilon {account.epsilon:.4f} at {terms(account)}, of "
            f"{account.target.epsilon:g} promised, whatever path it took.",
        ),
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


def commands(campaign: str, certificate: str | None) -> list[tuple[str, str]]:
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
                ELSEWHERE,
                "Every epsilon again from the events, with another accountant; the digest above "
                "must be the one it names, and KEY the data owner's (dpal ledger key prints it).",
            )
        )
    return [*found, (f"dpal ledger page {campaign} --to page.html", "This page, made anew.")]


def uncovered(dataset: str | None) -> list[str]:
    """What the promise does not speak of."""
    others = _OTHERS if dataset else NO_DATA_SET
    told = [*STATEMENTS["exceptions"], STATEMENTS["tuning"], others]
    return [f"{one[0].upper()}{one[1:]}." for one in told]


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
