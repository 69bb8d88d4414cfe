"""A run's files on their way between machines: published, kept, brought back.

The folder under `runtime.artifacts` is where a run works. With `runtime.store` its files
are also there, and another machine goes on with them; without it nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpal.canonical import file_digest
from dpal.config.runtime import RuntimeConfig
from dpal.errors import ConfigError, LedgerMissing, StoreError
from dpal.files.artifacts import DATASETS, CampaignFolder, PhaseFolder
from dpal.files.object_store import (
    ArtifactRef,
    Store,
    StoreHolds,
    file_ref,
    is_confidential,
)
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.data_set_accounts import data_sets
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.recorded_files import name_below
from dpal.runs.open_ledger import open_ledger
from dpal.runs.progress_logging import notify
from dpal.runs.run import Run
from dpal.runs.store_upload import (
    is_checkpoint,
    open_run_ledger,
    put,
    retry_while_store_is_down,
    store_of,
)


def require_store_for_workers(runtime: RuntimeConfig) -> None:
    """Requires that a campaign's phases can go to workers, before anything is bought or held.

    Raises:
      ConfigError: their store may not hold labels.
    """
    carries = runtime.store is not None and runtime.training_pool is not None
    if carries and runtime.store_holds is not StoreHolds.EVERYTHING:
        raise ConfigError.before_release(
            "runtime.training_pool takes labels and the state of the pool through runtime.store, "
            "and by runtime.store_holds released these are not to be there; set "
            "runtime.store_holds everything if the store is inside of the trusted boundary, or "
            "leave runtime.store out and let all machines share the artifacts folder"
        ).about("runtime.store_holds", "released")


def publish(run: Run[Any], paths: Sequence[Path]) -> tuple[ArtifactRef, ...]:
    """Makes files reachable for another machine, and says where they are.

    Without `runtime.store` they stay where they are: all machines share the folder.

    Args:
      run: whose plan the ledger holds.
      paths: files below its folder.

    Raises:
      StoreError: the store does not take a file, or may not hold confidential ones.
    """
    folder = run.folder.root
    if run.runtime.store is None:
        return tuple(file_ref(folder, path) for path in paths)
    store = _store(run)
    return tuple(
        retry_while_store_is_down(lambda path=path: store.put(name_below(folder, path), path))  # type: ignore[misc]
        for path in paths
    )


def fetch_files(run: Run[Any], refs: Iterable[ArtifactRef]) -> None:
    """Places published files below the run's folder, unless they are there already.

    Args:
      run: as for `publish`.
      refs: what `publish` returned, possibly on another machine.

    Raises:
      StoreError: a file is not there or not what its digest says.
    """
    folder = run.folder.root
    store = None if run.runtime.store is None else _store(run)
    for ref in refs:
        if _is_here(folder, ref):
            continue
        if store is None:
            raise StoreError(
                str(folder / ref.name),
                f"is not what was published as {ref.url}",
                "let all machines share the artifacts folder or set runtime.store,",
            )
        _get(store, ref, folder)


def keep_files(run: Run[Any]) -> None:
    """Puts what is new or changed of a run into its store, and removes old checkpoints.

    Raises:
      StoreError: the store does not take it. Nothing was lost.
    """
    # What released nothing is made again from public files.
    if run.runtime.store is None or not run.is_held():
        return
    folder, store = run.folder.root, _store(run)
    stored = retry_while_store_is_down(store.known)
    for path in _files_of(run.folder):
        name = name_below(folder, path)
        if _may_hold(store, name) and (name not in stored or not _is_here(folder, stored[name])):
            put(store, name, path)
    for name, ref in stored.items():
        if is_checkpoint(name) and not (folder / name).exists():
            store.forget(ref)
    _keep_data_sets(run.runtime)


def bring_files(name: str, runtime: RuntimeConfig) -> None:
    """Brings what the store has of a run and is not here, before the run goes on.

    Files that the ledger, or a phase's manifest, speaks of come by the digest that stands
    there; of others, what is here stays as it is.

    Raises:
      StoreError: the store cannot be written, or what the ledger recorded is not in it.
    """
    if runtime.store is None:
        return
    retry_while_store_is_down(store_of(name, runtime, "").require_writable)
    try:
        ledger = open_ledger(runtime, create=False)
    except LedgerMissing:
        return
    with closing(ledger):
        opened = open_run_ledger(name, runtime, ledger)
        _bring_data_sets(runtime, ledger.entries())
        if opened.identity is None:
            return
        store, entries = store_of(name, runtime, opened.identity), opened.entries()
    folder = CampaignFolder(runtime.artifacts / name)
    stored = retry_while_store_is_down(store.known)
    recorded = _recorded(entries)
    trained = {Path(name).parts[0] for name in recorded if name.endswith("/model.safetensors")}
    missing = [
        ref
        for name, ref in stored.items()
        if name not in recorded
        and not (folder.root / name).exists()
        and not (is_checkpoint(name) and Path(name).parts[0] in trained)
    ]
    brought = sum(_bring(store, ref, folder.root) for ref in missing)
    for path in sorted(folder.root.glob("phase-*/manifest.json")):
        recorded |= PhaseFolder(path.parent).stated_files()
    wanted = [store.ref(name, sha256) for name, sha256 in recorded.items()]
    brought += sum(_bring(store, ref, folder.root) for ref in wanted)
    if brought:
        notify(f"{name}: files brought from {runtime.store}")


def _recorded(entries: Iterable[Entry]) -> dict[str, str]:
    """Digests by name of the files that a run cannot go on without, as its ledger says."""
    digests: dict[str, str] = {}
    under_way: dict[str, dict[str, str]] = {}
    for entry in entries:
        planned = planned_name(entry.release)
        if entry.kind is EntryKind.RESERVE:
            digests |= entry.body["inputs"]
            under_way[planned] = {}
        elif entry.kind is EntryKind.CHECKPOINT:
            under_way[planned] = dict(entry.body["artifacts"])
        elif entry.kind is EntryKind.COMMIT:
            digests |= entry.body["artifacts"]
            under_way.pop(planned, None)
    for newest in under_way.values():
        digests |= newest
    return digests


def _bring(store: Store, ref: ArtifactRef, folder: Path) -> bool:
    """Brings a file unless it is here; a confidential one that is nowhere is missed later."""
    if _is_here(folder, ref):
        return False
    if is_confidential(ref.name) and not retry_while_store_is_down(lambda: store.has(ref)):
        return False
    _get(store, ref, folder)
    return True


def _get(store: Store, ref: ArtifactRef, folder: Path) -> None:
    retry_while_store_is_down(lambda: store.get(ref, folder / ref.name))


def _keep_data_sets(runtime: RuntimeConfig) -> None:
    folder, store = runtime.artifacts, _data_sets_store(runtime)
    if store.holds is not StoreHolds.EVERYTHING or not (folder / DATASETS).is_dir():
        return
    stored = retry_while_store_is_down(store.known)
    for path in _shown(folder / DATASETS):
        name = name_below(folder, path)
        if name not in stored or not _is_here(folder, stored[name]):
            put(store, name, path)


def _bring_data_sets(runtime: RuntimeConfig, entries: Iterable[Entry]) -> None:
    folder, store = runtime.artifacts, _data_sets_store(runtime)
    for dataset in data_sets(entries).values():
        for name, sha256 in dataset.files.items():
            _bring(store, store.ref(f"{DATASETS}/{name}", sha256), folder)


def _data_sets_store(runtime: RuntimeConfig) -> Store:
    return Store(url=str(runtime.store), campaign=DATASETS, holds=runtime.store_holds)


def _files_of(folder: CampaignFolder) -> Iterator[Path]:
    kept_here = (folder.scratch, folder.features, folder.errors)
    for path in _shown(folder.root):
        if not any(path.is_relative_to(excluded) for excluded in kept_here):
            yield path


def _shown(folder: Path) -> list[Path]:
    """Files below a folder, but for locks, journals and half-written ones."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in files if not path.name.startswith(".")]


def _may_hold(store: Store, name: str) -> bool:
    return store.holds is StoreHolds.EVERYTHING or not is_confidential(name)


def _is_here(folder: Path, ref: ArtifactRef) -> bool:
    path = folder / ref.name
    if not path.is_file():
        return False
    about = path.stat()
    return _digest(path, about.st_ino, about.st_size, about.st_mtime_ns) == ref.sha256


@lru_cache(maxsize=4096)
def _digest(path: Path, _inode: int, _size: int, _changed: int) -> str:
    return file_digest(path)


def _store(run: Run[Any]) -> Store:
    with run.ledger() as ledger:
        return store_of(run.name, run.runtime, ledger.identity or "")
