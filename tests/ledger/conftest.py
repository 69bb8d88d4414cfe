from __future__ import annotations

import pytest

from dpal.ledger.claim import claim
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "planned"
    store = LedgerStore(tmp_path / "ledger.sqlite")
    with claim(folder):
        yield CampaignLedger(store, "planned", folder)
    store.close()
