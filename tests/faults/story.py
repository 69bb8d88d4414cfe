"""A campaign as the commands that a person types, and its retelling among deaths."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpal.files.artifacts import CampaignFolder
from tests.conftest import ROOT
from tests.faults.witness import Witness, told
from tests.faults.write_points import FAMILIES, Fault, family

_NEVER = Fault()
_LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Attempt:
    """How one command ended.

    Attributes:
      status: exit code, negative for a signal.
      seen: the write points that it came by, as (kind, about).
      said: what it printed, both streams.
      seconds: how long it lived.
    """

    status: int
    seen: list[tuple[str, str]]
    said: str
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether it was killed, rather than ended."""
        return self.status == -signal.SIGKILL


class Commands:
    """Runs `dpal` in processes of their own, forked from one that has imported everything."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self,
        place: Path,
        *arguments: str,
        fault: Fault = _NEVER,
        powerless: bool = False,
        busy_seconds: float = 30.0,
        seconds: float = _LIMIT_SECONDS,
    ) -> Attempt:
        """Runs `dpal` with arguments in a folder, until its end or its death.

        Args:
          place: the working folder.
          arguments: as typed.
          fault: what goes wrong, and when.
          powerless: the rights of files and folders bind it, as they do not bind root.
          busy_seconds: how long it waits for a ledger that somebody else has locked.
          seconds: after which it is killed.
        """
        request = {
            "arguments": arguments,
            "cwd": str(place),
            "fault": asdict(fault),
            "limit": seconds,
            "powerless": powerless,
            "busy_seconds": busy_seconds,
        }
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        seen = [(kind, about) for kind, about in answer["points"]]
        return Attempt(answer["status"], seen, answer["said"], answer["seconds"])


@contextmanager
def forked_commands(folder: Path, prefect_api: str) -> Iterator[Commands]:
    """Starts the process that forks commands; they talk to one Prefect server."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("zygote.py")), str(folder)],
        env={
            **os.environ,
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",
            "PREFECT_API_URL": prefect_api,
            "PREFECT_HOME": str(folder),
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Commands(process)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(30)


@dataclass(frozen=True)
class Step:
    """One thing that a person does in a story, with the commands that it takes.

    Attributes:
      command: what to type now; None once the step is done. Asked again after each command,
        with whether the last one came to its end.
      prepare: what happens before, such as new files that arrive.
    """

    command: Callable[[Path, bool], tuple[str, ...] | None]
    prepare: Callable[[Path], None] = field(default=lambda place: None)


@dataclass(frozen=True)
class Story:
    """Steps, and the campaigns that come out of them.

    Attributes:
      place: makes the folder in which the story begins.
      campaigns: names, each of a folder under `artifacts`.
      steps: in order.
    """

    place: Callable[[], Path]
    campaigns: tuple[str, ...]
    steps: tuple[Step, ...]


def type_once(*arguments: str, prepare: Callable[[Path], None] = lambda place: None) -> Step:
    """A command that is typed again until it comes to its end."""
    return Step(lambda place, ended: None if ended else arguments, prepare)


def run_to_the_end(name: str) -> Step:
    """Runs a campaign, NAME.yaml; labels are delivered whenever it waits for them."""

    def command(place: Path, ended: bool) -> tuple[str, ...] | None:
        folder = CampaignFolder(place / "artifacts" / name)
        phase = folder.phase(len(folder.finished_phases()))
        if (phase.query / "query.csv").exists() and not phase.labels.exists():
            answer_query(phase.query / "query.csv", place / "answers.csv", place / "pool")
            return ("label", f"artifacts/{name}", "answers.csv")
        return None if ended else ("run", f"{name}.yaml")

    return Step(command)


def answer_query(query: Path, answers: Path, pool: Path) -> None:
    """Labels a query as its pool's own column says, with the patience of a person."""
    table = pq.read_table(pool, columns=["id", "label"]).to_pydict()
    known = dict(zip(table["id"], table["label"], strict=True))
    with query.open(encoding="utf-8") as asked, answers.open("w", encoding="utf-8") as given:
        writer = csv.writer(given)
        writer.writerow(["id", "label"])
        writer.writerows([row["id"], known[row["id"]]] for row in csv.DictReader(asked))


@dataclass
class Told:
    """A story that was told to its end.

    Attributes:
      entries: what the ledger says now, comparable between tellings.
      points: how many write points of each family the commands came by.
      deaths: kind of each write point at which a command died.
      commands: how many it took.
      place: where it happened.
      seen: all write points, as (kind, about).
    """

    entries: list[Any]
    points: Counter[str]
    deaths: list[str]
    commands: int
    place: Path
    seen: list[tuple[str, str]] = field(default_factory=list)


def tell(
    story: Story,
    commands: Commands,
    *,
    deaths: Iterator[Fault] | None = None,
    limit: int = 0,
    place: Path | None = None,
) -> Told:
    """Goes through a story, looking at the ledger and the files after each command.

    Args:
      story: what to do.
      commands: where they run.
      deaths: when each command is killed.
      limit: after so many deaths nothing more goes wrong.
      place: where the story is told on, if it has begun; else it begins in a new place.
    """
    place = place or story.place()
    witness = Witness(place / "artifacts", *story.campaigns)
    result = Told([], Counter(), [], 0, place)
    for step in story.steps:
        step.prepare(place)
        ended = False
        while (arguments := step.command(place, ended)) is not None:
            death = next(deaths) if deaths and len(result.deaths) < limit else _NEVER
            attempt = commands.run(place, *arguments, fault=death)
            result.commands += 1
            result.points.update(family(*point) for point in attempt.seen)
            result.seen += attempt.seen
            witness.look()
            ended = attempt.status == 0
            if not ended:
                assert attempt.killed or refused(attempt), (place, arguments, attempt.said)
                assert death.at, attempt.said
                result.deaths.append(_described(attempt, death))
    witness.end()
    result.entries = told(witness.entries)
    return result


def refused(attempt: Attempt) -> bool:
    """Whether it ended as it should when it cannot go on: one sentence, exit code 2."""
    *before, last = attempt.said.splitlines()
    wrong = [line for line in before if line.startswith(("dpal: ", "Traceback", "---"))]
    return attempt.status == 2 and last.startswith("dpal: ") and not wrong


def _described(attempt: Attempt, fault: Fault) -> str:
    kind, about = attempt.seen[-1]
    if attempt.killed:
        return f"{family(kind, about)}: {kind}{', a moment later' if fault.delay else ''}"
    return f"{fault.family}: refused"


def random_deaths(
    rng: np.random.Generator, undisturbed: Told, *, full: bool = False
) -> Iterator[Fault]:
    """Deaths at random write points, soon enough that most commands die.

    A quarter comes a moment later instead, in the middle of whatever is going on; one in
    five leaves the processes that were started alive. With `full`, commands do not die: the
    disk is full from there on.
    """
    while True:
        kind = str(rng.choice(FAMILIES, p=[0.3, 0.35, 0.1, 0.15, 0.1]))
        soon = undisturbed.points[kind] // (2 * undisturbed.commands)
        yield Fault(
            family=kind,
            at=int(rng.integers(1, max(2, soon))),
            delay=float(rng.uniform(0, 0.05)) if rng.random() < 0.25 else 0.0,
            group=bool(rng.random() < 0.8),
            full=full,
        )
