"""Whether a ledger is what was once written, and whose keys it accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpal.errors import LedgerTampered
from dpal.ledger.entries import GENESIS, Entry, EntryKind, seal_entry


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
            raise LedgerTampered(entry.sequence, "it does not follow from the entry before it")
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
