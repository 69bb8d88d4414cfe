"""Paths and URLs in one canonical form, so that two ways to write one place are equal."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

_LOCAL = ("", "file", "local")
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


# What is raised of a text that names nothing: a user who is not there, a zero byte, odd brackets.
NO_PLACE = (OSError, RuntimeError, ValueError)


def canonical_place(place: str | Path) -> str:
    """A place as it is compared: links, `..` and `~` resolved, hosts in small letters.

    Args:
      place: a path, or a URL; file:// and local:// URLs are paths. Relative paths are of the
        folder that this process works in.

    Returns:
      An absolute path or a URL, without a slash at its end. What cannot be resolved, such as
      chained fsspec URLs (`filecache::s3://...`) and URLs with percent signs, stays as it is.

    Raises:
      OSError, RuntimeError, ValueError: it can be no place, or its home folder is nobody's.

    >>> canonical_place("S3://Bucket/dpal/../other/")
    's3://Bucket/other'
    """
    text = str(place)
    if _stays(text):
        return text
    parts = urlsplit(text) if _is_url(text) else SplitResult("", "", text, "", "")
    if parts.scheme in _LOCAL and parts.netloc in ("", "localhost"):
        return _real(parts.path)
    if parts.scheme == "sqlite":
        # Three slashes begin a path below the working folder, four one from the root.
        query = f"?{parts.query}" if parts.query else ""
        return f"sqlite:///{_real(parts.path[1:])}{query}"
    path = posixpath.normpath(parts.path) if parts.path.strip("/") else ""
    return parts._replace(netloc=_netloc(parts), path=path).geturl()


def is_resolved(place: str) -> bool:
    """Whether a canonical place says where it is; what is below another can be told of these alone.

    >>> is_resolved("/srv/clinic/a.parquet"), is_resolved("/srv/clinic/../other::file")
    (True, False)
    """
    return not _stays(place) and ".." not in place.split("/")


def lies_in(place: str, folder: str) -> bool:
    """Whether a canonical place is a canonical folder, or below it.

    >>> lies_in("/srv/clinic/a.parquet", "/srv/clinic"), lies_in("/srv/clinics", "/srv/clinic")
    (True, False)
    """
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _stays(text: str) -> bool:
    return "::" in text or ("%" in text and "://" in text)


def _is_url(text: str) -> bool:
    return "://" in text or text.startswith(("file:", "sqlite:"))


def _real(path: str) -> str:
    return os.path.realpath(Path(path).expanduser())


def _netloc(parts: SplitResult) -> str:
    """The network location; only a web or database server's host has no capitals to tell."""
    if parts.scheme not in _DEFAULT_PORTS and not parts.scheme.startswith("postgresql"):
        return parts.netloc
    user, separator, host = parts.netloc.rpartition("@")
    port = _DEFAULT_PORTS.get(parts.scheme.partition("+")[0])
    return user + separator + host.lower().removesuffix(f":{port}")
