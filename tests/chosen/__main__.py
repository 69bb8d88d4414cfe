"""Runs slow tests for a given time: those first that the last change can reach, then by chance.

    python -m tests.chosen --minutes 30

Each test file runs in a process of its own, two at a time, and is killed with all that it started
when the time is over. One that failed runs once more, and is shown whatever comes of that.
Candidates are slow tests of `FOLDERS` that give the same answer each time: none that is marked
`timing` or `statistical`, none that needs real data sets. `seconds.json` says how long each file is
known to take; `--measure` writes down what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chosen.order import changed_files, ordered, spread
from tests.chosen.reach import Reach
from tests.chosen.running import BAD, SHOWN, Budget, Outcome, Ran, run_chosen

ROOT = Path(__file__).resolve().parents[2]
SECONDS = Path(__file__).with_name("seconds.json")
# All rooms but those that measure (accuracy, benchmarks, scale) or draw what they try (fuzz).
FOLDERS = ("accounting", "acquisition", "audit", "book", "browser", "capc", "certificate",
           "compatibility", "config", "contracts", "data", "faults", "features", "files",
           "flows", "inference", "labeling", "ledger", "mechanisms", "models", "planning",
           "reports", "runs", "simulation", "store", "tasks", "training", "voting")  # fmt: skip
NEVER = ("timing", "statistical", "shared_data")
_LAST_WORDS = 1500  # characters of what a failed file said, at the end of everything
_BROWSER = ("/usr/bin/chromium", "/usr/bin/chromedriver")


def main() -> int:
    """Chooses and runs; gives 1 if a test failed or took longer than it may."""
    given = _arguments()
    marks, without = candidates_mark()
    files = candidates(ROOT, FOLDERS, marks)
    changed, reach = changed_files(ROOT, given.since), Reach(ROOT)
    reaches = {file: reach.steps_to(file) for file in files}
    choices = list(ordered(reaches, changed, rng=random.Random(given.seed)))
    known = json.loads(SECONDS.read_text(encoding="utf-8"))
    print(f"{len(choices)} files of slow tests: {spread(files)}.{without}")
    print("what changed is not known" if changed is None else f"{len(changed)} files changed")
    print(f"{given.minutes:g} minutes; the same order again: --seed {given.seed}", flush=True)
    done = run_chosen(
        choices,
        Budget(60 * given.minutes, known),
        root=ROOT,
        marks=marks,
        workers=given.workers,
        tell=_told,
    )
    print(f"\n{table(done)}")
    if given.measure:
        SECONDS.write_text(measured(known, done), encoding="utf-8")
    failed = [ran for ran in done if ran.outcome in BAD]
    for ran in failed:  # once more, and last: where the end of a long log is all that is kept
        print(f"\n{ran.choice.file}: {ran.outcome.value}\n{ran.said[-_LAST_WORDS:]}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chosen", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="after which all has ended")
    parser.add_argument("--workers", type=int, default=2, help="files at a time")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the order")
    parser.add_argument("--since", help="revision to compare with (see order.py)")
    parser.add_argument("--measure", action="store_true", help="write seconds.json anew")
    return parser.parse_args()


def candidates_mark() -> tuple[str, str]:
    """Which tests may be chosen, as pytest's -m says it, and what this machine cannot run."""
    marks = " and ".join(["slow", *(f"not {name}" for name in NEVER)])
    chromium = os.environ.get("CHROMIUM", _BROWSER[0]), os.environ.get("CHROMEDRIVER", _BROWSER[1])
    missing = [program for program in chromium if not Path(program).is_file()]
    if not (os.environ.get("DPAL_LABEL_STUDIO") or shutil.which("label-studio")):
        missing.append("label-studio")
    if not missing:
        return marks, ""
    said = f" Tests in a browser are left out: no {', no '.join(missing)}."
    return f"{marks} and not browser", said


def candidates(root: Path, folders: Sequence[str], marks: str) -> list[str]:
    """Files that have such tests, as pytest collects them."""
    places = [f"tests/{name}" for name in folders if (root / "tests" / name).is_dir()]
    line = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-qq", "-m", marks]
    done = subprocess.run([*line, *places], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
    return sorted(re.findall(r"^(tests/\S+): \d+$", done.stdout, re.MULTILINE))


def _told(ran: Ran) -> None:
    print(f"{ran.choice.file}: {ran.outcome.value} after {ran.seconds:.0f} s", flush=True)
    if ran.outcome in SHOWN:
        print(ran.said, flush=True)


def table(done: Sequence[Ran]) -> str:
    """What was run and what was left out, one file a line."""
    lines = [("file", "seconds", "why", "outcome")]
    for ran in sorted(done, key=lambda ran: (ran.outcome is Outcome.LEFT_OUT, -ran.seconds)):
        seconds = f"{ran.seconds:.0f}" if ran.seconds else ""
        lines.append((ran.choice.file, seconds, ran.choice.why, ran.outcome.value))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[3]]
        )
        for line in lines
    )


def measured(known: Mapping[str, float], done: Sequence[Ran]) -> str:
    """seconds.json with what was seen, without files that are gone."""
    seen = {ran.choice.file: round(ran.seconds) for ran in done if ran.outcome is Outcome.PASSED}
    every = {**known, **seen}
    kept = {file: every[file] for file in sorted(every) if (ROOT / file).is_file()}
    return json.dumps(kept, indent=1) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
