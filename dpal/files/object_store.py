"""A campaign's files in object storage, each under the digest of what it holds.

    <url>/released/<campaign>/sha256/<digest>        contents, never changed
    <url>/released/<campaign>/names/<name>           which content a name has now
    <url>/confidential/<campaign>/...                the same for what must not be seen

A content is uploaded, read back and compared; only then does a name point to it. So nobody
finds half a file, and two machines that write at once cannot mix theirs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from dpal.canonical import canonical_json, file_digest
from dpal.errors import ParameterError, StoreError
from dpal.files.artifacts import CONFIDENTIAL, DATASETS, SALT
from dpal.files.atomic_writes import atomic_write
from dpal.files.object_store_errors import as_storage_errors

RELEASED = "released"
_CONTENTS, _NAMES = "sha256", "names"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class StoreHolds(StrEnum):
    """Which files of a campaign may be in its store."""

    RELEASED = "released"
    EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True)
class ArtifactRef:
    """One file of a campaign, wherever it is.

    Attributes:
      name: its path below the campaign's folder.
      url: where it is.
      sha256: digest of its bytes.
    """

    name: str
    url: str
    sha256: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if not self.name or path.is_absolute() or ".." in path.parts or str(path) != self.name:
            raise ParameterError(f"{self.name!r} is no path below a campaign's folder")
        if not _DIGEST.fullmatch(self.sha256):
            raise ParameterError(f"{self.sha256!r} is no SHA-256 in hexadecimal")

    @property
    def confidential(self) -> bool:
        """Whether the file must stay inside: it says, or helps to find out, who was selected."""
        return is_confidential(self.name)


def is_confidential(name: str) -> bool:
    """Whether a file of a campaign must stay inside, by its path below the campaign's folder."""
    parts = PurePosixPath(name).parts
    return parts[0] in (CONFIDENTIAL, DATASETS) or parts == (SALT,)


def require_store_url(url: str) -> str:
    """Returns a store's URL, without a slash at its end, if there is no secret in it.

    Raises:
      ParameterError: it is no URL that fsspec knows, or it holds a secret.
    """
    from fsspec.registry import known_implementations, registry

    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ParameterError(
            "runtime.store holds a user, a password or options, and settings are shown on pages; "
            "leave them out: credentials come from the environment (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL) or ~/.aws"
        )
    if "://" not in url or parts.scheme not in {*known_implementations, *registry}:
        raise ParameterError(
            "runtime.store is no URL such as s3://bucket/dpal or file:///mnt/dpal; null lets all "
            "machines share the artifacts folder"
        )
    if parts.scheme in ("file", "local") and (parts.netloc or not parts.path.startswith("/")):
        raise ParameterError("runtime.store must name a folder from the root: file:///mnt/dpal")
    return url.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Store:
    """One campaign's part of a store.

    Attributes:
      url: of the store, as fsspec knows it; credentials come from the environment.
      campaign: its name and identity: a later campaign of that name is another one.
      holds: which files may be there.
    """

    url: str
    campaign: str
    holds: StoreHolds

    def put(self, name: str, path: Path) -> ArtifactRef:
        """Uploads a file, unless its content is there, and lets its name point to it.

        Raises:
          StoreError: the file must not be there, or the store does not take it.
        """
        ref = self.ref(name, file_digest(path))
        if ref.confidential and self.holds is not StoreHolds.EVERYTHING:
            raise StoreError(
                self.url,
                f"is not to hold confidential files, and {name} is one",
                "set runtime.store_holds: everything if the store is inside of the trusted "
                "boundary, or let all machines share the artifacts folder",
            )
        with as_storage_errors(self.url):
            files, key = self._open(ref.url)
            if not _has(files, key, path.stat().st_size):
                _upload(files, path, key)
                if _digest_of(files, key) != ref.sha256:
                    raise StoreError(
                        ref.url, f"does not hold what was uploaded of {name}", "check the store"
                    )
            pointer = canonical_json({"name": name, "sha256": ref.sha256}).encode()
            _write(files, self._key(files, name, _NAMES, name), pointer)
        return ref

    def get(self, ref: ArtifactRef, path: Path) -> None:
        """Downloads a file, checks its digest and puts it at a path in one step.

        Raises:
          StoreError: it is not there, not given, or not what its digest says.
          StorageError: there is no room for it here.
        """
        if ref.url != self.ref(ref.name, ref.sha256).url:
            raise StoreError(ref.url, f"is not where {self.url} keeps {ref.name}", "order it again")
        with atomic_write(path) as temporary:
            with as_storage_errors(self.url):
                files, key = self._open(ref.url)
                if not files.exists(key):
                    raise StoreError(
                        ref.url, f"is gone, and {ref.name} is wanted", "restore it there"
                    )
                with files.open(key, "rb") as stream, temporary.open("wb") as target:
                    shutil.copyfileobj(stream, target, 1 << 20)
            if file_digest(temporary) != ref.sha256:
                raise StoreError(
                    ref.url,
                    f"was altered: it is not what {ref.name} was when it was stored",
                    "restore it there",
                )

    def known(self, below: str = "") -> dict[str, ArtifactRef]:
        """What the store has of the campaign, by name.

        Args:
          below: a folder of the campaign; all of it if empty.

        Raises:
          StoreError: the store does not answer, or a name is damaged.
        """
        by_name: dict[str, ArtifactRef] = {}
        with as_storage_errors(self.url):
            for part in (RELEASED, CONFIDENTIAL):
                place = "/".join([self.url, part, self.campaign, _NAMES, below])
                files, key = self._open(place.rstrip("/"))
                for pointer in files.find(key) if files.exists(key) else ():
                    ref = self._read_pointer(pointer, files.cat_file(pointer))
                    by_name[ref.name] = ref
        return by_name

    def has(self, ref: ArtifactRef) -> bool:
        """Whether a content is there.

        Raises:
          StoreError: the store does not answer.
        """
        with as_storage_errors(self.url):
            files, key = self._open(ref.url)
            return bool(files.exists(key))

    def require_writable(self) -> None:
        """Requires that the store takes, gives and removes what it is to hold; leaves nothing.

        Raises:
          StoreError: it does not.
        """
        parts = [RELEASED, CONFIDENTIAL] if self.holds is StoreHolds.EVERYTHING else [RELEASED]
        for part in parts:
            content = secrets.token_bytes(16)
            place = f"{self.url}/{part}/.probe-{content.hex()}"
            with as_storage_errors(self.url):
                files, key = self._open(place)
                _write(files, key, content)
                if files.cat_file(key) != content:
                    raise StoreError(place, "does not hold what was written", "check the store")
                files.rm_file(key)

    def forget(self, ref: ArtifactRef) -> None:
        """Removes a name and its content; one that is not there stays so.

        Raises:
          StoreError: the store does not allow it.
        """
        with as_storage_errors(self.url):
            files, key = self._open(ref.url)
            for place in (self._key(files, ref.name, _NAMES, ref.name), key):
                if files.exists(place):
                    files.rm_file(place)

    def ref(self, name: str, sha256: str) -> ArtifactRef:
        """Where a content is, or would be."""
        return ArtifactRef(name=name, url=self._place(name, _CONTENTS, sha256), sha256=sha256)

    def _place(self, name: str, *below: str) -> str:
        part = CONFIDENTIAL if is_confidential(name) else RELEASED
        return "/".join([self.url, part, self.campaign, *below])

    def _key(self, files: Any, name: str, *below: str) -> str:
        return str(files._strip_protocol(self._place(name, *below)))

    def _open(self, url: str) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        files, key = url_to_fs(url, use_listings_cache=False)
        return files, str(key)

    def _read_pointer(self, place: str, content: bytes) -> ArtifactRef:
        try:
            said = json.loads(content)
            return self.ref(said["name"], said["sha256"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(place, "is damaged", "restore or remove it") from error


def file_ref(folder: Path, path: Path) -> ArtifactRef:
    """A file that is used in place: all machines share its folder."""
    name = path.relative_to(folder).as_posix()
    return ArtifactRef(name=name, url=path.resolve().as_uri(), sha256=file_digest(path))


def _is_local(files: Any) -> bool:
    return "file" in ((files.protocol,) if isinstance(files.protocol, str) else files.protocol)


def _has(files: Any, key: str, size: int) -> bool:
    """Whether a content is there, whole: half an upload has another size."""
    return bool(files.exists(key)) and int(files.size(key)) == size


def _upload(files: Any, path: Path, key: str) -> None:
    if _is_local(files):
        with atomic_write(Path(key)) as temporary:  # private, synced
            shutil.copyfile(path, temporary)
    else:
        files.put_file(os.fspath(path), key)


def _write(files: Any, key: str, content: bytes) -> None:
    if _is_local(files):
        with atomic_write(Path(key)) as temporary:
            temporary.write_bytes(content)
    else:
        files.pipe_file(key, content)


def _digest_of(files: Any, key: str) -> str:
    with files.open(key, "rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
