"""Every moment at which a process writes, seen from below, and a fault at a chosen one.

The base is Python's audit hook: whatever opens a file for writing, renames, removes or
makes one, starts a process or connects to a database passes through it, also code that is
written next year. What it does not see is added at the lowest place there is: `os.fsync`,
the statements that SQLite runs, and bytes sent to the Prefect and MLflow servers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import socket
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_BY_NAME = {
    "os.rename": "rename",
    "os.remove": "remove",
    "os.mkdir": "mkdir",
    "os.rmdir": "rmdir",
    "os.link": "link",
    "os.symlink": "symlink",
    "os.truncate": "truncate",
    "os.chmod": "chmod",
    "fcntl.flock": "lock",
    "subprocess.Popen": "start a process",
}
_READING = ("SELECT", "PRAGMA", "EXPLAIN", "--")


# What is being written, roughly, so that a kill can be aimed: DVC alone makes more points
# than all others together.
FAMILIES = ("ledger", "file", "tracking", "versioning", "server")


def family(kind: str, about: str) -> str:
    """To which of `FAMILIES` a write point belongs."""
    if kind.startswith("dvc: ") or kind == "start a process":
        return "versioning"
    if kind == "send":
        return "server"
    if "ledger.sqlite" in about:
        return "ledger"
    database = kind == "connect" or kind.startswith("sql ")
    return "tracking" if database or "mlflow" in about else "file"


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and at which write point.

    Attributes:
      family: which write points are counted.
      at: number of the point among them, from 1; 0 for never.
      delay: seconds after that point at which the process dies, 0 for just before it happens.
      group: the processes that it started die with it; else they live on as orphans.
      full: the process lives on and finds the disk full: no file takes another byte.
      server: the process lives on, and this other one is killed.
    """

    family: str = "file"
    at: int = 0
    delay: float = 0.0
    group: bool = True
    full: bool = False
    server: int = 0


class Shared:
    """Numbers that a process shares with the processes that it forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)

    def count(self) -> int:
        """Adds one. Not exact between processes; they take turns here."""
        count, full = struct.unpack("qq", self._memory[:])
        self._memory[:] = struct.pack("qq", count + 1, full)
        return int(count) + 1

    def fill_disk(self) -> None:
        """From now on no file takes another byte, here and in processes forked later."""
        count, _ = struct.unpack("qq", self._memory[:])
        self._memory[:] = struct.pack("qq", count, 1)
        self.apply()

    def apply(self) -> None:
        """Makes the disk full for this process if it is full for the others."""
        if struct.unpack("qq", self._memory[:])[1]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


class Meter:
    """Counts the write points of this process from now on, and lets something go wrong at one."""

    def __init__(
        self, fault: Fault, shared: Shared, journal: int, *, victim: int, prefix: str = ""
    ) -> None:
        """Prepares; `install` begins.

        Args:
          fault: what goes wrong, and when.
          shared: shared with helpers of this process.
          journal: file descriptor to which each point is written, as one line.
          victim: the process (and leader of the group) that dies.
          prefix: of the kinds of points, to tell helpers apart.
        """
        self._fault, self._shared, self._journal = fault, shared, journal
        self._victim, self._prefix = victim, prefix
        self._lock = threading.RLock()

    def install(self) -> None:
        """From here on every write counts. There is no way back in this process."""
        self._shared.apply()
        sys.addaudithook(self._audit)
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._before(getattr(os, name), "fsync"))
        for name in ("send", "sendall"):
            setattr(socket.socket, name, self._sending(getattr(socket.socket, name)))
        sqlite3.connect = sqlite3.dbapi2.connect = self._connecting(sqlite3.connect)
        sa.event.listen(sa.Engine, "after_cursor_execute", self._executed)

    def point(self, kind: str, about: str = "") -> None:
        """One write point; may be the last thing that this process does."""
        kind = self._prefix + kind
        with self._lock:
            self._note(f"{kind}\t{about}")
            if family(kind, about) != self._fault.family:
                return
            if self._shared.count() != self._fault.at:
                return
            if self._fault.full:
                self._shared.fill_disk()
            elif self._fault.server:
                os.killpg(self._fault.server, signal.SIGKILL)
            elif self._fault.delay:
                # Whoever forked this process is waiting for that line, and kills in time.
                self._note("die\t")
            else:
                kill(self._victim, group=self._fault.group)
                if self._fault.group:
                    signal.pause()  # a helper dies as well, in a moment; else it is an orphan

    def _note(self, line: str) -> None:
        with contextlib.suppress(OSError):  # an orphan has nobody who listens
            os.write(self._journal, f"{line}\n".encode())

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and _counts(path):
                self.point("open", str(path))
        elif event == "sqlite3.connect":
            self.point("connect", _database(arguments[0]))
        elif event in _BY_NAME:
            about = arguments[1 if event == "os.rename" else 0]
            self.point(_BY_NAME[event], _path_of(about) if isinstance(about, int) else str(about))

    def _connecting(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., Any]:
        def watched(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
            connection, name = connect(database, *arguments, **options), _database(database)

            def statement(text: str) -> None:
                if not text.lstrip().upper().startswith(_READING):
                    self.point(f"sql {text.split(None, 1)[0].upper()}", name)

            connection.set_trace_callback(statement)
            return connection

        return watched

    def _executed(self, connection: Any, _c: Any, statement: str, *_: Any) -> None:
        if statement == "COMMIT":
            self.point("sql after COMMIT", Path(str(connection.engine.url.database)).name)

    def _before(self, function: Callable[[int], None], kind: str) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            self.point(kind, _path_of(descriptor))
            function(descriptor)

        return counted

    def _sending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(one: socket.socket, *arguments: Any) -> Any:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                self.point("send")
            return function(one, *arguments)

        return counted


def kill(process: int, *, group: bool) -> None:
    """SIGKILL: no handler runs, nothing is tidied up."""
    (os.killpg if group else os.kill)(process, signal.SIGKILL)


def _path_of(descriptor: int) -> str:
    """Where an open file is, where the system says so."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _database(name: object) -> str:
    return Path(str(name).removeprefix("file:").partition("?")[0]).name


def _counts(path: object) -> bool:
    text = os.fsdecode(path) if isinstance(path, str | bytes) else str(path)
    return not text.startswith(("/dev/", "/proc/")) and not text.endswith(".pyc")
