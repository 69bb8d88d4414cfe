"""A folder in which files arrive: what lies there, what stands still, what is whole.

The folder is any place that fsspec reaches. It may be written to at any moment by others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from dpal.errors import ConfigError, DataError
from dpal.files.atomic_writes import atomic_write

SUFFIX = ".parquet"
_UNFINISHED = (".tmp", ".part", ".crdownload")
_HIDDEN = (".", "_")
_MAGIC = b"PAR1"  # the first and the last four bytes of every Parquet file
_LEAST_BYTES = 12
_TIMES = ("mtime", "created", "LastModified", "last_modified", "updated")
_OF_CONTENT = ("ETag", "etag", "md5Hash")
_IDENTITIES = (*_OF_CONTENT, "ino")
_AT_ONCE = 1 << 22
LONGEST_NAME = 200  # bytes: numbers and .reason.txt are put to names, and file systems have 255


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A file as a folder's listing shows it.

    Attributes:
      size: in bytes.
      changed: seconds since 1970, as the storage says; 0.0 where it does not.
      stamp: changes whenever the file does, as far as a listing tells.
    """

    size: int
    changed: float
    stamp: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a folder shows.

    Attributes:
      files: its Parquet files by name; hidden ones and unfinished ones are left out.
      others: how many visible, finished files are not named *.parquet, or by a name that is too
        long to be kept, or no UTF-8.
    """

    files: dict[str, ListedFile]
    others: int


@dataclass(frozen=True, kw_only=True)
class FileObservation:
    """What is known of a name in the folder.

    Attributes:
      stamp: of the file as it was listed last.
      since: seconds since 1970 from which it has not changed.
      digest: of its bytes, once it was read; empty before.
    """

    stamp: str
    since: float
    digest: str = ""


@dataclass(frozen=True)
class Inbox:
    """A watched folder.

    Attributes:
      place: as a person wrote it.
      files: what reaches it.
      root: the folder, as `files` calls it.
    """

    place: str
    files: Any
    root: str

    @classmethod
    def at(cls, place: str) -> Inbox:
        """Opens a folder.

        Raises:
          ConfigError: nothing here can reach such a place.
        """
        try:
            files, root = fsspec.core.url_to_fs(place)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"folder {place} cannot be reached ({error}); install what it needs (s3://: pip "
                "install 'dpal[s3]'), or name another folder"
            ) from error
        return cls(place, files, root.rstrip("/"))

    @property
    def is_local(self) -> bool:
        """Whether its files have paths on this machine."""
        return isinstance(self.files, LocalFileSystem)

    def path(self, name: str) -> str:
        """A file's place, as `files` calls it."""
        return f"{self.root}/{name}"

    def listing(self) -> Listing:
        """What lies in the folder itself, not in folders below it.

        Raises:
          DataError: the folder is not there, is none, or cannot be listed.
        """
        if self.is_local and self.files.isfile(self.root):
            raise DataError(f"the watched folder {self.place} is a file; name the folder around it")
        try:
            self.files.invalidate_cache()
            entries = self.files.ls(self.root, detail=True)
        except FileNotFoundError as error:
            if not self.is_local:
                return Listing(files={}, others=0)  # a prefix is there once something is in it
            raise DataError(
                f"the watched folder {self.place} does not exist; create it, or correct folder"
            ) from error
        except Exception as error:  # storages fail in ways of their own
            raise self._unreachable(error) from error
        shown = {
            name: entry
            for entry in entries
            if entry["type"] == "file"
            and not (name := str(entry["name"]).rpartition("/")[2]).startswith(_HIDDEN)
            and not name.lower().endswith(_UNFINISHED)
        }
        wanted = [name for name in sorted(shown) if _can_be_read(name)]
        return Listing(
            files={name: _listed(shown[name]) for name in wanted},
            others=len(shown) - len(wanted),
        )

    def looks_whole(self, name: str, size: int) -> bool | None:
        """Whether a file ends as Parquet does; None where it does not even begin so.

        Raises:
          DataError: it cannot be read.
        """
        if size < len(_MAGIC):
            return False
        head = self._bytes(name, 0, len(_MAGIC))
        if head != _MAGIC:
            return None
        return size >= _LEAST_BYTES and self._bytes(name, size - len(_MAGIC), size) == _MAGIC

    def fetch(self, name: str, path: Path) -> None:
        """Copies a file to this machine, whole or not at all, readable by its owner only.

        Raises:
          DataError: it cannot be read.
          StorageError: it cannot be written here.
        """
        with atomic_write(path) as temporary, temporary.open("wb") as sink:
            try:
                source = self.files.open(self.path(name), "rb")
            except Exception as error:
                raise self._unreachable(error, name) from error
            with source:
                while True:
                    try:
                        part = source.read(_AT_ONCE)
                    except Exception as error:
                        raise self._unreachable(error, name) from error
                    if not part:
                        return
                    sink.write(part)

    def stamp(self, name: str) -> str:
        """A file's stamp as it is now; empty where it is gone."""
        try:
            self.files.invalidate_cache()
            return _listed(self.files.info(self.path(name))).stamp
        except FileNotFoundError:
            return ""

    def _bytes(self, name: str, start: int, end: int) -> bytes:
        try:
            return bytes(self.files.cat_file(self.path(name), start=start, end=end))
        except Exception as error:
            raise self._unreachable(error, name) from error

    def _unreachable(self, error: Exception, name: str = "") -> DataError:
        where = f"{name} in {self.place}" if name else self.place
        return DataError(
            f"the watched folder does not give {where} ({type(error).__name__}); nothing was "
            "registered or moved, the next look tries again"
        )


def observe(
    listing: Mapping[str, ListedFile], observations: Mapping[str, FileObservation], *, now: float
) -> dict[str, FileObservation]:
    """What is known of each listed name, after another look.

    Args:
      listing: the files that are there.
      observations: what was known before.
      now: seconds since 1970.
    """
    seen = {}
    for name, file in listing.items():
        before = observations.get(name)
        if before is not None and before.stamp == file.stamp:
            seen[name] = before
        else:
            # A time in the future is a clock that goes wrong: then only looks count.
            seen[name] = FileObservation(stamp=file.stamp, since=min(now, file.changed or now))
    return seen


def _can_be_read(name: str) -> bool:
    """Whether a name is one of a Parquet file, and can be kept and shown."""
    try:
        return name.lower().endswith(SUFFIX) and len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:  # bytes that are no text
        return False


def _listed(info: Mapping[str, Any]) -> ListedFile:
    size = int(info.get("size") or 0)
    changed = max((_seconds(info[key]) for key in _TIMES if info.get(key)), default=0.0)
    identity = next((str(info[key]) for key in _IDENTITIES if info.get(key)), "")
    moment = changed
    if any(info.get(key) for key in _OF_CONTENT):
        # Servers of S3 tell milliseconds of a folder and whole seconds of a file.
        moment = float(int(changed))
    if info.get("ETag"):
        identity = f'"{identity.strip(chr(34))}"'  # in quotes or without
    return ListedFile(size=size, changed=changed, stamp=f"{size} {moment!r} {identity}")


def _seconds(moment: object) -> float:
    if isinstance(moment, datetime):
        return moment.timestamp()
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).timestamp()
    return float(moment) if isinstance(moment, int | float) else 0.0
