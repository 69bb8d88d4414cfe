"""What the ledger is about to record is in the run's store first.

So a run whose machine is lost goes on elsewhere: no recorded file was on it alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from dpal.config.runtime import RuntimeConfig
from dpal.errors import StoreUnreachable
from dpal.files.object_store import Store, StoreHolds, is_confidential
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.recorded_files import name_below
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs.progress_logging import notify

PATIENCE_SECONDS = 300.0
_LONGEST_WAIT = 30.0
_CHECKPOINTS = "checkpoints"

Answer = TypeVar("Answer")


def open_run_ledger(name: str, runtime: RuntimeConfig, ledger: LedgerStore) -> CampaignLedger:
    """A run's part of a ledger, which carries files into the store before it records them."""
    opened = CampaignLedger(ledger, name, runtime.artifacts / name)
    if runtime.store is None:
        return opened

    def carry(paths: Sequence[Path]) -> None:
        carry_in(store_of(name, runtime, opened.identity or ""), opened.folder, paths)

    return replace(opened, carry=carry)


def store_of(name: str, runtime: RuntimeConfig, identity: str) -> Store:
    """The part of the store that belongs to a run, by the digest of its hold."""
    return Store(
        url=str(runtime.store), campaign=f"{name}-{identity[:16]}", holds=runtime.store_holds
    )


def carry_in(store: Store, folder: Path, paths: Sequence[Path]) -> None:
    """Puts files of a run into its store; confidential ones only where it may hold them.

    A checkpoint's predecessors go once they are gone here, too: the one that the ledger
    recorded last stays until it records this one.
    """
    for path in paths:
        name = name_below(folder, path)
        if store.holds is StoreHolds.EVERYTHING or not is_confidential(name):
            put(store, name, path)
    for place in {path.parent for path in paths if path.parent.parent.name == _CHECKPOINTS}:
        oldest = min(int(path.stem) for path in place.iterdir() if path.stem.isdecimal())
        stored = retry_while_store_is_down(partial(store.known, name_below(folder, place)))
        for name, ref in stored.items():
            if int(Path(name).stem) < oldest:
                store.forget(ref)


def put(store: Store, name: str, path: Path) -> None:
    """Puts one file into a store, however long that takes to answer."""
    retry_while_store_is_down(lambda: store.put(name, path))


def is_checkpoint(name: str) -> bool:
    """Whether a name is of what a training persists on its way."""
    return _CHECKPOINTS in Path(name).parts[1:3]  # of a phase, or of one of its trials


def retry_while_store_is_down(ask: Callable[[], Answer]) -> Answer:
    """Asks a store again for some minutes while it does not answer, and says so.

    Raises:
      StoreUnreachable: it stayed silent. Nothing was lost.
    """
    begun, wait, told = time.monotonic(), 1.0, False
    while True:
        try:
            answer = ask()
        except StoreUnreachable as silent:
            if time.monotonic() + wait - begun > PATIENCE_SECONDS:
                raise
            if not told:
                notify(f"{silent.place} does not answer; asking again for "
                    f"{PATIENCE_SECONDS / 60:.0f} minutes, nothing was lost")  # fmt: skip
                told = True
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if told:
                notify("the store answers again")
            return answer
