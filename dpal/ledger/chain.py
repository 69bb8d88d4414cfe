"""Whether a ledger is what was once written, and whose keys it accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpal.errors import LedgerTampered
from dpal.ledger.entries import GENESIS, Entry, EntryKind, seal_entry


@dataclass(frozen=True, kw_only=True)
class VerifiedPrefix:
    """The first entries of a ledger, as they were verified.

    Attributes:
      sequence: how many.
      digest: of the last one, GENESIS for none.
      topics: root of the tree of their topics.
    """

    sequence: int
    digest: str
    topics: str


def verify_chain(entries: Iterable[Entry]) -> str:
    """Recomputes every digest from the start.

    Args:
      entries: all entries, in order of their sequence numbers.

    Returns:
      The digest of the last entry (the head), GENESIS for an empty ledger.

    Raises:
      LedgerTampered: names the first entry that is altered, missing or out of place.
    """
    head = GENESIS
    for expected, entry in enumerate(entries, start=1):
        if entry.sequence != expected:
            raise missing_entry(expected, entry.sequence)
        if entry.previous != head:
            raise LedgerTampered(entry.sequence, LedgerTampered.ANOTHER_BEFORE)
        again = seal_entry(
            sequence=entry.sequence,
            campaign=entry.campaign,
            kind=entry.kind,
            release=entry.release,
            body=entry.body,
            recorded_at=entry.recorded_at,
            previous=entry.previous,
        )
        if again.digest != entry.digest:
            raise LedgerTampered(entry.sequence, LedgerTampered.ANOTHER_CONTENT)
        head = entry.digest
    return head


def missing_entry(expected: int, following: object) -> LedgerTampered:
    """What to raise where another entry stands in the place of one."""
    return LedgerTampered(expected, f"it is missing (entry {following!r} follows)")


def known_keys(entries: Sequence[Entry]) -> set[str]:
    """Returns the public keys whose anchors and signatures a ledger accepts."""
    opened = {entry.body.get("anchor_key") for entry in entries[:1] if entry.kind is EntryKind.OPEN}
    adopted = {entry.body.get("key") for entry in entries if entry.kind is EntryKind.ADOPT}
    return {str(key) for key in opened | adopted if key is not None}
