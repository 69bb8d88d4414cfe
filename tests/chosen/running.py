"""Runs test files, each in a process of its own, until a time is over."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import psutil

from tests.chosen.order import Choice

_UNKNOWN = 120.0  # seconds expected of a file that was never measured
_AT_LEAST = 600.0  # seconds that every file may take
_TIMES = 5.0  # and so many times what it is expected to take
_MARK = "DPAL_CHOSEN"  # in the environment of whatever a test file starts
_NO_TESTS = 5  # pytest's exit code
_TAIL = 6000  # characters of what a failed file said


class Outcome(Enum):
    """How it went."""

    PASSED = "passed"
    UNSTEADY = "passed the second time: mark it as one that fails by chance, or mend it"
    SKIPPED = "skipped"
    FAILED = "FAILED"
    TOO_LONG = "KILLED: took longer than it may"
    STOPPED = "stopped: the time was over"
    LEFT_OUT = "left out: no time left"


BAD = (Outcome.FAILED, Outcome.TOO_LONG)
SHOWN = (*BAD, Outcome.UNSTEADY)  # with all that they said


@dataclass(frozen=True)
class Ran:
    """One file and what came of it.

    Attributes:
      choice: the file, and why it was chosen.
      outcome: how it went.
      seconds: how long it took; 0 if it was left out.
      said: pytest's last line, or all of the end of its output if it failed, also only once.
    """

    choice: Choice
    outcome: Outcome
    seconds: float = 0.0
    said: str = ""


class Budget:
    """How much time is left, and whether a file still fits into it.

    A machine on which files take longer than they did when they were measured is slower by the
    same factor for those to come.
    """

    def __init__(self, seconds: float, known: Mapping[str, float]) -> None:
        """Begins now.

        Args:
          seconds: after which everything has ended.
          known: seconds that files took before.
        """
        self._end = time.monotonic() + seconds
        self._known = known
        self._taken = self._expected = 0.0

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._end - time.monotonic())

    def fits(self, file: str) -> bool:
        """Whether a file that begins now is expected to end in time."""
        return self._known.get(file, _UNKNOWN) * self._slower < self.left

    def limit(self, file: str) -> float:
        """Seconds that a file may take, whatever is left; no limit if it was never measured."""
        if file not in self._known:
            return math.inf
        return max(_AT_LEAST, _TIMES * self._known[file] * self._slower)

    @property
    def _slower(self) -> float:
        """How many times longer than expected files took."""
        return max(1.0, self._taken / self._expected) if self._expected else 1.0

    def took(self, ran: Ran) -> None:
        """Learns from a file that came to its end."""
        if ran.outcome is Outcome.PASSED and ran.choice.file in self._known:
            self._taken += ran.seconds
            self._expected += self._known[ran.choice.file]


def run_chosen(
    choices: Sequence[Choice],
    budget: Budget,
    *,
    root: Path,
    marks: str,
    workers: int,
    tell: Callable[[Ran], None],
) -> list[Ran]:
    """Runs files in order, several at a time; what does not fit makes room for what does.

    Args:
      choices: files, the most wanted first.
      budget: how long.
      root: where pytest runs.
      marks: which tests of the files, as pytest's -m says it.
      workers: files at a time.
      tell: hears of each file once it has ended.
    """
    turn = threading.Lock()
    waiting: Iterator[Choice] = iter(choices)
    done: list[Ran] = []

    def attempt(choice: Choice) -> Ran:
        limit = budget.limit(choice.file)
        return run_file(choice, root=root, marks=marks, limit=limit, left=budget.left)

    def work() -> None:
        while True:
            with turn:
                choice = next(waiting, None)
                if choice is None:
                    return
                if not budget.fits(choice.file):
                    done.append(Ran(choice, Outcome.LEFT_OUT))
                    continue
            ran = attempt(choice)
            if ran.outcome is Outcome.FAILED:
                # It may be the machine. A failure that comes again is one; the other is shown.
                again = attempt(choice)
                if again.outcome is Outcome.PASSED:
                    ran = replace(ran, outcome=Outcome.UNSTEADY)
            with turn:
                budget.took(ran)
                done.append(ran)
                tell(ran)

    with ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()
    return done


def run_file(choice: Choice, *, root: Path, marks: str, limit: float, left: float) -> Ran:
    """Runs one file, and kills it with all that it started once its time is over.

    Args:
      choice: the file.
      root: where pytest runs.
      marks: which of its tests.
      limit: seconds after which it has failed.
      left: seconds after which it is stopped, which says nothing of it.
    """
    mark, began = uuid.uuid4().hex, time.monotonic()
    # It ends with the first failure, so that nothing had failed in a file that is stopped.
    line = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", marks]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [*line, choice.file],
            cwd=root,
            env={"OMP_NUM_THREADS": "1", **os.environ, _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(min(limit, left))
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            _kill_marked(mark)
            process.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        said = output.read()
    if not ended:
        outcome = Outcome.TOO_LONG if limit <= left else Outcome.STOPPED
    elif code not in (0, _NO_TESTS):
        outcome = Outcome.FAILED
    else:
        outcome = Outcome.PASSED if re.search(r"\d+ passed", said) else Outcome.SKIPPED
    last = said.strip().splitlines()[-1:] or [""]
    return Ran(choice, outcome, seconds, said[-_TAIL:] if outcome in BAD else last[0])


def _kill_marked(mark: str) -> None:
    """Ends whatever a file started and left, also what has become a session of its own."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                process.kill()
