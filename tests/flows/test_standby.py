"""The process that stands by: what it becomes, and that it is gone with its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.ops import standby_process
from tests.variants import quick_and_slow

# A module with a program's end, which says what it sees; `WARM` is there if it was imported ahead.
_PROGRAM = """
import json, os, sys
if __name__ == "__main__":
    import ahead
    print(json.dumps({
        "pid": os.getpid(), "folder": os.getcwd(), "arguments": sys.argv[1:],
        "environment": dict(os.environ), "stdin": sys.stdin.read(), "safe": sys.flags.safe_path,
        "path": sys.path, "imported": ahead.WHEN, "spec": __spec__.name,
    }))
    sys.exit(int(os.environ.get("PREFECT__CODE", "0")))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the two modules, and one to work in that has others of the same names."""
    code, work = tmp_path / "code", tmp_path / "work"
    for folder in (code, work):
        folder.mkdir()
    (code / "program.py").write_text(_PROGRAM)
    (code / "ahead.py").write_text("import time\nWHEN = time.time()\n")
    (work / "program.py").write_text("raise SystemExit('taken from the folder')")
    for file in code.iterdir():
        os.utime(file, (1e9, 1e9))
    return tmp_path


@pytest.fixture
def standing(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    with standing_in(environment(place, PREFECT__OF_ANOTHER="run"), place) as process:
        yield process


@contextmanager
def standing_in(told: dict[str, str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-P", standby_process.__file__, str(os.getpid()), "ahead"],
        cwd=place,
        env=told,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.communicate()


def environment(place: Path, **more: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    home = str(place / "prefect")
    kept["LANG"] = "C.UTF-8"  # else Python adds a variable of its own, as it did to a worker
    return {**kept, "PYTHONPATH": str(place / "code"), "PREFECT_HOME": home, **more}


def order(place: Path, **changed: Any) -> bytes:
    told = {
        "command": [sys.executable, "-P", "-m", "program", "flow"],
        "environment": environment(place, PREFECT__FLOW_RUN_ID="one"),
        "folder": str(place / "work"),
    }
    return json.dumps({**told, **changed}).encode()


def await_ready(process: subprocess.Popen[bytes]) -> float:
    """Waits until it reads its stdin; returns the time."""
    began = time.monotonic()
    place = Path(f"/proc/{process.pid}/wchan")
    while "pipe" not in place.read_text() and time.monotonic() - began < 60:
        time.sleep(0.05)
    return time.time()


def seen_by(process: subprocess.Popen[bytes], wanted: bytes) -> dict[str, Any]:
    said, errors = process.communicate(wanted, timeout=60)
    assert said, errors.decode()
    assert not errors
    return dict(json.loads(said))


@pytest.mark.slow
def test_it_becomes_what_a_new_process_would_be(place, standing):
    ready = await_ready(standing)
    warm = seen_by(standing, order(place))
    assert warm["imported"] < ready, "it was imported anew"
    cold = subprocess.run(
        [sys.executable, "-P", "-m", "program", "flow"],
        cwd=place / "work",
        env=environment(place, PREFECT__FLOW_RUN_ID="one"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    new = json.loads(cold.stdout)
    for process in (warm, new):
        del process["pid"], process["imported"]
    assert warm == new
    assert warm["environment"]["PREFECT__FLOW_RUN_ID"] == "one"


@pytest.mark.parametrize(
    "change",
    quick_and_slow(
        ["setting", "module", "settings file", "command"],
        ["setting", "module", "settings file", "command", "profile"],
    ),
)
def test_where_a_new_process_would_differ_it_becomes_a_new_one(place, standing, change):
    ready = await_ready(standing)
    changed: dict[str, Any] = {}
    if change == "setting":
        changed["environment"] = environment(place, PREFECT_LOGGING_LEVEL="DEBUG")
    if change == "module":
        (place / "code" / "ahead.py").write_text("import time\nWHEN = time.time()\n# new\n")
    if change == "settings file":
        (place / "work" / "prefect.toml").write_text("[logging]\nlevel = 'DEBUG'\n")
    if change == "command":
        changed["command"] = [sys.executable, "-I", "-c", "import json; print(json.dumps({}))"]
    if change == "profile":
        (place / "prefect").mkdir(exist_ok=True)
        (place / "prefect" / "profiles.toml").write_text("active = 'other'\n[profiles.other]\n")
    seen = seen_by(standing, order(place, **changed))
    assert change == "command" or (seen["imported"] > ready and seen["pid"] == standing.pid)
    assert not seen.get("path") or str(place / "work") not in seen["path"]


@pytest.mark.slow
def test_a_relative_path_is_looked_up_in_the_folder_that_a_run_works_in(place):
    told = environment(place, PYTHONPATH=os.pathsep.join([str(place / "code"), "here"]))
    with standing_in(told, place) as process:
        ready = await_ready(process)
        seen = seen_by(process, order(place, environment=told))
    assert seen["imported"] > ready
    assert str(place / "work" / "here") in seen["path"]


@pytest.mark.slow
def test_its_exit_code_is_the_runs(place, standing):
    told = order(place, environment=environment(place, PREFECT__CODE="7"))
    seen_by(standing, told)
    assert standing.returncode == 7


@pytest.mark.slow
@pytest.mark.parametrize("module", ["ahead", "slow"])
def test_it_ends_silently_with_whoever_started_it(place, module):
    """kill -9: nobody is left to say so, but the pipe ends; also while it imports something."""
    (place / "code" / "slow.py").write_text("import time\ntime.sleep(600)\n")
    starts = (
        "import os, subprocess, sys, time; command = [sys.executable, '-P', "
        f"{standby_process.__file__!r}, str(os.getpid()), {module!r}];"
        "p = subprocess.Popen(command, stdin=subprocess.PIPE);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", starts],
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdout is not None and worker.stderr is not None
    child = psutil.Process(int(worker.stdout.readline()))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    _, alive = psutil.wait_procs([child], timeout=30)
    assert not alive
    assert worker.stderr.read() == b""
    worker.stdout.close()
    worker.stderr.close()


def test_an_interrupt_at_the_workers_terminal_ends_it_silently(standing):
    await_ready(standing)
    standing.send_signal(signal.SIGINT)
    assert standing.communicate(timeout=30) == (b"", b"")
    assert standing.returncode == -signal.SIGINT
