"""Asking a ledger whether it is known to be the newest copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpal.errors import AnchorError
from dpal.ledger.anchor import identity_of
from dpal.ledger.ledger_store import LedgerStore
from tests.ledger.raw import fill


def refused(store: LedgerStore, finding: str) -> AnchorError:
    """Requires that a store refuses to spend and to be called sound, for one reason."""
    before = store.entries()
    with pytest.raises(AnchorError) as spending:
        fill(store, "spent")
    with pytest.raises(AnchorError) as looking:
        store.verified()
    assert spending.value.finding == looking.value.finding == finding
    assert store.entries() == before
    return spending.value


def anchor_file(store: LedgerStore, folder: Path) -> Path:
    return folder / "anchors" / f"{identity_of(store.entries())}.json"
