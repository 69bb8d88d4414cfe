"""Data files where a person named them: on this machine by a path, in object storage by a URL.

What lies in a store is read in ranges, each of which is asked for once; nothing is mounted, and
no file is copied. Credentials and the server's address come from where those of `runtime.store`
come from, and are no part of a URL.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from dpal.errors import DataError, ParameterError
from dpal.files.object_store_errors import as_storage_errors

_LOCAL = ("file", "local")


@dataclass(frozen=True, order=True)
class StoredObject:
    """A file in object storage, or what is below a URL there; asks nothing until it is used.

    Attributes:
      url: as fsspec knows it, without a secret and without a slash at its end.
    """

    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _require_plain(self.url))

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """Its last part."""
        return PurePosixPath(urlsplit(self.url).path).name

    @property
    def stem(self) -> str:
        """The same, without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The ending of its name."""
        return PurePosixPath(self.name).suffix

    def resolve(self) -> StoredObject:
        """Itself: a URL means the same from any folder."""
        return self

    def exists(self) -> bool:
        """Whether there is a file, or something below.

        Raises:
          StoreError: the store does not answer, or gives no access.
        """
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is a file of this URL; errors as of `exists`."""
        with as_storage_errors(self.url, of_data=True):
            files, key = self._opened()
            try:
                return bool(files.info(key)["type"] == "file")
            except FileNotFoundError:
                return False

    def is_dir(self) -> bool:
        """Whether there are files below this URL; errors as of `exists`."""
        with as_storage_errors(self.url, of_data=True):
            files, key = self._opened()
            return bool(files.isdir(key))

    def inside(self, ending: str) -> list[StoredObject]:
        """Visible files right below, by name; errors as of `exists`.

        Args:
          ending: of their names.
        """
        with as_storage_errors(self.url, of_data=True):
            files, key = self._opened()
            listed = files.ls(key, detail=True)
        paths = (str(entry["name"]) for entry in listed if entry["type"] == "file")
        names = sorted(path.rpartition("/")[2] for path in paths)
        return [
            StoredObject(f"{self.url}/{name}")
            for name in names
            if name.endswith(ending) and not name.startswith(".")
        ]

    def open(self, mode: str = "rb") -> BinaryIO:
        """Opens it for reading. What is read is one range of it, and no more.

        Raises:
          DataError: there is no such file.
          StoreError: the store does not answer, or gives no access; also of each read.
        """
        if mode != "rb":
            raise ParameterError(f"{self.url} is read alone, and mode {mode!r} was asked for")
        with as_storage_errors(self.url, of_data=True):
            files, key = self._opened()
            try:
                stream = files.open(key, mode, cache_type="none")
            except FileNotFoundError as error:
                raise DataError.before_release(f"{self.url} does not exist; check it") from error
        return cast(BinaryIO, _Ranges(self.url, stream))

    def _opened(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        files, key = url_to_fs(self.url, use_listings_cache=False)
        return files, str(key)


class _Ranges(io.RawIOBase):
    """A stored file, whose refusals are one sentence each."""

    def __init__(self, url: str, stream: Any) -> None:
        super().__init__()
        self._url, self._stream = url, stream

    @property
    def state(self) -> str:
        """The store's mark of this content; empty where it gives none."""
        details = getattr(self._stream, "details", None) or {}
        return str(details.get("ETag") or details.get("etag") or details.get("md5Hash") or "")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int = -1, /) -> bytes:
        with as_storage_errors(self._url, of_data=True):
            return bytes(self._stream.read(size))

    def readinto(self, buffer: Any, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


Place = Path | StoredObject


def place_of(text: str | Place) -> Place:
    """A place as a person wrote it; URLs of this machine are paths.

    Raises:
      ParameterError: it is no URL that fsspec knows, or holds a secret.

    >>> place_of("s3://clinic/pool.parquet").name, place_of("file:///srv/pool.parquet")
    ('pool.parquet', PosixPath('/srv/pool.parquet'))
    """
    if not isinstance(text, str):
        return text
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme not in _LOCAL:
        return StoredObject(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ParameterError(f"{text} names no file from the root, as file:///srv/pool.parquet")
    return Path(parts.path)


def size_of(place: Place) -> int:
    """Bytes of a file.

    Raises:
      DataError, OSError: there is none.
      StoreError: the store does not answer, or gives no access.
    """
    if isinstance(place, Path):
        return place.stat().st_size
    with place.open() as stream:
        return stream.seek(0, io.SEEK_END)


def _require_plain(url: str) -> str:
    """A URL that may be shown, with nothing at its end."""
    from fsspec.registry import known_implementations, registry

    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment or "::" in url:
        raise ParameterError(
            "a URL of data holds a user, a password, options or a chain of stores, and settings "
            "are shown on pages; leave them out: credentials come from the environment "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL) or ~/.aws"
        )
    if parts.scheme not in {*known_implementations, *registry} or not parts.netloc:
        raise ParameterError(
            f"{url} is no URL of data such as s3://bucket/pool.parquet; correct it, or name a path"
        )
    return url.rstrip("/")
