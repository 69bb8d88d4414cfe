"""Files of tests that talk to the Prefect server run in the same worker, which starts one."""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_WORKERS = 3  # that share a server: those that others keep busy meanwhile
_TALKS = re.compile(r"\b(orchestrated|prefect_api)\b")
_ROOT = Path(__file__).resolve().parent.parent


class SharedServer(LoadFileScheduling):  # type: ignore[misc]  # which has no types
    """Hands out whole files, and those that talk to the Prefect server together.

    To start one and to keep it takes half a minute of a core in each worker. A file that talks to
    it and does not name its fixtures is handed out by itself, and its worker starts another.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if not talks(file):
            return file
        servers = max(1, self.numnodes // _WORKERS)
        return f"server {zlib.crc32(file.encode()) % servers}"


@cache
def talks(file: str) -> bool:
    """Whether tests of a file name the fixtures that start the server."""
    return _TALKS.search((_ROOT / file).read_text(encoding="utf-8")) is not None
