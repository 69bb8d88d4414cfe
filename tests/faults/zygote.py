"""A process that has imported everything and forks a fresh `dpal` in milliseconds.

Importing torch, Prefect and MLflow takes most of the time of a short command; a test that
kills a thousand of them cannot wait for that. Each command still runs in a process of its
own, from its first line to the interpreter's end or to its fault. DVC, which dpal starts as
a subprocess, is forked from here in the same way: a small script stands in for the
interpreter, asks for it, and hands its arguments and files over.

Run as a script: requests come in as lines of JSON on stdin, answers go out on stdout.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import hashlib
import json
import os
import pickle
import select
import socket
import stat
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.write_points import Fault, Meter, Shared, kill

_STAND_IN = """#!{python} -ISE
import json, os, socket, sys
*options, program, commands = ["", "", *sys.argv[1:]]
if options[-1] != "-c" or "dvc.cli" not in program:  # options such as -P may come before
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
mask = os.umask(0)
request = {{"commands": json.loads(commands), "cwd": os.getcwd(), "mask": mask}}
request["env"] = dict(os.environ)
asking = socket.socket(socket.AF_UNIX)
asking.connect({address!r})
socket.send_fds(asking, [b"f"], [0, 1, 2])
asking.sendall(json.dumps(request).encode() + b"\\n")
answer = asking.makefile().readline()
sys.exit(int(answer) if answer else 137)
"""


class Zygote:
    """Forks commands, one at a time, and the DVC processes that they start."""

    def __init__(self, folder: Path) -> None:
        """Opens the place where DVC is asked for.

        Args:
          folder: an empty one, for the stand-in and its socket.
        """
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "dvc.socket"))
        self._listener.listen()
        self._helpers: dict[int, socket.socket] = {}  # orphans stay longer than their command
        self._interpreter = folder / "python"
        self._interpreter.write_text(
            _STAND_IN.format(python=sys.executable, address=str(folder / "dvc.socket"))
        )
        self._interpreter.chmod(self._interpreter.stat().st_mode | stat.S_IXUSR)

    def serve(self) -> Callable[[], None] | None:
        """Answers requests until stdin closes; in a fork, returns what the fork has to do."""
        for line in sys.stdin:
            answer = self._command(json.loads(line))
            if callable(answer):
                return answer
            os.write(1, json.dumps(answer).encode() + b"\n")
        return None

    def _command(self, request: dict[str, Any]) -> dict[str, Any] | Callable[[], None]:
        fault, shared = Fault(**request["fault"]), Shared()
        reading, writing = os.pipe()
        hearing, saying = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.close(hearing)
            return lambda: self._become_command(request, fault, shared, writing, saying)
        os.close(saying)
        os.set_blocking(hearing, False)
        with contextlib.suppress(OSError):
            os.setpgid(process, process)
        points, said = _Points(reading), b""
        killed_at = 0.0
        began = time.monotonic()
        status = None
        while status is None:
            waited: list[socket.socket | int] = [self._listener, reading]
            ready, _, _ = select.select(waited, [], [], 0.005)
            said += _read(hearing)
            if reading in ready and points.read() and not killed_at:
                time.sleep(fault.delay)
                kill(process, group=fault.group)
                killed_at = time.monotonic()
            if self._listener in ready:
                asking, _ = self._listener.accept()
                _, descriptors, _, _ = socket.recv_fds(asking, 1, 3)
                wanted = json.loads(asking.makefile().readline())
                helper = os.fork()
                if helper == 0:
                    journal = os.dup(writing)
                    return lambda: _become_dvc(
                        wanted, descriptors, fault, shared, journal, victim=process
                    )
                for descriptor in descriptors:
                    os.close(descriptor)
                self._helpers[helper] = asking
            self._answer_helpers()
            status = _ended(process)
            if status is None and time.monotonic() - began > request["limit"]:
                kill(process, group=False)
        os.close(writing)
        points.read()
        said += _read(hearing)
        for descriptor in (reading, hearing):
            os.close(descriptor)
        return {
            "status": status,
            "points": points.seen,
            "said": said.decode(errors="replace"),
            "seconds": time.monotonic() - began,
        }

    def _answer_helpers(self) -> None:
        for helper in list(self._helpers):
            if (code := _ended(helper)) is not None:
                with contextlib.suppress(OSError):
                    self._helpers[helper].sendall(b"%d\n" % code)
                self._helpers.pop(helper).close()

    def _become_command(
        self, request: dict[str, Any], fault: Fault, shared: Shared, journal: int, said: int
    ) -> None:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for descriptor in (1, 2):
            os.dup2(said, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(request["cwd"])
        sys.executable = str(self._interpreter)
        sys.argv = ["dpal", *request["arguments"]]
        from dpal.ledger.ledger_store import LedgerStore
        from flows.cli.main import main

        defaults = LedgerStore.__init__.__kwdefaults__
        assert defaults is not None
        defaults["busy_seconds"] = request["busy_seconds"]
        if request["powerless"]:
            give_up_powers()
        Meter(fault, shared, journal, victim=os.getpid()).install()
        _leave(main)


class _Points:
    """The journal of a process: one line for each write point."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""
        self.seen: list[tuple[str, str]] = []
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Reads what is there; says whether the process asked for its fault."""
        asked = False
        *lines, self._rest = (self._rest + _read(self._descriptor)).split(b"\n")
        for line in lines:
            kind, about = line.decode(errors="replace").split("\t", 1)
            if kind == "die":
                asked = True
            else:
                self.seen.append((kind, about))
        return asked


def _become_dvc(
    wanted: dict[str, Any],
    descriptors: list[int],
    fault: Fault,
    shared: Shared,
    journal: int,
    *,
    victim: int,
) -> None:
    if fault.group:
        with contextlib.suppress(OSError):
            os.setpgid(0, victim)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.chdir(wanted["cwd"])
    os.umask(wanted["mask"])
    os.environ.update(wanted["env"])
    sys.argv = ["dvc"]
    Meter(fault, shared, journal, victim=victim, prefix="dvc: ").install()
    from dvc.cli import main

    _leave(lambda: sys.exit(next((bad for one in wanted["commands"] if (bad := main(one))), 0)))


def give_up_powers() -> None:
    """Lets the bits of files bind this process even if it is root's."""
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)  # capset(2), version 3
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")


def _remembered(plan: Callable[[Any], Any], folder: Path) -> Callable[[Any], Any]:
    """Planning is a function of its argument alone and takes seconds: once is enough."""

    def remembered(spec: Any) -> Any:
        known = folder / hashlib.sha256(repr(spec).encode()).hexdigest()
        if not known.exists():
            content = pickle.dumps(plan(spec))
            known.with_suffix(".new").write_bytes(content)
            known.with_suffix(".new").replace(known)
        return pickle.loads(known.read_bytes())

    return remembered


def _leave(command: Callable[[], None]) -> None:
    """Ends as the interpreter does, short of tearing down each of a thousand modules."""
    code = 1
    try:
        command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _read(descriptor: int) -> bytes:
    """What waits in a pipe."""
    content = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(descriptor, 1 << 16):
            content += more
    return content


def _ended(process: int) -> int | None:
    """Exit status of a child as `subprocess` gives it, None while it runs."""
    found, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _preload(folder: Path) -> None:
    from flows.cli.terminal import prepare_process

    mask = os.umask(0o022)
    prepare_process()
    os.umask(mask)
    import dpal.planning.certify_campaign as planning

    # Before anybody imports it from there.
    vars(planning)["certified_plan"] = _remembered(planning.certified_plan, folder)
    import dvc.cli
    import dvc.commands.add
    import dvc.repo  # noqa: F401
    import mlflow.pyfunc  # noqa: F401

    import flows.campaign
    import flows.cli.main  # noqa: F401

    # A fork copies the calling thread only: whatever others were doing would hang.
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # forks need not walk over what never changes


def main() -> None:
    """Serves until stdin closes; a fork leaves the loop and becomes what it was asked for."""
    folder = Path(sys.argv[1])
    _preload(folder)
    todo = Zygote(folder).serve()
    if todo is not None:
        todo()


if __name__ == "__main__":
    main()
