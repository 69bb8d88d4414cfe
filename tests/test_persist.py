from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dpal.errors import StorageError
from dpal.ledger.claim import claim
from dpal.persist import staged, sweep, write_text, write_together


def test_a_file_is_whole_or_absent_and_the_owners(tmp_path):
    path = tmp_path / "deep" / "file"
    write_text(path, "one")
    assert path.read_text() == "one"
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(KeyboardInterrupt), staged(path) as temporary:
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
from dpal.persist import write_text
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
    assert "could not be written (File too large); nothing was lost, make room" in sentence
    assert kept == "old 1"


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="could not be written"):
        write_text(tmp_path / "file" / "below", "x")
    with pytest.raises(StorageError), claim(tmp_path / "file" / "campaign"):
        pass


def test_sweeping_finishes_what_was_whole_and_removes_what_was_not(tmp_path):
    folder = tmp_path / "a" / "b"
    write_together(folder, {"kept": b"1"})
    (folder / ".staged-late").write_bytes(b"2")
    (folder / ".journal.json").write_text('["late"]')
    (tmp_path / "a" / ".staged-12345678-torn").write_bytes(b"3")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["kept", "late"]
