"""Which day an entry carries.

How long a campaign takes follows how many labels it bought, and with hidden selection that number
is confidential. So no entry of a campaign says when it was written: all of them carry the day on
which the campaign's plan was held, before any record was touched. A grid of days would not do:
phases may take weeks. The same for accounts of teachers and improvements, whose entries are
written while the campaign that asked for them goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime

from dpal.ledger.entries import Entry, EntryKind


def today_in_utc() -> date:
    """The present day."""
    return datetime.now(UTC).date()


def day_held(campaign: str, entries: Iterable[Entry]) -> str | None:
    """The day on which a campaign's plan was held, as YYYY-MM-DD; None before."""
    held = (
        entry for entry in entries if entry.kind is EntryKind.HOLD and entry.campaign == campaign
    )
    return next((entry.recorded_at[: len("YYYY-MM-DD")] for entry in held), None)


def day_of(campaign: str, entries: Iterable[Entry], today: date) -> str:
    """The day that a campaign's next entry carries.

    Args:
      campaign: whose entry it is; empty for those of the ledger and of data sets, which people
        cause and which carry their own day.
      entries: all that were written before.
      today: in UTC.
    """
    return (day_held(campaign, entries) if campaign else None) or today.isoformat()
