"""Names of files and folders: they become names of records and classes, and so have to be texts."""

from __future__ import annotations

import os

from dpal.errors import DataError


def require_text(name: str) -> None:
    """Requires that what a file system calls a file or a folder is a text.

    Where names are bytes, one may be in an encoding of long ago, and nothing else could hold it.

    Raises:
      DataError: it is none in UTF-8.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            "a file or folder is called {name}, which is no text in UTF-8; rename it",
            name=os.fsencode(name).decode(errors="backslashreplace"),
        ) from None
