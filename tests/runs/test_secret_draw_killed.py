"""A campaign that dies while it draws by secret coins goes on, and has drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpal
from dpal.acquisition.selection import select_by_coins
from dpal.certificate.check_outcome import any_failed
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs import select_records


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.slow
def test_it_draws_anew_what_was_never_persisted_and_counts_it_once(workplace, small, monkeypatch):
    privacy = {"selection": "hidden", "secret_draw": True, "epsilon": 20}
    config = small(privacy=privacy, acquisition="random", schedule__queries=[])

    def dying(*arguments, **options):
        select_by_coins(*arguments, **options)
        raise Killed

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(select_records, "select_by_coins", dying)
            dpal.run(config)
    folder = dpal.run(config)
    ledger = Path("artifacts/ledger.sqlite")
    assert not any_failed(dpal.verify(folder, ledger=ledger))
    reserved = [
        entry.release
        for entry in LedgerStore(ledger).verified()
        if entry.kind is EntryKind.RESERVE
    ]  # fmt: skip
    assert reserved.count("phase-0/selection") == 1
    assert not any("#" in name for name in reserved)
