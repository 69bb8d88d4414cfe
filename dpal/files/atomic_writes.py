"""Files that are whole or absent, and that only their owner can read."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpal.errors import StorageError

if TYPE_CHECKING:  # who only reads a ledger needs no Parquet
    import pyarrow as pa

_STAGED = ".staged-"
_LOCK = ".lock"
_JOURNAL = ".journal.json"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a place to write, and puts it at `path` in one step when the block ends well.

    The file is created with mode 0600, synced to disk and renamed, so that a crash
    leaves either the old file, the new file or a staged one that nobody reads.

    Raises:
      StorageError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f"{_STAGED}{secrets.token_hex(4)}-{path.name}")
    with writing(path):
        make_private(path.parent)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            yield temporary
            sync_to_disk(temporary)
            temporary.replace(path)
            sync_to_disk(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_once(path: Path, content: bytes) -> None:
    """Puts a file at `path` in one step, for its owner only, if there is none.

    Of several processes that do so at once one succeeds, and the others leave its file as it is.

    Raises:
      StorageError: the disk is full or the folder cannot be written.
    """
    prefix = f".once-{path.name}-"
    staged = path.with_name(f"{prefix}{secrets.token_hex(8)}")
    with writing(path):
        make_private(path.parent)
        if not path.exists():
            descriptor = os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            # Gone, if another process succeeded and swept it away.
            with suppress(FileExistsError, FileNotFoundError):
                sync_to_disk(staged)
                os.link(staged, path)
            sync_to_disk(path.parent)
        for leftover in path.parent.glob(f"{prefix}*"):
            leftover.unlink(missing_ok=True)


def make_private(folder: Path) -> None:
    """Makes a folder, and missing ones above it, for their owner only and for good.

    A file that is synced is lost in a power cut with a folder whose name was not, so that each
    new name is synced in the folder above it.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        sync_to_disk(folder.parent)


def close_to_others(folder: Path) -> None:
    """Takes the rights of all but their owner off a folder and what is in it; links stay.

    Raises:
      StorageError: somebody else owns a part of it.
    """
    with writing(folder):
        for path in [folder, *folder.rglob("*")]:
            with suppress(FileNotFoundError):  # it went in between
                mode = stat.S_IMODE(path.lstat().st_mode)
                if mode & _OTHERS and not path.is_symlink():
                    path.chmod(mode & ~_OTHERS)


@contextmanager
def workspace(target: Path) -> Iterator[Path]:
    """A folder beside a file in the making, for its owner only, which is gone at the end.

    What a process that was killed left there is swept away by the next one that makes the same
    file: a lock in the folder is held while its process lives. One may be inside of another.

    Raises:
      StorageError: the folder above cannot be written.
    """
    prefix = f".unfinished-{target.name}-"
    with writing(target):
        make_private(target.parent)
        above = os.open(target.parent, os.O_RDONLY)
        try:
            if _lock(above, fcntl.LOCK_EX):
                _sweep_unfinished(target, prefix)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
            own = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            _lock(own, fcntl.LOCK_EX)
        finally:
            os.close(above)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(own)


def _sweep_unfinished(target: Path, prefix: str) -> None:
    """Takes away what nobody works on any more; what cannot be locked is left alone."""
    names = [path for path in target.parent.iterdir() if path.name.startswith(".")]
    lives = False
    for folder in (path for path in names if path.name.startswith(prefix) and path.is_dir()):
        descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            lives = True
        os.close(descriptor)
    for path in names:
        staged = path.name.startswith(_STAGED) and path.name.endswith(f"-{target.name}")
        if staged and not lives:
            path.unlink(missing_ok=True)


def _lock(descriptor: int, how: int) -> bool:
    """Locks a file; False where another process has it, or its disk knows no locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, how)
        return True
    return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what a full disk or a lack of rights makes a writer raise into one sentence.

    Raises:
      StorageError: in place of it.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(str(path), error.strerror or type(error).__name__) from error


def sync_to_disk(path: Path) -> None:
    """Waits until a file, or what a folder says of its files, survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes several files of one folder so that either all or none of them are there.

    They are staged first; then a journal appears in one step, and from that moment the
    files count as written: `roll_forward` finishes what a crash left undone.
    """
    for name, content in contents.items():
        with atomic_write(folder / f"{_STAGED}{name}") as temporary:
            temporary.write_bytes(content)
    write_text(folder / _JOURNAL, json.dumps(list(contents)))
    roll_forward(folder)


def roll_forward(folder: Path) -> None:
    """Puts in place what `write_together` had written whole; sweeps away what it had not."""
    journal = folder / _JOURNAL
    if journal.exists():
        for name in json.loads(journal.read_text(encoding="utf-8")):
            waiting = folder / f"{_STAGED}{name}"
            if waiting.exists():  # else it was moved before the crash
                waiting.replace(folder / name)
        sync_to_disk(folder)
        journal.unlink()
    for leftover in folder.glob(f"{_STAGED}*"):
        leftover.unlink(missing_ok=True)


def sweep(root: Path) -> None:
    """Finishes, or sweeps away, what a crash left half-written anywhere below a folder.

    Raises:
      StorageError: the folder cannot be written.
    """
    with writing(root):
        # Listed first, as names vanish on the way.
        for leftover in list(root.rglob(f"{_STAGED}*")) + list(root.rglob(_JOURNAL)):
            roll_forward(leftover.parent)


def move_aside(files: Sequence[Path], folder: Path) -> None:
    """Moves files into another folder of the same disk, each in one step.

    Raises:
      StorageError: the folder cannot be written.
    """
    with writing(folder):
        for path in files:
            make_private(folder)
            path.replace(folder / path.name)
            sync_to_disk(folder)
            sync_to_disk(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_private_parquet(
    path: Path,
    schema: pa.Schema,
    batches: Callable[[], Iterator[pa.RecordBatch]],
    *,
    distinct: Sequence[str] = (),
) -> None:
    """Streams record batches into a Parquet file that holds private content.

    The file carries 32 random bytes in its metadata. Its digest may therefore be
    published (in the ledger, as an MLflow tag): without the file it says nothing,
    where a bare hash would let somebody confirm a guessed record.

    Args:
      path: where to write.
      schema: of the batches.
      batches: what yields them.
      distinct: columns in which hardly a value is there twice: a dictionary of them would be as
        long as the column.
    """
    import pyarrow.parquet as pq

    salted = schema.with_metadata(
        {**(schema.metadata or {}), b"dpal.salt": secrets.token_bytes(32)}
    )
    options = {"compression": "zstd", "write_page_checksum": True}
    repeating = [name for name in schema.names if name not in distinct]
    with (
        atomic_write(path) as temporary,
        pq.ParquetWriter(temporary, salted, use_dictionary=repeating, **options) as writer,
    ):
        for batch in batches():
            writer.write_batch(batch)
