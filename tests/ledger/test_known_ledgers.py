"""A ledger that is gone is missed: a new one in its place would begin with nothing spent."""

from __future__ import annotations

import shutil

import pytest

from dpal.errors import AnchorError, LedgerError
from dpal.ledger.entries import EntryKind
from dpal.ledger.known_ledgers import ledger_places
from tests.conftest import having
from tests.ledger import raw
from tests.ledger.anchoring import refused
from tests.ledger.raw import fill


def lose(place) -> None:
    """Takes a ledger away: its file and SQLite's log, or its tables."""
    if isinstance(place, str):
        raw.run(place, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        return
    for file in place.parent.glob(f"{place.name}*"):
        file.unlink()


def spending_is_refused(store) -> AnchorError:
    with pytest.raises(AnchorError) as refusal:
        fill(store, "spent again")
    assert store.entries() == []
    return refusal.value


def test_a_deleted_ledger_is_not_begun_anew(opened, filled, place):
    head = filled.entries()[-1]
    filled.close()
    lose(place)
    refusal = spending_is_refused(opened())
    assert (refusal.finding, refusal.sequence, refusal.digest) == ("lost", 3, head.digest)
    assert "had 3 entries" in str(refusal)


def test_a_log_that_was_lost_before_it_was_folded_in_is_missed(opened, tmp_path):
    """Killed before SQLite's first checkpoint, all entries are in the log beside the file."""
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy"
    store = opened(where=path)
    fill(store, "a", "b")
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    shutil.copy(path, copy)  # while it is open: as a kill leaves it
    store.close()
    lose(path)
    shutil.move(copy, path)
    assert spending_is_refused(opened(where=path)).finding == "lost"


def test_a_ledger_elsewhere_is_not_taken_for_that_of_the_same_campaigns(opened, tmp_path):
    campaigns = tmp_path / "artifacts"
    fill(opened(where=tmp_path / "one.sqlite", campaigns=campaigns), "a")
    for _ in range(2):
        other = opened(where=tmp_path / "two.sqlite", campaigns=campaigns)
        assert spending_is_refused(other).finding == "lost"
    grown = opened(where=tmp_path / "three.sqlite", campaigns=tmp_path / "others")
    fill(grown, "b")
    refused(opened(where=tmp_path / "three.sqlite", campaigns=campaigns), "another")


def test_somebody_may_vouch_for_a_new_one_by_naming_what_was_lost(opened, filled, place):
    backup, head = raw.rows(place), filled.entries()[-1]
    filled.close()
    lose(place)
    store = opened()
    with pytest.raises(AnchorError, check=having(digest=head.digest)):
        store.adopt(reason="the disk is gone")
    with pytest.raises(AnchorError, check=having(digest=head.digest)):
        store.adopt(reason="the disk is gone", despite="ab" * 32)
    assert store.entries() == []
    entry = store.adopt(reason="the disk is gone", despite=head.digest)
    assert (entry.kind, entry.sequence) == (EntryKind.ADOPT, 2)
    assert (entry.body["found"], entry.body["despite"]) == ("lost", head.digest)
    fill(store, "a")
    assert len(store.verified()) == 3
    # The old one turns up again: two ledgers would each have the whole budget.
    raw.run(place, "DELETE FROM entries")
    raw.put_back(place, backup)
    refused(opened(), "another")


def test_two_ledgers_of_one_folder_are_vouched_for_once(opened, tmp_path):
    campaigns = tmp_path / "artifacts"
    first = opened(where=tmp_path / "one.sqlite", campaigns=campaigns)
    fill(first, "a")
    fill(opened(where=tmp_path / "two.sqlite"), "b")
    second = opened(where=tmp_path / "two.sqlite", campaigns=campaigns)
    refused(second, "another")
    assert second.adopt(reason="a server now").body["found"] == "written elsewhere"
    for name in ("c", "d"):
        fill(first, name)
        fill(second, name)


def test_a_beginning_that_was_undone_is_no_loss(opened, place):
    def refuse(entries):
        raise LedgerError("no")

    store = opened()
    with pytest.raises(LedgerError, match="no"):
        store.append(campaign="c", kind=EntryKind.HOLD, release="", body=refuse)
    fill(opened(), "a")


def test_a_moved_ledger_is_the_same(opened, tmp_path):
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    store = opened(where=old)
    fill(store, "a")
    store.close()
    shutil.move(old, new)
    fill(opened(where=new), "b")
    assert spending_is_refused(opened(where=old)).finding == "lost"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"place": 1}', None])
def test_a_damaged_memory_of_places_is_refused_until_somebody_vouches(
    opened, filled, tmp_path, content
):
    (remembered,) = (tmp_path / "anchors").glob("place-*")
    edited = remembered.read_bytes().replace(b'"identities": [\n    "', b'"identities": [\n    "0')
    remembered.write_bytes(edited if content is None else content)
    refused(filled, "altered")
    assert filled.adopt(reason="a bad disk").body["found"] == "written elsewhere"
    fill(opened(), "c")


def test_ledgers_of_earlier_versions_are_remembered_from_their_next_entry_on(
    opened, filled, place, tmp_path
):
    for remembered in (tmp_path / "anchors").glob("place-*"):
        remembered.unlink()
    fill(filled, "c")
    filled.close()
    lose(place)
    assert spending_is_refused(opened()).finding == "lost"


def test_a_place_is_known_by_where_it_really_is(opened, tmp_path):
    from dpal.ledger.anchor import Anchors

    (tmp_path / "link").symlink_to(tmp_path)
    anchors = Anchors(tmp_path / "anchors")
    here, there = (
        ledger_places(anchors, "it", file=folder / "x.sqlite", folder=folder / "artifacts").where
        for folder in (tmp_path, tmp_path / "link")
    )
    assert here == there
