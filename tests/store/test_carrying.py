"""What is recorded is in the store first; what was begun elsewhere wants a person's word."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.errors import LedgerError, StoreUnreachable
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from tests.ledger.releasing import Drawing, hold, release, settle


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "planned"
    store = LedgerStore(tmp_path / "ledger.sqlite", anchors=tmp_path / "anchors")
    with lock_folder(folder):
        yield CampaignLedger(store, "planned", folder)
    store.close()


def recorded(ledger, kind):
    return [entry.release for entry in ledger.entries() if entry.kind is kind]


def test_nothing_is_committed_that_the_store_did_not_take(ledger):
    hold(ledger)
    drawing = Drawing(ledger.folder / "model")

    def silent(paths):
        if drawing.path in paths:
            raise StoreUnreachable("s3://bucket", "no route")

    away = replace(ledger, carry=silent)
    with pytest.raises(StoreUnreachable):
        settle(away, release("phase-0/training"), [drawing.path], drawing)
    assert recorded(ledger, EntryKind.COMMIT) == []

    carried: list[Path] = []
    back = replace(ledger, carry=carried.extend)
    settle(back, release("phase-0/training"), [drawing.path], drawing)
    assert drawing.times == 1  # what was persisted is carried, and never drawn again
    assert carried == [drawing.path]
    assert recorded(ledger, EntryKind.COMMIT) == ["phase-0/training"]


def test_a_lost_folder_is_taken_over_by_a_persons_word(ledger, tmp_path):
    hold(ledger)

    def crash() -> None:
        raise KeyboardInterrupt

    drawing = Drawing(ledger.folder / "model")
    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [drawing.path], crash)
    assert not ledger.begun_elsewhere()
    copy = tmp_path / "elsewhere" / "planned"
    shutil.copytree(ledger.folder, copy)
    other, drawing = CampaignLedger(ledger.store, "planned", copy), Drawing(copy / "model")
    assert other.begun_elsewhere()
    with lock_folder(copy):
        with pytest.raises(LedgerError, match="dpal ledger adopt"):
            settle(other, release("phase-0/training"), [drawing.path], drawing)
        with pytest.raises(LedgerError, match="to adopt"):
            ledger.store.adopt(reason="the disk is gone")
        said = ledger.store.adopt(reason="the disk is gone", begun_elsewhere=True)
        assert said.body["found"] == "begun elsewhere"
        settle(other, release("phase-0/training"), [drawing.path], drawing)
    assert drawing.times == 1
    assert not other.begun_elsewhere()
