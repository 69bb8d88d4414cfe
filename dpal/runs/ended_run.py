"""Whether somebody ended a run before its plan was done: the ledger says so."""

from __future__ import annotations

from contextlib import closing

from dpal.config.runtime import RuntimeConfig
from dpal.errors import LedgerMissing
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs.open_ledger import open_ledger, recorded_runtime


def was_ended(folder: CampaignFolder, runtime: RuntimeConfig | None = None) -> bool:
    """Whether somebody ended a run before its plan was done, so that it releases nothing more.

    Args:
      folder: of the run.
      runtime: says where the ledger is; None for what the folder records, which only who owns it
        may rely on.

    Raises:
      LedgerError: its ledger cannot be opened.
    """
    try:
        store = open_ledger(runtime or recorded_runtime(folder), create=False)
    except LedgerMissing:  # nothing was released
        return False
    with closing(store):
        return CampaignLedger(store, folder.name, folder.root).was_ended
