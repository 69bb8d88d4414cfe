"""A person vouches for a copy: with a reason, and by name where something is lost."""

from __future__ import annotations

import pytest

from dpal.errors import AnchorError, LedgerError, LedgerTampered
from dpal.ledger.entries import GENESIS, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from tests.conftest import having
from tests.ledger import raw
from tests.ledger.anchoring import refused
from tests.ledger.raw import fill
from tests.ledger.releasing import SELECTION, TRAINING, draw, hold, release, run_all


def test_two_machines_share_a_ledger_once_both_are_known(opened, filled):
    other = opened(anchors="elsewhere")
    other.adopt(reason="shared with the second machine")
    for name in ("one", "two"):
        fill(filled, f"{name} here")
        fill(other, f"{name} there")
    assert filled.verified() == other.verified()
    assert len(filled.verified()) == 8


def test_adopting_records_who_why_and_what_was_wrong(opened, filled):
    entry = opened(anchors="elsewhere").adopt(reason="moved to a new disk")
    head = filled.entries()[2]
    assert entry == filled.entries()[-1]
    assert (entry.kind, entry.sequence) == (EntryKind.ADOPT, 4)
    assert entry.body == {
        "key": entry.body["key"],
        "reason": "moved to a new disk",
        "found": "missing",
        "despite": None,
        "head": {"sequence": 3, "digest": head.digest},
    }


def test_there_must_be_something_to_adopt_and_a_reason(opened, filled, tmp_path):
    with pytest.raises(LedgerError, match="to adopt"):
        filled.adopt(reason="to be sure")
    with pytest.raises(LedgerError, match="for a reason"):
        opened(anchors="elsewhere").adopt(reason=" ")
    with pytest.raises(LedgerError, match="anchor here"):
        opened(anchors="elsewhere").adopt(reason="moved", despite="ab" * 32)
    with pytest.raises(LedgerError, match="has no entries"):
        opened(where=tmp_path / "empty.sqlite").adopt(reason="new")
    assert len(filled.entries()) == 3


@pytest.mark.parametrize("finding", ["behind", "forked"])
def test_a_proven_loss_must_be_named_to_be_adopted(opened, filled, place, finding):
    backup = raw.rows(place)
    fill(filled, "lost")
    lost = filled.entries()[-1].digest
    raw.put_back(place, backup)
    if finding == "forked":
        fill(opened(anchors=None), "another")
    for wrong in (None, "ab" * 32, GENESIS, lost[:12]):
        with pytest.raises(AnchorError, check=having(finding=finding, digest=lost)):
            filled.adopt(reason="the disk died", despite=wrong)
    entry = filled.adopt(reason="the disk died", despite=lost)
    assert (entry.body["found"], entry.body["despite"]) == (finding, lost)
    fill(filled, "on")
    filled.verified()


@pytest.mark.slow
def test_what_had_begun_does_not_go_on_after_a_loss(opened, place, tmp_path):
    """Its lost releases would be drawn again, and charged once."""
    store = opened()
    done, begun, later = (
        CampaignLedger(store, name, tmp_path / name) for name in ("done", "begun", "later")
    )
    with lock_folder(done.folder), lock_folder(begun.folder), lock_folder(later.folder):
        run_all(done)
        hold(begun)
        draw(begun, release("phase-0/training"))
        begun.reserve(release(SELECTION), inputs=[])
        backup = raw.rows(place)
        draw(begun, release(TRAINING))
        lost = store.entries()[-1].digest
        raw.put_back(place, backup)
        (begun.folder / TRAINING.replace("/", "-")).unlink()  # it is not in the backup either
        store.adopt(reason="the disk died", despite=lost)
        known = store.entries()
        for attempt in (
            lambda: hold(begun),
            lambda: draw(begun, release(TRAINING)),
            lambda: draw(begun, release(SELECTION)),
            lambda: begun.reserve(release(SELECTION), inputs=[]),
        ):
            with pytest.raises(LedgerError, match="had begun"):
                attempt()
        assert store.entries() == known
        run_all(done)  # everything is committed: nothing is drawn
        assert store.entries() == known
        run_all(later)


def test_a_lost_adoption_does_not_hide_a_loss(opened, filled, place):
    """Restored to a time before this machine was known: its own anchor is believed."""
    backup = raw.rows(place)
    other = opened(anchors="elsewhere")
    other.adopt(reason="shared")
    fill(other, "spent there")
    raw.put_back(place, backup)
    refused(other, "behind")


def test_an_altered_chain_cannot_be_adopted(opened, filled, place):
    raw.run(place, "UPDATE entries SET body = '{}' WHERE sequence = 2")
    with pytest.raises(LedgerTampered):
        opened(anchors="elsewhere").adopt(reason="moved")
