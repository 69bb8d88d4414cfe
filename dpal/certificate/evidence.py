"""What a certificate is made of: ledger entries, and the plan that they commit to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.accounting.events import Release
from dpal.certificate.read_and_seal import FORMAT, entry_record, parse_entry
from dpal.errors import CertificateError
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.release_json import release_from, release_of
from dpal.privacy import Accountant, Adjacency, PrivacyTarget, Unit

_MODEL = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class LedgerEvidence:
    """A run's entries of the ledger, and the plan that they commit to.

    Attributes:
      entries: the run's ledger entries, in order.
      opening: the ledger's first entry, where it is not the run's own.
      identity: digest of the ledger's first entry.
      plan: the plan as JSON; the held digest commits to it.
      adoptions: entries by which people vouched for the ledger before its last entry here; None
        in format 1, which has none of them.
    """

    entries: Sequence[Entry]
    opening: Entry | None
    identity: str
    plan: dict[str, Any]
    adoptions: Sequence[Entry] | None = None

    @property
    def in_order(self) -> list[Entry]:
        """All entries as the ledger has them, its first one included."""
        first = [] if self.opening is None else [self.opening]
        later = [*(self.adoptions or ()), *self.entries]
        return [*first, *sorted(later, key=lambda entry: entry.sequence)]

    @property
    def hold(self) -> Entry:
        """The entry by which the plan was set aside.

        Raises:
          CertificateError: there is none, or there are several.
        """
        holds = [entry for entry in self.entries if entry.kind is EntryKind.HOLD]
        if len(holds) != 1:
            raise CertificateError(f"the campaign holds {len(holds)} plans where one is expected")
        return holds[0]

    @property
    def name(self) -> str:
        """Of the run."""
        return self.hold.campaign

    @property
    def own(self) -> LedgerEvidence:
        """All of it is the run's own."""
        return self

    @property
    def charged(self) -> tuple[Release, ...]:
        """What a total is of: all that was reserved, or could have been when a rule ended it."""
        return counted_releases(self.entries)

    @property
    def target(self) -> PrivacyTarget:
        """What was promised."""
        held = self.hold.body
        return PrivacyTarget(
            epsilon=held["epsilon"],
            delta=held["delta"],
            adjacency=Adjacency(held["adjacency"]),
            unit=Unit(held["unit"]),
        )

    @property
    def accountant(self) -> Accountant:
        """The accountant by which the promise is kept."""
        return Accountant(self.hold.body["accountant"])

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was reserved, in order; further attempts at a release are releases, too."""
        return tuple(release_of(entry) for entry in self.entries if entry.kind is EntryKind.RESERVE)

    @property
    def models(self) -> list[tuple[Entry, str, str]]:
        """Every committed model: its entry, its file, the digest of its weights."""
        return [
            (entry, name, digest)
            for entry in self.entries
            if entry.kind is EntryKind.COMMIT
            for name, digest in entry.body["artifacts"].items()
            if name.rpartition("/")[2] == _MODEL
        ]

    @property
    def end(self) -> Entry | None:
        """The entry by which the run ended; None while it may go on."""
        return next((entry for entry in self.entries if entry.kind is EntryKind.END), None)

    @property
    def mode(self) -> str:
        """Who can see the selection, in one word."""
        if not any(release.selects for release in map(release_from, self.hold.body["releases"])):
            return "random"
        return str(self.plan["spec"]["selection"])


def evidence_in(ledger: Sequence[Entry], campaign: str, plan: Mapping[str, Any]) -> LedgerEvidence:
    """Finds what a certificate of a campaign is made of.

    Args:
      ledger: all entries, of all campaigns, the chain verified.
      campaign: its name.
      plan: its plan as JSON.

    Raises:
      CertificateError: the ledger has nothing of it.
    """
    own = [entry for entry in ledger if entry.campaign == campaign]
    if not own:
        raise CertificateError(f"the ledger has no entries of {campaign}")
    first, last = ledger[0], own[-1]
    return LedgerEvidence(
        entries=own,
        opening=None if first.campaign == campaign else first,
        identity=first.digest,
        plan=dict(plan),
        adoptions=[
            entry
            for entry in ledger
            if entry.kind is EntryKind.ADOPT and entry.sequence < last.sequence and entry != first
        ],
    )


def evidence_from(document: Mapping[str, Any]) -> LedgerEvidence:
    """Reads the same from a certificate; nothing is believed yet.

    Raises:
      CertificateError: something among its entries is none, or it holds no plan, or several.
    """
    ledger = document["ledger"]
    opening = ledger["opening"]
    adoptions = ledger.get("adoptions")
    evidence = LedgerEvidence(
        entries=[parse_entry(record) for record in ledger["entries"]],
        opening=None if opening is None else parse_entry(opening),
        identity=ledger["identity"],
        plan=document["plan"]["content"],
        adoptions=None if adoptions is None else [parse_entry(record) for record in adoptions],
    )
    _ = evidence.hold  # there must be one
    return evidence


def ledger_record(evidence: LedgerEvidence, form: int = FORMAT) -> dict[str, Any]:
    """What a certificate shows of the ledger."""
    last = evidence.entries[-1]
    record = {
        "identity": evidence.identity,
        "opening": None if evidence.opening is None else entry_record(evidence.opening),
        "head": {"sequence": last.sequence, "digest": last.digest},
        "entries": [entry_record(entry) for entry in evidence.entries],
    }
    if form == 1:
        return record
    adoptions = [entry_record(entry) for entry in evidence.adoptions or ()]
    return {**record, "adoptions": adoptions}


def promise_record(target: PrivacyTarget, accountant: Accountant) -> dict[str, Any]:
    """A promise with everything that belongs to it."""
    return {
        "epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": accountant.value,
    }
