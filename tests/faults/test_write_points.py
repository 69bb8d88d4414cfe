"""The list of write points is complete, or kills would miss some."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.story import Told


def unexplained(told: Told, root: Path) -> list[str]:
    """Files below a folder that no counted write point speaks of."""
    named = {Path(about).name for _, about in told.seen}
    databases = {f"{name}{end}" for name in named for end in ("-wal", "-shm", "-journal")}
    files = [path for path in root.rglob("*") if path.is_file()]
    return sorted(str(path) for path in files if path.name not in named | databases)


@pytest.mark.slow
def test_every_file_of_a_campaign_was_written_at_a_counted_point(undisturbed):
    """Also by DVC, SQLite and whoever writes next year; a write from C alone is noticed."""
    artifacts = undisturbed.place / "artifacts"
    assert unexplained(undisturbed, artifacts) == []
    stranger = artifacts / "byhand" / "unseen.bin"
    subprocess.run([sys.executable, "-c", f"open({str(stranger)!r}, 'w').write('x')"], check=True)
    assert unexplained(undisturbed, artifacts) == [str(stranger)]
    stranger.unlink()


@pytest.mark.slow
def test_all_families_of_write_points_are_met(undisturbed):
    kinds = {kind for kind, _ in undisturbed.seen}
    assert {"open", "rename", "fsync", "remove", "mkdir", "lock", "connect", "send"} <= kinds
    assert {"sql COMMIT", "sql after COMMIT", "sql INSERT", "start a process"} <= kinds
    ledger = [kind for kind, about in undisturbed.seen if "ledger.sqlite" in about]
    entries = len(undisturbed.entries)  # checkpoints come on top
    assert ledger.count("sql INSERT") >= entries
    assert ledger.count("sql COMMIT") >= entries
