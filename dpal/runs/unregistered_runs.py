"""Runs that no data set counts, and whether they were about some records: they spent on them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpal.config.data import DataConfig
from dpal.config.runtime import RuntimeConfig
from dpal.data.known_records import COINCIDENCE, MarkKey, pool_as_block
from dpal.data.pool_files import commitment
from dpal.data.readers import raw_batches
from dpal.data.sources import Content, Role, Source, open_source
from dpal.errors import DataError, DpalError, LedgerMissing
from dpal.files.artifacts import CampaignFolder, campaigns_of
from dpal.files.stored_objects import Place
from dpal.ledger.entries import Entry, EntryKind
from dpal.runs.kinds import holds_ballots
from dpal.runs.open_ledger import open_ledger
from dpal.runs.progress_logging import notify

Rows = NDArray[np.bool_]

_PUBLIC = ContextVar("whether the records of runs are public", default=False)


@dataclass(frozen=True)
class Runs:
    """Runs of a ledger that spent what no data set counts, asked about some records.

    Attributes:
      about: those that were about one of them, or a copy; in order of their holds.
      unknown: those of which nothing here shows what they were about.
    """

    about: tuple[str, ...]
    unknown: tuple[str, ...]


def runs_on(
    source: Source, entries: Iterable[Entry], artifacts: Path, *, rows: Rows | None = None
) -> Runs:
    """Compares records with those of every run that holds a plan and no data set.

    A run's pool is read where it was, if its files are as they were when the plan was held. If
    not, the ids that it kept are compared, which can show that it was about the same records but
    not that it was about others. Accounts of ballots from files are left out: whose records
    teachers learned from is not in them.

    Args:
      source: records that are to be registered.
      entries: of the ledger.
      artifacts: folder of the runs.
      rows: (n,) which rows of the source are meant; None for all.
    """
    pools = list(_pools(artifacts))
    alike: dict[tuple[Place, ...], bool] = {}
    about: list[str] = []
    unknown: list[str] = []
    for held in entries:
        if held.kind is not EntryKind.HOLD or held.body.get("data"):
            continue
        folder = CampaignFolder(artifacts / held.campaign)
        if _is_of_ballots(folder):
            continue
        pool = _committed(folder, str(held.body["pool"]), pools)
        if pool is None:
            (about if _has_id_of(folder, source, rows) else unknown).append(held.campaign)
            continue
        if pool.paths not in alike:
            alike[pool.paths] = _are_alike(pool, source, rows)
        if alike[pool.paths]:
            about.append(held.campaign)
    return Runs(tuple(about), tuple(unknown))


def same_files(
    pool: Source, entries: Iterable[Entry], artifacts: Path, *, besides: set[str]
) -> list[str]:
    """Other runs without a data set whose plans were held for these very files.

    Args:
      pool: of a run without a data set.
      entries: of the ledger.
      artifacts: folder of the runs.
      besides: runs that are not meant.
    """
    held = {entry.campaign: entry.body for entry in entries if entry.kind is EntryKind.HOLD}
    others = [name for name, body in held.items() if name not in besides and not body.get("data")]
    if not others:
        return []
    digest = pool.files_digest
    return [
        other
        for other in others
        if _commits(CampaignFolder(artifacts / other), digest, str(held[other]["pool"]))
    ]


@contextmanager
def on_public_records() -> Iterator[None]:
    """Within this block the records of runs are public: nobody loses anything by several."""
    token = _PUBLIC.set(True)
    try:
        yield
    finally:
        _PUBLIC.reset(token)


def tell_of_others(runtime: RuntimeConfig, pool: Source, name: str, *, start: str = "") -> None:
    """Says that other runs promised something of the same files, where no data set counts both.

    Args:
      runtime: says where the ledger is.
      pool: private records of a run.
      name: of the run.
      start: the run that it goes on from, which its promise counts; empty for none.
    """
    if _PUBLIC.get():
        return
    try:
        with closing(open_ledger(runtime, create=False)) as store:
            entries = store.entries()
    except LedgerMissing:
        return
    others = same_files(pool, entries, runtime.artifacts, besides={name, start})
    if not others:
        return
    held = {
        entry.campaign: entry.body["epsilon"] for entry in entries if entry.kind is EntryKind.HOLD
    }
    promised = ", ".join(f"{other} (epsilon {held[other]:g})" for other in others)
    notify(
        f"note: {promised} spent on the same files, and no data set counts them together with "
        f"{name}: what a record may lose adds up. To set one limit for all of them: dpal data "
        "register --help"
    )


def require_known(runs: Runs, apart: str | None) -> None:
    """Requires that of every run something shows what it was about, or that its owner says so.

    Raises:
      DataError: neither.
    """
    if runs.unknown and apart is None:
        named = ", ".join(runs.unknown)
        raise DataError(
            f"{named} spent on records that no data set counts, and nothing here shows on which: "
            "their folders or files were moved, changed or deleted; put them back as "
            "campaign.json of each says, or, if those were other people's records, say so: "
            "dpal data add NAME FILE --apart REASON, or register with it (nothing was registered "
            "or released)"
        )


def _pools(artifacts: Path) -> Iterator[Source]:
    """The private files of all runs that say where theirs are and that can still be read."""
    seen = set()
    for folder in campaigns_of(artifacts):
        try:
            config = folder.read_record()["config"]
            settings = config.get("data")
            if not settings or (config.get("start") or {}).get("campaign"):
                continue  # an improvement of a campaign read what that one records
            data = DataConfig.model_validate(settings)
            content = None if data.content == "auto" else Content(data.content)
            pool = open_source(
                data.pool, Role.POOL, label_column=data.label_column, content=content
            )
        except (DpalError, KeyError, ValueError, OSError):
            continue  # then nothing shows what the run was about
        if pool.paths not in seen:
            seen.add(pool.paths)
            yield pool


def _committed(
    folder: CampaignFolder, pool_commitment: str, pools: Sequence[Source]
) -> Source | None:
    """The files for which a plan was held, if they are there and as they were."""
    return next(
        (pool for pool in pools if _commits(folder, pool.files_digest, pool_commitment)), None
    )


def _commits(folder: CampaignFolder, digest: str, pool_commitment: str) -> bool:
    return folder.salt.is_file() and commitment(folder.salt.read_bytes(), digest) == pool_commitment


def _is_of_ballots(folder: CampaignFolder) -> bool:
    try:
        return holds_ballots(folder)
    except DpalError:
        return False


def _are_alike(pool: Source, source: Source, rows: Rows | None) -> bool:
    """Whether some records are another pool's, or copies of them."""
    key = MarkKey(os.urandom(32))
    return pool_as_block(pool, key).overlap(source, rows=rows).is_more_than(COINCIDENCE)


def _has_id_of(folder: CampaignFolder, source: Source, rows: Rows | None) -> bool:
    """Whether a run kept the id of one of some records."""
    if not folder.start.is_file():
        return False
    with pq.ParquetFile(folder.start) as file:
        kept = {
            name
            for batch in file.iter_batches(columns=["id"])
            for name in batch.column(0).to_pylist()
        }
    for batch in raw_batches(source, ["id"]):
        names = np.array(batch.table.column(0).to_pylist(), dtype=object)
        if not kept.isdisjoint(names if rows is None else names[rows[batch.rows]]):
            return True
    return False
