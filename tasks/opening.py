"""Which ledger, and whose anchors: the one place that opens either, and says what it is about."""

from __future__ import annotations

import secrets
from pathlib import Path

from platformdirs import user_state_path

from dpal.artifacts import LEDGER, CampaignFolder, campaigns_of
from dpal.config_runtime import RuntimeConfig
from dpal.data.files import commitment
from dpal.errors import ConfigError, LedgerError
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore
from dpal.persist import staged


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
    place = runtime.ledger or artifacts / LEDGER
    return LedgerStore(place, create=create, anchors=anchors, campaigns=artifacts)


def commit_to(ledger: CampaignLedger, folder: CampaignFolder, made_of: str, *, called: str) -> str:
    """Commits to private files without letting anyone confirm a guess of them.

    The first time draws the salt, which never leaves the folder.

    Args:
      ledger: of what is to be held.
      folder: its files.
      made_of: digest of the private files.
      called: what a person calls it: campaign, improvement, account.

    Raises:
      LedgerError: the ledger knows it, and its folder is gone.
    """
    if ledger.identity and not folder.salt.exists():
        raise LedgerError(
            f"the ledger knows {called} {folder.name}, and its files in {folder.root} are gone; "
            f"restore them to continue it, or choose another name for a new {called} (nothing was "
            "released)"
        )
    if not folder.salt.exists():
        with staged(folder.salt) as temporary:
            temporary.write_bytes(secrets.token_bytes(32))
    return commitment(folder.salt.read_bytes(), made_of)


def recorded_ledger(folder: CampaignFolder, *, create: bool = False) -> LedgerStore:
    """Opens the ledger of a campaign that has been run, wherever its folder is now.

    Args:
      folder: of the campaign.
      create: whether a new one may be made in place of one that is gone.

    Raises:
      DataError: the folder is not a campaign's.
      LedgerError: its ledger is missing or cannot be opened.
    """
    runtime = RuntimeConfig.model_validate(folder.read_record()["config"]["runtime"])
    here = runtime.model_copy(update={"artifacts": folder.root.parent})
    return open_ledger(here, create=create)


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
