"""Which ledger, and whose anchors: the one place that opens either."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_state_path

from dpal.artifacts import LEDGER, CampaignFolder, campaigns_of
from dpal.config_runtime import RuntimeConfig
from dpal.errors import ConfigError, LedgerError
from dpal.ledger.store import LedgerStore


def open_ledger(runtime: RuntimeConfig, *, create: bool = True) -> LedgerStore:
    """Opens the ledger that settings name, with this user's anchors.

    Raises:
      ConfigError: the anchors would be inside of the artifacts folder.
      LedgerError: the ledger is missing and may not be made, or cannot be opened.
    """
    anchors = (runtime.anchors or user_state_path("dpal") / "anchors").expanduser()
    artifacts = runtime.artifacts.resolve()
    if anchors.resolve().is_relative_to(artifacts):
        raise ConfigError(
            f"runtime.anchors is inside of {artifacts}; who restores that folder would restore "
            "the anchors with it, choose one outside"
        )
    return LedgerStore(runtime.ledger or artifacts / LEDGER, create=create, anchors=anchors)


def recorded_ledger(folder: CampaignFolder) -> LedgerStore:
    """Opens the ledger of a campaign that has been run, wherever its folder is now.

    Raises:
      DataError: the folder is not a campaign's.
      LedgerError: its ledger is missing or cannot be opened.
    """
    runtime = RuntimeConfig.model_validate(folder.read_record()["config"]["runtime"])
    here = runtime.model_copy(update={"artifacts": folder.root.parent})
    return open_ledger(here, create=False)


def ledger_of_all(artifacts: Path) -> LedgerStore:
    """Opens the ledger that the campaigns of a folder share.

    Raises:
      DataError: a campaign's record cannot be read.
      LedgerError: the ledger is missing, or they do not share one.
    """
    folders = campaigns_of(artifacts)
    places = {one.read_record()["config"]["runtime"].get("ledger") for one in folders}
    if len(places) > 1:
        raise LedgerError(
            f"the campaigns of {artifacts} do not share one ledger; name one of them instead, such "
            f"as {folders[0].root}"
        )
    if folders:
        return recorded_ledger(folders[0])
    return open_ledger(RuntimeConfig(artifacts=artifacts), create=False)
