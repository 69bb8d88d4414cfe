"""Paths and URLs in one canonical form, so that two ways to write one place are equal."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

_LOCAL = ("", "file", "local")
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}


# What is raised of a text that names nothing: a zero byte, odd brackets.
NO_PLACE = (OSError, ValueError)


def canonical_place(place: str | Path) -> str:
    """A place as it is compared: links and `..` of paths resolved, hosts in small letters.

    Args:
      place: a path, as whoever opens it takes it, or a text: a path, or a URL; file:// and
        local:// URLs are paths. Relative paths are of the folder that this process works in.

    Returns:
      An absolute path or a URL, without a slash at its end (a database's URL keeps it). A text
      whose reader decides where it is stays as it is: chained fsspec URLs (`filecache::s3://...`),
      `~`, URLs with percent signs, fragments, blanks at an end, or steps such as `..`, which are
      names in object storage.

    Raises:
      OSError, ValueError: it can be no place.

    >>> canonical_place("S3://Bucket/dpal/"), canonical_place("s3://Bucket/dpal/../other")
    ('s3://Bucket/dpal', 's3://Bucket/dpal/../other')
    """
    if isinstance(place, Path):
        return os.path.realpath(place)
    text = str(place)
    if _reader_decides(text):
        return text
    parts = urlsplit(text) if _is_url(text) else SplitResult("", "", text, "", "")
    if parts.scheme in _LOCAL and parts.netloc in ("", "localhost"):
        return _real(parts.path)
    if parts.scheme == "sqlite":
        # Three slashes begin a path below the working folder, four one from the root.
        query = f"?{parts.query}" if parts.query else ""
        return f"sqlite:///{_real(parts.path[1:])}{query}"
    # A slash behind a database's name is a part of it.
    path = parts.path if parts.scheme.startswith("postgresql") else parts.path.rstrip("/")
    return parts._replace(netloc=_netloc(parts), path=path).geturl()


def is_resolved(place: str) -> bool:
    """Whether a canonical place says where it is; what is below another can be told of these alone.

    >>> is_resolved("/srv/clinic/a.parquet"), is_resolved("/srv/clinic/../other::file")
    (True, False)
    """
    with_options = _is_url(place) and "?" in place
    return not _reader_decides(place) and not with_options and ".." not in place.split("/")


def lies_in(place: str, folder: str) -> bool:
    """Whether a canonical place is a canonical folder, or below it.

    >>> lies_in("/srv/clinic/a.parquet", "/srv/clinic"), lies_in("/srv/clinics", "/srv/clinic")
    (True, False)
    """
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _reader_decides(text: str) -> bool:
    # fsspec takes what is behind `local:` or `file:` as a path, and then `~` as a home folder.
    if "::" in text or text.startswith(("~", "file:~", "file://~", "local://~")):
        return True
    if text.startswith("local:") and not text.startswith("local://"):
        return True
    if not _is_url(text):
        return False
    # Python's own reader of URLs leaves these out, and so do not all that open them.
    if text != text.strip() or any(ord(one) < ord(" ") for one in text):
        return True
    parts = urlsplit(text)
    is_local = parts.scheme in _LOCAL
    if "%" in text or "#" in text or text.endswith("?") or (is_local and "?" in text):
        return True
    steps = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    return not is_local and parts.scheme != "sqlite" and not {"", ".", ".."}.isdisjoint(steps)


def _is_url(text: str) -> bool:
    return "://" in text or text.startswith(("file:", "sqlite:"))


def _real(path: str) -> str:
    return os.path.realpath(path)


def _netloc(parts: SplitResult) -> str:
    """The network location; only a web or database server's host has no capitals to tell."""
    if parts.scheme not in _DEFAULT_PORTS and not parts.scheme.startswith("postgresql"):
        return parts.netloc
    user, separator, host = parts.netloc.rpartition("@")
    port = _DEFAULT_PORTS.get(parts.scheme.partition("+")[0])
    return user + separator + host.lower().removesuffix(f":{port}")
