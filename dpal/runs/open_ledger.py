"""Opens the ledger that settings name, with the anchors of this user."""

from __future__ import annotations

import secrets
from pathlib import Path

from platformdirs import user_state_path

from dpal.config.runtime import RuntimeConfig
from dpal.data.pool_files import commitment
from dpal.errors import ConfigError, LedgerError
from dpal.files.artifacts import LEDGER, CampaignFolder, campaigns_of
from dpal.files.atomic_writes import atomic_write
from dpal.ledger.anchor import Anchors
from dpal.ledger.database import find_database
from dpal.ledger.known_ledgers import ledger_places
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger


def open_ledger(runtime: RuntimeConfig, *, create: bool = True) -> LedgerStore:
    """Opens the ledger that settings name, with this user's anchors.

    Raises:
      ConfigError: the anchors would be inside of the artifacts folder.
      LedgerError: the ledger is missing and may not be made, or cannot be opened.
    """
    anchors, artifacts = anchors_of(runtime), runtime.artifacts.resolve()
    place = runtime.ledger or artifacts / LEDGER
    return LedgerStore(place, create=create, anchors=anchors.folder, campaigns=artifacts)


def was_written_here(runtime: RuntimeConfig) -> bool:
    """Whether an anchor of this user remembers the ledger that settings name, or one before it."""
    place = runtime.ledger or runtime.artifacts.resolve() / LEDGER
    database = find_database(place, busy_seconds=0)
    try:
        places = ledger_places(
            anchors_of(runtime),
            database.name,
            file=database.file,
            folder=runtime.artifacts.resolve(),
        )
        return places.last_lost() is not None
    finally:
        database.close()


def anchors_of(runtime: RuntimeConfig) -> Anchors:
    """Finds this user's anchors; their key also signs certificates and exports.

    Raises:
      ConfigError: they would be inside of the artifacts folder.
    """
    folder = (runtime.anchors or user_state_path("dpal") / "anchors").expanduser()
    artifacts = runtime.artifacts.resolve()
    if folder.resolve().is_relative_to(artifacts):
        raise ConfigError(
            f"runtime.anchors is inside of {artifacts}; who restores that folder would restore "
            "the anchors with it, choose one outside"
        )
    return Anchors(folder)


def rank_key_file() -> Path:
    """Where the key lies that machines know which train together; this user's alone."""
    return user_state_path("dpal") / "ranks.key"


def key_word(runtime: RuntimeConfig) -> str:
    """What `dpal verify --key` is given where settings are in force: own, or the key's digits.

    `own` is the key of this user's own anchors. Other anchors are named by nothing that a folder
    of campaigns says, as that may be a stranger's.
    """
    return "own" if runtime.anchors is None else anchors_of(runtime).key.public_key()


def runtime_of(place: CampaignFolder | Path | None) -> RuntimeConfig:
    """The settings that say where ledger and anchors are.

    Args:
      place: a campaign, or a folder of campaigns; None where no campaign says so.
    """
    if isinstance(place, CampaignFolder):
        return recorded_runtime(place)
    campaigns = [] if place is None else campaigns_of(place)
    if campaigns:
        return recorded_runtime(campaigns[0])
    return RuntimeConfig() if place is None else RuntimeConfig(artifacts=place)


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
        raise LedgerError.before_release(
            f"the ledger knows {called} {folder.name}, and its files in {folder.root} are gone; "
            f"restore them to continue it, or choose another name for a new {called}"
        )
    if not folder.salt.exists():
        with atomic_write(folder.salt) as temporary:
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
    return open_ledger(recorded_runtime(folder), create=create)


def ledger_of_all(artifacts: Path) -> LedgerStore:
    """Opens the ledger that the campaigns of a folder share.

    Raises:
      DataError: a campaign's record cannot be read.
      LedgerError: the ledger is missing, or they do not share one.
    """
    folders = campaigns_of(artifacts)
    places = {folder.read_record()["config"]["runtime"].get("ledger") for folder in folders}
    if len(places) > 1:
        raise LedgerError(
            f"the campaigns of {artifacts} do not share one ledger; name one of them instead, such "
            f"as {folders[0].root}"
        )
    if folders:
        return recorded_ledger(folders[0])
    return open_ledger(RuntimeConfig(artifacts=artifacts), create=False)


def recorded_runtime(folder: CampaignFolder) -> RuntimeConfig:
    """The recorded settings of a campaign, wherever its folder is now."""
    runtime = RuntimeConfig.model_validate(folder.read_record()["config"]["runtime"])
    return runtime.model_copy(update={"artifacts": folder.root.parent})
