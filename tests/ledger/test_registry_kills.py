"""kill -9 while a data set is registered and added to, then the same again."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from dpal.data.sources import Role, open_source
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_registry import Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from tests.conftest import write_blobs
from tests.ledger.owning import LIMIT

# Kills the process at a step, the first time that its last argument has a name.
DIES = """
import os, signal
from pathlib import Path
from dpal.ledger.ledger_store import LedgerStore
from tests.ledger.test_registry_kills import register
def wrap(of, name, dies):
    real = getattr(of, name)
    def step(*arguments, **named):
        here = dies(arguments, named)
        if here and {before}:
            os.kill(os.getpid(), signal.SIGKILL)
        made = real(*arguments, **named)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return made
    setattr(of, name, step)
{step}
register()
"""
STEPS = {
    "the salt is on disk": 'wrap(os, "fsync", lambda a, n: True)',
    "the salt is linked": 'wrap(os, "link", lambda a, n: True)',
    "the registration": 'wrap(LedgerStore, "append", lambda a, n: n["kind"] == "register")',
    "the index is renamed": 'wrap(Path, "replace", lambda a, n: Path(a[1]).name == "part-0.arrow")',
    "the block": 'wrap(LedgerStore, "append", lambda a, n: n["kind"] == "block")',
}


def register() -> None:
    """What a data owner types, as often as it takes."""
    with closing(LedgerStore(Path("ledger.sqlite"))) as store:
        registry = Registry(store, Path("datasets"))
        registry.register("clinic", LIMIT)
        source = open_source(Path("pool.parquet"), Role.POOL, label_column="label")
        registry.add("clinic", source)


@pytest.mark.parametrize(
    "before", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["before", "after"]
)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_killed_it_is_done_by_doing_it_again(tmp_path, monkeypatch, forked, step, before):
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "pool.parquet", 90, seed=1)
    died = forked.run(DIES.format(step=step, before=before))
    assert died.returncode == -signal.SIGKILL, died.stderr
    register()
    register()
    with closing(LedgerStore(Path("ledger.sqlite"))) as store:
        kinds = [entry.kind for entry in store.verified()]
        assert kinds == [EntryKind.OPEN, EntryKind.REGISTER, EntryKind.BLOCK]
        (block,) = data_set(store.entries(), "clinic").blocks
        assert block.size == 90
        source = open_source(Path("pool.parquet"), Role.POOL, label_column="label")
        assert Registry(store, Path("datasets")).locate("clinic", source).sizes() == {0: 90}
    files = {str(path) for path in Path("datasets").rglob("*") if path.is_file()}
    assert {name for name in files if not name.endswith("/.lock")} == {
        "datasets/salt",
        "datasets/clinic/part-0.arrow",
    }
    for path in Path("datasets").rglob("*"):
        assert path.stat().st_mode & 0o77 == 0
