"""Prefect's temporary server: waited for as long as it makes progress, gone with its command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import psutil

from dpal.errors import DpalError
from flows.ops import temporary_server_process

STILL_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_SAY_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_STOP_SECONDS = 10.0
_LONGEST_STEP = 10.0
_TAIL_BYTES = 4096


class PrefectNotStarted(DpalError):
    """Prefect's temporary server did not start. Nothing was released."""

    code = "prefect-not-started"
    closing = "nothing was lost or released"
    released = False

    def __init__(self, why: str, last_line: str) -> None:
        super().__init__(why, last_line)
        self.why, self.last_line = why, last_line

    def _sentence(self) -> str:
        said = f" (its last line: {self.last_line})" if self.last_line else ""
        return (
            f"Prefect's temporary server {self.why}{said}; run the "
            "same command again, or set PREFECT_API_URL to a server that runs already"
        )


@dataclass
class Stillness:
    """How long a process has shown no sign of progress.

    Attributes:
      seconds: since its signs last changed.
    """

    seconds: float = 0.0
    _signs: object = field(default=None, init=False)

    def look(self, signs: object, elapsed: float) -> None:
        """Counts the seconds since the last look, unless the signs of progress changed.

        A look that comes late (this process was stopped, too) counts as ten seconds at most.
        """
        still = signs == self._signs
        self.seconds = self.seconds + min(elapsed, _LONGEST_STEP) if still else 0.0
        self._signs = signs


class TemporaryServer:
    """One Prefect server on a free port of this machine, without a password, for programs alone.

    It writes to a log without a name, never to the command's output: who reads that to its end
    waits for the command alone.
    """

    def __init__(self) -> None:
        """Starts the process; it does not answer yet."""
        from prefect.settings import get_current_settings

        self._log = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the server
        # One for all looks, as each reads the authorities of this machine when it is made. By no
        # proxy, which does not know the machine's own address.
        self._client = httpx.Client(trust_env=False, timeout=_ANSWER_SECONDS)
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port: int = bound.getsockname()[1]
            self.process = subprocess.Popen(
                # -P and the file's path: a folder `flows` where the command was typed is not ours.
                [sys.executable, "-P", temporary_server_process.__file__,
                 str(os.getpid()), str(bound.fileno())],
                env={
                    **os.environ,
                    "PREFECT_UI_ENABLED": "0",
                    "PREFECT__SERVER_EPHEMERAL": "1",
                    "PREFECT__SERVER_FINAL": "1",
                    **get_current_settings().to_environment_variables(exclude_unset=True),
                },
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[bound.fileno()],
            )  # fmt: skip

    def wait_until_ready(self, say: Callable[[str], None]) -> None:
        """Waits until the server answers, and says every ten seconds how far it is.

        Args:
          say: prints a line.

        Raises:
          PrefectNotStarted: it ended, refused, or made no progress for `STILL_SECONDS`.
        """
        began = seen = told = time.monotonic()
        stillness = Stillness()
        while not self._answers():
            if (code := self.process.poll()) is not None:
                raise self._not_started(f"ended with code {code} before it answered")
            now = time.monotonic()
            used, written = self._cpu_seconds(), self._log_size()
            stillness.look((used, written), now - seen)
            seen = now
            if stillness.seconds > STILL_SECONDS:
                raise self._not_started(
                    f"does not answer, and has neither computed nor written anything for "
                    f"{STILL_SECONDS:.0f} seconds"
                )
            if now - told > _SAY_SECONDS:
                told = now
                say(
                    f"Prefect's server is starting: {now - began:.0f} s, of which it computed "
                    f"{used:.1f} s; the machine's load is {os.getloadavg()[0]:.0f}"
                )
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Ends the server: it has some seconds to write down what it was sent."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._client.close()
        self._log.close()

    def _answers(self) -> bool:
        try:
            answer = self._client.get(f"http://127.0.0.1:{self.port}/api/health")
        except httpx.TransportError:
            return False
        if not answer.is_success:
            raise self._not_started(f"answered with status {answer.status_code}")
        return True

    def _cpu_seconds(self) -> float:
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.Error:  # it just ended; the next look says so
            return 0.0
        return float(times.user + times.system)

    def _log_size(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    def _not_started(self, why: str) -> PrefectNotStarted:
        return PrefectNotStarted(why, self._last_line())

    def _last_line(self) -> str:
        # pread: the server writes at the offset that both share.
        start = max(0, self._log_size() - _TAIL_BYTES)
        tail = os.pread(self._log.fileno(), _TAIL_BYTES, start).decode("utf-8", "replace")
        return next((line.strip()[:200] for line in tail.splitlines()[::-1] if line.strip()), "")
