from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpal.errors import StorageError
from dpal.files.atomic_writes import (
    atomic_write,
    close_to_others,
    move_aside,
    sweep,
    write_text,
    write_together,
)
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.signing_key import SigningKey
from tests.conftest import having


def test_a_file_is_whole_or_absent_and_the_owners(tmp_path):
    path = tmp_path / "deep" / "file"
    write_text(path, "one")
    assert path.read_text() == "one"
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_all_folders_made_on_the_way_are_the_owners(tmp_path):
    mask = os.umask(0)
    try:
        write_text(tmp_path / "outer" / "inner" / "file", "one")
    finally:
        os.umask(mask)
    made = [tmp_path / "outer", tmp_path / "outer" / "inner"]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700, 0o700]
    assert (made[1] / "file").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def traced(monkeypatch):
    """What reaches the system of folders made, names changed and descriptors synced, in order.

    Seen where Python calls it: what the kernel and the disk make of it is not.
    """
    calls = []
    mkdir, fsync, rename = os.mkdir, os.fsync, os.rename

    def note(kind, path):
        calls.append((kind, str(path)))

    def made(path, *args, **options):
        mkdir(path, *args, **options)
        note("mkdir", path)

    def synced(descriptor):
        fsync(descriptor)
        note("fsync", Path(f"/proc/self/fd/{descriptor}").readlink())

    def replaced(source, target, **options):
        rename(source, target, **options)
        note("rename", target)

    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return calls


def test_new_folders_are_synced_up_to_the_first_that_was_there(tmp_path, traced):
    """The name of a folder is content of the folder above it, and is lost like any other."""
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    write_text(inner / "file", "one")
    after = {folder: traced.index(("mkdir", str(folder))) for folder in (outer, inner)}
    for folder, at in after.items():
        assert ("fsync", str(folder.parent)) in traced[at:], traced
    renamed = traced.index(("rename", str(inner / "file")))
    assert ("fsync", str(inner)) in traced[renamed:]
    # And before it the folders above.
    before = {path for kind, path in traced[:renamed] if kind == "fsync"}
    assert {str(tmp_path), str(outer)} <= before
    traced.clear()
    write_text(inner / "file", "two")
    assert [kind for kind, _ in traced] == ["fsync", "rename", "fsync"]  # nothing new is above it


@pytest.mark.parametrize("made", ["ledger", "claim", "anchors", "moved"])
def test_whoever_makes_a_folder_syncs_it(tmp_path, traced, made):
    place = tmp_path / "a" / "b"
    if made == "ledger":
        LedgerStore(place / "ledger.sqlite").close()
    elif made == "claim":
        with lock_folder(place):
            pass
    elif made == "anchors":
        SigningKey(place).public_key()
    else:
        (tmp_path / "file").touch()
        move_aside([tmp_path / "file"], place)
    for folder in (tmp_path / "a", place):
        at = traced.index(("mkdir", str(folder)))
        assert ("fsync", str(folder.parent)) in traced[at:]
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_tree_is_closed_to_others_and_links_stay(tmp_path):
    folder, elsewhere = tmp_path / "cache" / "aa", tmp_path / "shared"
    folder.mkdir(parents=True)
    elsewhere.write_text("everybody's")
    (folder / "object").write_text("x")
    (folder / "link").symlink_to(elsewhere)
    os.link(folder / "object", tmp_path / "hard")
    for path, mode in ((folder, 0o755), (folder / "object", 0o444), (elsewhere, 0o644)):
        path.chmod(mode)
    before = (folder / "object").stat().st_mtime_ns
    close_to_others(tmp_path / "cache")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "object").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "hard").stat().st_mode & 0o777 == 0o400  # the same file
    assert elsewhere.stat().st_mode & 0o777 == 0o644
    assert (folder / "object").stat().st_mtime_ns == before  # DVC would hash it anew
    close_to_others(tmp_path / "missing")


def test_leftovers_of_a_crash_are_swept(tmp_path):
    (tmp_path / ".staged-model").write_text("half")
    write_together(tmp_path, {"a": b"1", "b": b"2"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.iterdir())


def test_a_full_disk_is_one_sentence(tmp_path):
    """A process whose files may not grow, as on a full disk: the old file stays."""
    code = f"""
import resource, signal
from pathlib import Path
from dpal.files.atomic_writes import write_text
from dpal.errors import StorageError
path = Path({str(tmp_path / "file")!r})
write_text(path, "old")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text(path, "new" * 1000)
except StorageError as error:
    print(error)
print(path.read_text(), len(list(path.parent.iterdir())))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sentence, kept = done.stdout.splitlines()
    assert "(File too large)" in sentence
    assert kept == "old 1"


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, check=having(path=str(tmp_path / "file" / "below"))):
        write_text(tmp_path / "file" / "below", "x")
    with pytest.raises(StorageError), lock_folder(tmp_path / "file" / "campaign"):
        pass


def test_sweeping_finishes_what_was_whole_and_removes_what_was_not(tmp_path):
    folder = tmp_path / "a" / "b"
    write_together(folder, {"kept": b"1"})
    (folder / ".staged-late").write_bytes(b"2")
    (folder / ".journal.json").write_text('["late"]')
    (tmp_path / "a" / ".staged-12345678-torn").write_bytes(b"3")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["kept", "late"]
