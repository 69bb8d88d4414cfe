"""The process that stands by for a worker, and becomes the run of one flow; started as a file.

It has imported what trainings are made of, and nothing else: it has opened no connection, no data
and no device. Whatever a new process would see otherwise makes it a new process.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_LOOK_SECONDS = 0.5
# What differs from run to run: Prefect's own plumbing, and what a worker says of the folder.
_OF_THE_RUN = ("PREFECT__", "DPAL_ASKED_FOLDER")
# Files of a folder that Prefect reads its settings from when it is imported.
_SETTINGS_FILES = (".env", "prefect.toml", "pyproject.toml")


def main() -> None:
    """Imports, waits for an order, and follows it: `standby_process.py WORKER_PID MODULE...`.

    The order comes by stdin, as JSON: `command`, `environment` and `folder` of a new process. If
    stdin ends without one the worker has ended, however it did, and this process does as well.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C at the worker's terminal
    began, here, environment = time.time(), Path.cwd(), dict(os.environ)
    imported = threading.Event()
    worker, *modules = sys.argv[1:]
    watching = threading.Thread(target=_end_with, args=(int(worker), imported), daemon=True)
    watching.start()
    for module in modules:
        importlib.import_module(module)
    imported.set()
    watching.join()
    if order := sys.stdin.buffer.read():
        follow(**json.loads(order), began=began, here=here, before=environment)


def _end_with(worker: int, imported: threading.Event) -> None:
    """Ends this process if its worker ends while it imports, which may take long."""
    while not imported.wait(_LOOK_SECONDS):
        if os.getppid() != worker:
            os._exit(1)


def follow(
    *,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    began: float,
    here: Path,
    before: Mapping[str, str],
) -> None:
    """Becomes what a new process of this command, environment and folder would be.

    Args:
      command: Python, its option -P, -m, a module, and the module's arguments.
      environment: all of it.
      folder: to work in.
      began: before anything was imported, in seconds since the epoch.
      here: the folder in which it was imported.
      before: the environment in which it was imported.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    same_settings = _lasting(environment) == _lasting(before) and not (
        here != Path(folder) and any(_names_settings(place) for place in (here, Path(folder)))
    )
    python, *options, module = command[:4]
    if (
        [python, *options] != [sys.executable, "-P", "-m"]
        or not same_settings
        or _changed_since(began)
        or not _has_absolute_path(environment)
    ):
        os.execve(command[0], list(command), dict(environment))  # noqa: S606  no shell
    signal.signal(signal.SIGINT, signal.default_int_handler)
    importlib.invalidate_caches()
    # As Python's own -m does it: the module is run once more, as the program.
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning, "runpy")
    sys.argv = [module, *command[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """What was there to be read when modules were imported."""
    return {key: value for key, value in environment.items() if not key.startswith(_OF_THE_RUN)}


def _names_settings(folder: Path) -> bool:
    return any((folder / name).exists() for name in _SETTINGS_FILES)


def _has_absolute_path(environment: Mapping[str, str]) -> bool:
    """Whether Python finds the same modules from every folder."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return all(Path(entry).is_absolute() for entry in entries if entry)


def _changed_since(began: float) -> bool:
    """Whether a new process would import something else: an upgrade, or a setting of Prefect's."""
    try:
        return any(file.stat().st_mtime >= began for file in _files())
    except OSError:  # one is gone
        return True


def _files() -> Iterator[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and (path := Path(file)).is_absolute():
            yield path
    from prefect.settings import get_current_settings

    if (profiles := get_current_settings().profiles_path).exists():
        yield profiles


if __name__ == "__main__":
    main()
