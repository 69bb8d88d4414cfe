"""Processes that stay up together: started, watched, started again, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from dpal.errors import DpalError
from flows.ops import run_flow

_SETTLED_SECONDS = 60.0  # who lives longer starts anew without delay
_LONGEST_PAUSE = 60.0
_SILENT_SECONDS = 15.0  # a person may be told nothing for so long
_GRACE_SECONDS = 35.0  # a training has 30 to finish its step and persist it

COMMAND = "flows.cli.main"  # what `python -m` runs as `dpal`


class ServeError(DpalError):
    """Something stands in the way of the local servers, or one of them did not start."""

    code = "serve"


@dataclass(frozen=True, kw_only=True)
class Service:
    """One server or worker.

    Attributes:
      name: for messages, and its log file.
      command: that runs it.
      environment: beside the one of this process.
      hides: how variables begin of which the one of this process is kept from it.
      answers: URL that answers once it is up; None needs no waiting.
      patience: seconds until it must have answered.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    hides: tuple[str, ...] = ()
    answers: str | None = None
    patience: float = 420.0


@dataclass
class _Running:
    part: Service
    process: subprocess.Popen[bytes]
    since: float
    deaths: int = 0
    due: float | None = None  # when it is started again


class Supervisor:
    """All parts of one folder, with their logs and what is needed to find them again."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._running: list[_Running] = []
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def stop_left_over(self) -> None:
        """Ends parts that a `dpal serve` left behind which was killed itself."""
        left = [process for process in map(_alive, self._recorded()) if process is not None]
        if left:
            self._say(f"stopping {len(left)} processes that an earlier, killed serve left behind")
            _stop(left)

    def start(self, *parts: Service) -> None:
        """Starts parts side by side and waits until all of them answer.

        Raises:
          ServeError: one ended, or did not answer in time.
        """
        self._say(f"starting {', '.join(part.name for part in parts)}")
        new = [_Running(part, self._spawn(part), time.monotonic()) for part in parts]
        self._running += new
        self._record()
        for running in new:
            self._await(running)

    def _await(self, running: _Running) -> None:
        part, said = running.part, time.monotonic()
        while part.answers is not None and not _answers(part.answers):
            ended = running.process.poll()
            if ended is not None or time.monotonic() > running.since + part.patience:
                how = "did not answer in time" if ended is None else f"ended with code {ended}"
                raise ServeError(
                    f"{part.name} {how}; {self._log(part)} says why (its last line: "
                    f"{_last_line(self._log(part))}), nothing else was touched"
                )
            if time.monotonic() > said + _SILENT_SECONDS:
                said = time.monotonic()
                self._say(
                    f"{part.name} does not answer yet, after {said - running.since:.0f} s of at "
                    f"most {part.patience:.0f}"
                )
            time.sleep(0.5)
        if part.answers is not None:
            self._say(f"{part.name} answers, after {time.monotonic() - running.since:.0f} s")

    def look(self) -> None:
        """Starts again, after a pause that grows, what has died since the last look."""
        now = time.monotonic()
        for running in self._running:
            if running.due is not None and now >= running.due:
                running.process, running.since, running.due = self._spawn(running.part), now, None
                self._record()
                self._say(f"{running.part.name} is started again")
            elif running.due is None and (code := running.process.poll()) is not None:
                _bury(running.process.pid)
                running.deaths = 0 if now - running.since > _SETTLED_SECONDS else running.deaths + 1
                pause = min(_LONGEST_PAUSE, 2.0**running.deaths)
                running.due = now + pause
                self._say(
                    f"{running.part.name} died ({_how(code)}); it is started again in {pause:.0f} "
                    f"s, log: {self._log(running.part)}"
                )

    def stop(self) -> None:
        """Stops all parts, the last first; what runs on the workers has time to persist."""
        processes = []
        for running in reversed(self._running):
            with contextlib.suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(running.process.pid))
        _stop(processes)
        self._running.clear()
        self._record()

    def _spawn(self, part: Service) -> subprocess.Popen[bytes]:
        inherited = {
            key: told for key, told in os.environ.items() if not key.startswith(part.hides)
        }
        with self._log(part).open("ab") as log:
            return subprocess.Popen(
                list(part.command),
                env={**inherited, **part.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we stop them in order
            )

    def _log(self, part: Service) -> Path:
        return self.logs / f"{part.name.replace(' ', '-')}.log"

    def _record(self) -> None:
        """Remembers who runs, by number and time of birth: numbers are used again."""
        born = []
        for running in self._running:
            with contextlib.suppress(psutil.NoSuchProcess):
                born.append(
                    [running.process.pid, psutil.Process(running.process.pid).create_time()]
                )
        self._file.write_text(json.dumps(born), encoding="utf-8")

    def _recorded(self) -> list[list[float]]:
        try:
            recorded: list[list[float]] = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return []
        return recorded

    @property
    def _file(self) -> Path:
        return self._folder / "processes.json"


def _alive(born: Sequence[float]) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error, ValueError):
        process = psutil.Process(int(born[0]))
        if abs(process.create_time() - born[1]) < 0.01:
            return process
    return None


def _stop(processes: Sequence[psutil.Process]) -> None:
    """Ends processes and all that they started: asked first, made to after a while."""
    everyone: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            everyone += [*process.children(recursive=True), process]
    # Servers stay up until the workers' last words have reached them.
    workers = [process for process in everyone if not _is_server(process)]
    for group, grace in ((workers, _GRACE_SECONDS), (everyone, 10.0)):
        for process in group:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGTERM)
        psutil.wait_procs(group, timeout=grace)
    for process in everyone:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for process in processes:
        _bury(process.pid)


def _bury(pid: int) -> None:
    """Ends what a dead part left behind in its group: servers' children, which hold the port."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _is_server(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return f"{COMMAND} worker" not in line and run_flow.__name__ not in line
    return False


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code < 500  # asked for a password is up, too
    except httpx.HTTPError:
        return False


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "nothing")
