"""Files are run until the time is over, and whatever they started is ended."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.chosen.__main__ import ROOT, SECONDS, candidates, measured, table
from tests.chosen.order import Choice
from tests.chosen.running import Budget, Outcome, Ran, run_chosen, run_file
from tests.processes import gone

PASSES = "import pytest\n@pytest.mark.slow\ndef test_it():\n    pass\n"
SKIPS = "import pytest\n@pytest.mark.slow\ndef test_it():\n    pytest.skip('no browser')\n"
FAILS = "import pytest\n@pytest.mark.slow\ndef test_it():\n    assert 'apples' == 'pears'\n"
HANGS = """
import subprocess, sys, time
import pytest
@pytest.mark.slow
def test_it():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True)
    open("child", "w").write(str(child.pid))
    time.sleep(600)
"""


UNSTEADY = """
from pathlib import Path
import pytest
@pytest.mark.slow
def test_it():
    ran = Path(__file__).with_name("ran")
    before = ran.exists()
    ran.touch()
    assert before, "pears"
"""


@pytest.fixture
def place(tmp_path):
    """A project with one file of each sort."""
    settings = "[pytest]\nmarkers =\n    slow\n    timing\naddopts = -q --import-mode=importlib\n"
    (tmp_path / "pytest.ini").write_text(settings, encoding="utf-8")
    folder = tmp_path / "tests" / "flows"
    folder.mkdir(parents=True)
    files = {
        "passes": PASSES,
        "skips": SKIPS,
        "fails": FAILS,
        "hangs": HANGS,
        "unsteady": UNSTEADY,
    }
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    timing = PASSES.replace("slow", "slow\n@pytest.mark.timing")
    (folder / "test_timing.py").write_text(timing, encoding="utf-8")
    return tmp_path


def choice(name):
    return Choice(f"tests/flows/test_{name}.py", "by chance")


def run(place, *names, seconds=300.0, known=None):
    heard: list[Any] = []
    done = run_chosen(
        [choice(name) for name in names],
        Budget(seconds, known or {}),
        root=place,
        marks="slow and not timing",
        workers=2,
        tell=heard.append,
    )
    assert {ran.choice for ran in heard} <= {ran.choice for ran in done}
    return {ran.choice.file.removeprefix("tests/flows/test_")[:-3]: ran for ran in done}


def test_candidates_are_found_by_their_marks(place):
    found = candidates(place, ["flows", "tasks"], "slow and not timing")
    assert found == [
        choice(name).file for name in ("fails", "hangs", "passes", "skips", "unsteady")
    ]


@pytest.mark.slow
def test_each_file_has_an_outcome_and_a_failed_one_says_why(place):
    done = run(place, "fails", "passes", "skips", "timing")
    outcomes = {name: ran.outcome for name, ran in done.items()}
    assert outcomes == {
        "fails": Outcome.FAILED,
        "passes": Outcome.PASSED,
        "skips": Outcome.SKIPPED,
        "timing": Outcome.SKIPPED,
    }
    assert "apples" in done["fails"].said


@pytest.mark.slow
def test_what_fails_once_is_shown_and_what_fails_twice_has_failed(place):
    done = run(place, "unsteady", "fails")
    assert done["unsteady"].outcome is Outcome.UNSTEADY
    assert "pears" in done["unsteady"].said
    assert done["fails"].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("limit", "left", "outcome"),
    [(6.0, 100.0, Outcome.TOO_LONG), (100.0, 6.0, Outcome.STOPPED)],
)
@pytest.mark.slow
def test_what_hangs_is_killed_with_all_that_it_started(place, limit, left, outcome):
    ran = run_file(choice("hangs"), root=place, marks="slow", limit=limit, left=left)
    assert ran.outcome is outcome
    if (place / "child").is_file():  # else it was killed before it came so far
        assert gone(int((place / "child").read_text(encoding="utf-8")), within=10)


def test_what_does_not_fit_makes_room_for_what_does(place):
    known = {choice("fails").file: 1000.0, choice("passes").file: 1.0}
    done = run(place, "fails", "passes", seconds=200, known=known)
    assert done["fails"].outcome is Outcome.LEFT_OUT
    assert done["passes"].outcome is Outcome.PASSED


def test_a_slower_machine_is_expected_to_stay_slower():
    known = {choice("passes").file: 10.0, choice("fails").file: 100.0}
    budget = Budget(250, known)
    assert budget.fits(choice("fails").file)
    budget.took(Ran(choice("passes"), Outcome.PASSED, 30.0))
    assert not budget.fits(choice("fails").file)
    assert budget.limit(choice("fails").file) == 5 * 3 * 100
    assert budget.limit(choice("unknown").file) == math.inf


def test_the_table_has_every_file_and_measured_seconds_are_of_those_that_passed():
    kept = "tests/chosen/test_running.py"
    done = [
        Ran(Choice(kept, "by chance"), Outcome.PASSED, 12.4),
        Ran(choice("fails"), Outcome.FAILED, 7.0),
        Ran(choice("passes"), Outcome.LEFT_OUT),
    ]
    lines = table(done).splitlines()
    assert len(lines) == 1 + len(done)
    assert all(ran.outcome.value in line for ran, line in zip(done, lines[1:], strict=True))
    assert json.loads(measured({"tests/flows/test_gone.py": 3.0}, done)) == {kept: 12}


def test_known_seconds_are_of_files_that_are_there():
    known = json.loads(SECONDS.read_text(encoding="utf-8"))
    assert [file for file in known if not (ROOT / file).is_file()] == []
    assert all(0 < seconds < 1800 for seconds in known.values())
