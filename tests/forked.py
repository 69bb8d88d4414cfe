"""Python processes that begin in milliseconds: forked from one that has imported what takes long.

Importing Prefect, MLflow and torch takes most of the time of a short command. What is ours is
imported by each process itself, as if it were a new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TextIO

from flows.cli.terminal import _QUIET
from tests.conftest import ROOT

# One for all of pytest's workers: its child asks, on a socket, for processes that it forks in turn.
_FORKS = """
import atexit, gc, json, os, signal, socket, sys, threading
gc.disable()
path, of_pytest = sys.argv[1:]
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
listening.settimeout(1)
import dp_accounting.pld, matplotlib.pyplot, mlflow, pandas, prefect.context, pyarrow.parquet
import scipy.optimize, scipy.stats, sklearn, sqlalchemy, torch._dynamo
gc.freeze()  # else each child copies, as it ends, all that was imported here
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for whoever serves one of the workers
while True:
    try:
        asking, _ = listening.accept()
    except TimeoutError:
        try:
            os.kill(int(of_pytest), 0)
        except ProcessLookupError:
            os.unlink(path)
            os.unlink(path + ".lock")
            os._exit(0)  # nothing of its own is to be written, where lines are counted
        continue
    if os.fork() == 0:
        break
    asking.close()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
listening.close()
asking.settimeout(None)
lines = asking.makefile()
for line in lines:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    asking.sendall(f"{code}\\n".encode())
else:
    os._exit(0)
lines.close()
asking.close()
for descriptor, name in enumerate((os.devnull, asked["out"], asked["err"])):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
os.environ.clear()
os.environ.update(asked["environment"])
prefect.context.refresh_global_settings_context()
gc.enable()
os.chdir(asked["cwd"])
sys.argv = ["-c", *asked["arguments"]]
code = 1
try:
    exec(asked["script"], {"__name__": "__main__"})
    code = 0
except SystemExit as ended:
    code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    if isinstance(ended.code, str):
        print(ended.code, file=sys.stderr)
except BaseException:
    sys.excepthook(*sys.exc_info())
# As Python ends, but for taking apart all that was imported, which takes most of a second.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


class Forks:
    """Runs scripts, one at a time, each in a process of its own."""

    def __init__(self, asking: socket.socket, answers: TextIO) -> None:
        """Takes a connection to whoever forks: it reads requests, and answers with exit codes."""
        self._asking, self._answers = asking, answers

    def run(self, script: str, *arguments: str, **added: str) -> subprocess.CompletedProcess[str]:
        """Runs a script in the working folder, as `python -c script arguments` would.

        Args:
          script: it finds this project's modules.
          arguments: of the script.
          added: what its environment has beside that of this process.
        """
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            asked = {
                "script": script,
                "arguments": arguments,
                "environment": _environment(added),
                "cwd": str(Path.cwd()),
                "out": str(out),
                "err": str(err),
            }
            self._asking.sendall((json.dumps(asked) + "\n").encode())
            code = int(self._answers.readline())
            said = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *said)


@contextmanager
def forks() -> Iterator[Forks]:
    """Connects to the process that forks, and starts it if no other of pytest's workers has."""
    of_pytest = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    path = Path(gettempdir(), f"dpal-forks-{os.getuid()}-{of_pytest}")
    with socket.socket(socket.AF_UNIX) as asking, Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            asking.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            # Not by subprocess, which wants to see the end of what it starts.
            os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", _FORKS, str(path), str(of_pytest)],
                _environment(_QUIET),  # what Prefect logs is settled when it is imported
                setsid=True,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                ],
            )
            _await(path, asking)
        fcntl.flock(lock, fcntl.LOCK_UN)
        with asking.makefile() as answers:
            yield Forks(asking, answers)


def _await(path: Path, asking: socket.socket) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return asking.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            assert time.monotonic() < deadline, "the process that forks did not start"
            time.sleep(0.02)


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    # MLflow tells the children of a process where other tests looked.
    known = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_T")}
    return {**known, "PYTHONPATH": str(ROOT), **added}
