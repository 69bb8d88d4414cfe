"""A copy that is not the newest one spends nothing, and says why."""

from __future__ import annotations

import json
import shutil

import pytest

from dpal.errors import AnchorError, LedgerError, LedgerTampered
from dpal.ledger.anchor import Anchors, identity_of
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from tests.conftest import having, nothing_released
from tests.ledger import raw
from tests.ledger.anchoring import anchor_file, refused
from tests.ledger.raw import fill
from tests.ledger.releasing import PLAN, Drawing, hold, settle


def test_the_anchor_names_the_head_and_belongs_to_its_owner(filled, tmp_path):
    path = anchor_file(filled, tmp_path)
    anchor, head = json.loads(path.read_text()), filled.entries()[-1]
    assert (anchor["sequence"], anchor["digest"]) == (head.sequence, head.digest)
    assert anchor["key"] == filled.entries()[0].body["anchor_key"]
    assert path.parent.stat().st_mode & 0o777 == 0o700
    files = sorted(path.parent.iterdir())
    (place,) = path.parent.glob("place-*")
    assert {one.name for one in files} == {".lock", "anchor.key", path.name, place.name}
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in files)


def test_a_restored_backup_is_refused(filled, place):
    backup = raw.rows(place)
    fill(filled, "c", "d")
    raw.put_back(place, backup)
    error = refused(filled, "behind")
    assert error.sequence == 5
    assert "lacks entry 5" in str(error)


@pytest.mark.parametrize("kept", [1, 2])
def test_a_cut_off_tail_is_refused(filled, place, kept):
    raw.run(place, f"DELETE FROM entries WHERE sequence > {kept}")
    refused(filled, "behind")


def test_a_restored_file_is_refused(opened, tmp_path):
    """Byte for byte, as a backup of the folder would restore it."""
    path, backup = tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite"
    store = opened(where=path)
    fill(store, "a")
    store.close()
    shutil.copy(path, backup)
    again = opened(where=path)
    fill(again, "b")
    again.close()
    shutil.copy(backup, path)
    refused(opened(where=path), "behind")


def test_two_copies_that_both_grow_are_told_apart(opened, tmp_path):
    """The one that is behind first, the same length later, and longer in the end."""
    first, second = opened(where=tmp_path / "1.sqlite"), None
    fill(first, "a")
    first.close()
    shutil.copy(tmp_path / "1.sqlite", tmp_path / "2.sqlite")
    fill(first, "b", "c")
    second = opened(where=tmp_path / "2.sqlite")
    refused(second, "behind")
    careless = opened(where=tmp_path / "2.sqlite", anchors=None)
    fill(careless, "x", "y")
    error = refused(second, "forked")
    assert "another entry 4" in str(error)
    fill(careless, "z")
    refused(second, "forked")
    fill(first, "d")
    assert len(first.verified()) == 5


def test_a_copy_on_another_machine_is_refused(opened, filled):
    error = refused(opened(anchors="elsewhere"), "missing")
    assert "restored ledger" in str(error)


def test_a_removed_anchor_is_refused(filled, tmp_path):
    anchor_file(filled, tmp_path).unlink()
    refused(filled, "missing")


@pytest.mark.parametrize("field", ["identity", "sequence", "digest", "recorded_at", "key"])
def test_an_edited_anchor_is_refused(filled, tmp_path, field):
    path = anchor_file(filled, tmp_path)
    values = json.loads(path.read_text())
    earlier = filled.entries()[1]
    new = {"sequence": earlier.sequence, "digest": earlier.digest, "recorded_at": "now"}
    new |= {"key": "ab" * 32, "identity": "cd" * 16}
    for edited in (new[field], None, "", 1.5, -1, [new[field]]):
        path.write_text(json.dumps(values | {field: edited}))
        refused(filled, "altered")
    path.write_text(json.dumps(values))
    filled.verified()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null ", b"\xff", b'{"identity": "x"'])
def test_a_damaged_anchor_is_refused(filled, tmp_path, content):
    anchor_file(filled, tmp_path).write_bytes(content)
    refused(filled, "missing" if content == b"null " else "altered")


def test_any_byte_of_an_anchor_matters(filled, tmp_path):
    """Whatever a changed byte makes of the file, it is not taken for another anchor."""
    path, anchors, entries = (
        anchor_file(filled, tmp_path),
        Anchors(tmp_path / "anchors"),
        filled.entries(),
    )

    def check() -> None:
        anchors.require("it", entries, anchors.read(identity_of(entries)))

    content, values = path.read_bytes(), json.loads(path.read_bytes())
    for position in range(len(content)):
        path.write_bytes(content[:position] + b"7" + content[position + 1 :])
        try:
            same = json.loads(path.read_bytes()) == values
        except ValueError:
            same = False
        if same:
            check()  # a 7 for a 7
        else:
            with pytest.raises(AnchorError, check=having(finding="altered")):
                check()


def test_an_anchor_that_a_stranger_signed_is_refused(filled, tmp_path):
    """It names an entry that is there, under a key that the ledger never heard of."""
    stranger, earlier = Anchors(tmp_path / "stranger"), filled.entries()[1]
    stranger.advance(identity_of(filled.entries()), earlier)
    written = tmp_path / "stranger" / anchor_file(filled, tmp_path).name
    shutil.copy(written, anchor_file(filled, tmp_path))
    refused(filled, "foreign")


def test_a_new_key_is_not_trusted_until_it_is_adopted(filled, tmp_path):
    """Else the next anchor would be one that nobody can check."""
    (tmp_path / "anchors" / "anchor.key").unlink()
    filled.verified()  # the anchor itself is as it was
    with pytest.raises(AnchorError, check=having(finding="foreign")):
        fill(filled, "c")
    filled.adopt(reason="the key was lost with the old disk")
    fill(filled, "c")
    assert len(filled.verified()) == 5


def test_a_key_that_is_none_is_one_sentence(filled, tmp_path):
    (tmp_path / "anchors" / "anchor.key").write_text("no key")
    with pytest.raises(LedgerError, match="signing key", check=nothing_released):
        fill(filled, "c")


def test_tampering_is_named_before_the_anchor(filled, place, tmp_path):
    raw.run(place, "UPDATE entries SET body = '{}' WHERE sequence = 1")
    anchor_file_of_nothing = tmp_path / "anchors"
    shutil.rmtree(anchor_file_of_nothing)
    with pytest.raises(LedgerTampered, check=having(sequence=1)):
        filled.verified()


@pytest.mark.parametrize("already", [0, 2])
def test_a_crash_between_entry_and_anchor_leaves_the_ledger_ahead(opened, monkeypatch, already):
    """Also for the very first entry: the ledger then is at its beginning in the anchor."""
    store = opened()
    fill(store, *"ab"[:already])
    with monkeypatch.context() as patch:
        patch.setattr(Anchors, "advance", _die)
        with pytest.raises(KeyboardInterrupt):
            fill(store, "x")
    assert [one.release for one in store.verified()][-1] == "x"
    fill(opened(), "y")
    assert len(store.verified()) == already + 3


def test_a_crash_before_the_first_commit_leaves_nothing(opened, monkeypatch, tmp_path):
    store = opened()
    with monkeypatch.context() as patch:
        patch.setattr(Anchors, "begin", _die)
        with pytest.raises(KeyboardInterrupt):
            fill(store, "x")
    assert store.entries() == []
    fill(store, "x")
    assert len(store.verified()) == 2


def _die(*_arguments, **_options):
    raise KeyboardInterrupt


def test_an_anchor_never_runs_backwards(filled, tmp_path):
    anchors, entries = Anchors(tmp_path / "anchors"), filled.entries()
    anchors.advance(identity_of(entries), entries[1])
    assert json.loads(anchor_file(filled, tmp_path).read_text())["sequence"] == 3


def test_an_identity_is_no_path(opened, filled, place):
    """It becomes a file's name; whoever forges a whole ledger gets no further than this."""
    raw.run(place, "UPDATE entries SET body = :body WHERE sequence = 1",
            body='{"anchor_key":null,"identity":"../../somewhere"}')  # fmt: skip
    with pytest.raises(LedgerTampered, match=r"is not 32|its digest"):
        filled.verified()


def test_nothing_is_drawn_again_on_a_restored_ledger(opened, place, tmp_path):
    """The reservation is in the backup, the commit is not, and the files are gone as well."""
    store = opened()
    first = next(PLAN.releases())
    with lock_folder(tmp_path / "planned"):
        ledger = CampaignLedger(store, "planned", tmp_path / "planned")
        hold(ledger)
        drawing = Drawing(ledger.folder / "model")
        backups = []

        def draw():
            backups.append(raw.rows(place))
            drawing()

        settle(ledger, first, [drawing.path], draw)
        assert drawing.times == 1
        raw.put_back(place, backups[0])
        drawing.path.unlink()
        with pytest.raises(AnchorError, check=having(finding="behind", sequence=4)):
            settle(ledger, first, [drawing.path], drawing)
        assert drawing.times == 1
