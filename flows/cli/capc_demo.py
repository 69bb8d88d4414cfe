"""`dpal capc demo`: a guardian, who asks and five sites, as processes of this machine."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dpal.errors import VoteAborted
from dpal.runs.sites_demo_files import Demo, prepare_demo, write_demo_page

_SECONDS = 120.0  # for the sites to be there, on a busy machine
_END_SECONDS = 5.0


def run_demo(folder: Path, data: Path, say: Callable[[str], None]) -> Path:
    """Prepares everything, starts everybody, asks, and writes a page.

    Returns:
      The page.

    Raises:
      VoteAborted: a process ended, or did not begin in time; its log says why.
    """
    demo = prepare_demo(folder, data, _free_port())
    say(f"keys, models and settings of all parties: {folder}")
    with contextlib.ExitStack() as running:
        guardian = running.enter_context(_party(demo, "guardian", demo.guardian))
        sites = [running.enter_context(_party(demo, "site", file)) for file in demo.sites.values()]
        _wait_for(demo, f"({len(sites)} of {len(sites)} sites)", [guardian, *sites])
        say(f"a guardian and {len(sites)} sites run, each as a process of its own")
        with _party(demo, "query", demo.querier) as asking:
            if asking.wait(_SECONDS) != 0:
                raise VoteAborted(f"the queries were not answered; see {_log(demo, 'query')}")
        _wait_until(demo.certificate.is_file, [guardian])
    return write_demo_page(demo)


@contextlib.contextmanager
def _party(demo: Demo, command: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A party, for the length of a block."""
    log = _log(demo, file.parent.name if command == "site" else command)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.cli", "capc", command, "--config", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(demo: Demo, words: str, processes: list[subprocess.Popen[bytes]]) -> None:
    log = _log(demo, "guardian")
    _wait_until(lambda: words in log.read_text(encoding="utf-8"), processes)


def _wait_until(holds: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + _SECONDS
    while not holds():
        if time.monotonic() > until or any(process.poll() is not None for process in processes):
            raise VoteAborted.before_release(
                "a party did not begin, or ended; the logs beside its folder say why"
            )
        time.sleep(0.05)


def _log(demo: Demo, name: str) -> Path:
    return demo.folder / f"{name}.log"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
