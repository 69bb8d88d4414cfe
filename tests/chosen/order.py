"""In which order slow tests are run: those near to what changed first, the others by chance."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

# Whoever changes one of these may have changed any test.
_FOR_ALL = ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run", "tests/conftest.py")

# Tests of this room look at files of the whole project, texts too, whatever they import.
_LOOKS_AT_ALL = PurePath("tests/contracts")


@dataclass(frozen=True)
class Choice:
    """A test file, and why it has its place.

    Attributes:
      file: path below the root.
      why: what of the change it reaches and over how many imports, or that it is there by chance.
    """

    file: str
    why: str


def ordered(
    reaches: Mapping[str, Mapping[str, int]],
    changed: Collection[str] | None,
    *,
    rng: random.Random,
) -> Iterator[Choice]:
    """Every test file once.

    First come tests that look at the whole project. Then the changed files take turns, those that
    the fewest tests reach first; each takes the nearest test that is left, and among equally near
    ones a test of a room that has had the fewest so far.
    What is left comes in random order.

    Args:
      reaches: for each test file, the files that it reaches and over how many imports.
      changed: files that changed; None if that is not known.
      rng: for the order of what nothing else decides.
    """
    left = sorted(reaches)
    rng.shuffle(left)
    for file in [test for test in left if PurePath(test).parent == _LOOKS_AT_ALL]:
        left.remove(file)
        yield Choice(file, "looks at the whole project")
    if changed is None or any(file in _FOR_ALL for file in changed):
        yield from (Choice(file, "may be reached") for file in left)
        return
    tests_of = {file: [test for test in left if file in reaches[test]] for file in sorted(changed)}
    turns = sorted((file for file in tests_of if tests_of[file]), key=lambda at: len(tests_of[at]))
    rooms: Counter[PurePath] = Counter()
    while turns:
        for file in list(turns):
            waiting = [test for test in tests_of[file] if test in left]
            if not waiting:
                turns.remove(file)
                continue
            nearest = min(
                waiting, key=lambda test: (reaches[test][file], rooms[PurePath(test).parent])
            )
            left.remove(nearest)
            rooms[PurePath(nearest).parent] += 1
            yield Choice(nearest, _distance(file, reaches[nearest][file]))
    yield from (Choice(file, "by chance") for file in left)


def _distance(file: str, steps: int) -> str:
    if steps == 0:
        return "changed itself"
    return f"{steps} import{'s' * (steps > 1)} to {file}"


def changed_files(root: Path, since: str | None) -> tuple[str, ...] | None:
    """What this revision changes; None if that cannot be known, as in a copy of one revision.

    Compared with `since`; else with where the branch left origin/main; else, where this is what
    origin/main has, with the first parent: what a landing by merge brought.
    """
    here = _git(root, "rev-parse", "HEAD")
    if since is None:
        base = _git(root, "merge-base", "HEAD", "origin/main")
        since = base if base and base != here else "HEAD^1"
    names = _git(root, "diff", "--name-only", since, "HEAD")
    return None if names is None or here is None else tuple(names.splitlines())


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def spread(files: Sequence[str]) -> str:
    """How many files of each room, in words."""
    rooms = Counter(PurePath(file).parent.name for file in files)
    return ", ".join(f"{count} of {room}" for room, count in sorted(rooms.items()))
