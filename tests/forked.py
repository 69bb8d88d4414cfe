"""Python processes that begin in milliseconds: forked from one that has imported what takes long.

Importing Prefect, MLflow and torch takes most of the time of a short command. What is ours is
imported by each process itself, as if it were a new one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.cli.terminal import _QUIET
from tests.conftest import ROOT

_FORKS = """
import atexit, gc, json, os, sys, threading
gc.disable()
import dp_accounting.pld, matplotlib.pyplot, mlflow, pandas, prefect.context, pyarrow.parquet
import scipy.optimize, scipy.stats, sklearn, sqlalchemy, torch._dynamo
gc.freeze()  # else each child copies, as it ends, all that was imported here
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
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

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Takes the process that forks: it reads requests, and answers with exit codes."""
        self._process = process

    def run(self, script: str, *arguments: str, **added: str) -> subprocess.CompletedProcess[str]:
        """Runs a script in the working folder, as `python -c script arguments` would.

        Args:
          script: it finds this project's modules.
          arguments: of the script.
          added: what its environment has beside that of this process.
        """
        assert self._process.stdin and self._process.stdout
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
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            said = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *said)


@contextmanager
def forks() -> Iterator[Forks]:
    """Starts the process that forks."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        env=_environment(_QUIET),  # what Prefect logs is settled when it is imported
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Forks(process)
    finally:
        with process:  # closes its pipes, and waits
            pass


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    # MLflow tells the children of a process where other tests looked.
    known = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_T")}
    return {**known, "PYTHONPATH": str(ROOT), **added}
