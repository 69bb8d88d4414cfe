"""The tutorial and the README do what they say: their commands, typed in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TUTORIAL = ROOT / "docs" / "tutorial"
# They prepare a machine, which is prepared; and a folder, which a test has.
PREPARING = re.compile(r"^(?:make .*|source .*|mkdir ~/trial.*)$", re.MULTILINE)


def blocks(page: Path, language: str = "") -> list[str]:
    """Blocks of a page in a language; without one, those that are typed into a terminal."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [text for name, text in found if name == language]


def typed(commands: str, folder: Path) -> str:
    """What commands print; they stop at the first one that fails."""
    done = subprocess.run(
        ["/bin/bash", "-ec", PREPARING.sub("", commands)],
        cwd=folder, capture_output=True, text=True, check=False,
        env={
            **os.environ,
            "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / ".state"),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def patients(folder: Path) -> None:
    """The table that the tutorial makes up."""
    (script,) = blocks(TUTORIAL / "your-csv.md", "python")
    (folder / "make_patients.py").write_text(script, encoding="utf-8")
    typed("python make_patients.py", folder)


def predicted(folder: Path) -> int:
    """How many records the file of predictions has."""
    from pyarrow import parquet

    return int(parquet.read_metadata(folder / "march-predicted.parquet").num_rows)


@pytest.mark.slow
def test_a_first_campaign(tmp_path):
    printed = [typed(block, tmp_path) for block in blocks(TUTORIAL / "first-campaign.md")]
    assert len(printed) == 7
    assert "7.9947" in printed[1]
    assert "sound" in printed[4]


@pytest.mark.slow
def test_a_csv_of_your_own(tmp_path):
    patients(tmp_path)
    printed = [typed(block, tmp_path) for block in blocks(TUTORIAL / "your-csv.md")]
    assert len(printed) == 5
    assert "3.9973" in printed[2]
    assert predicted(tmp_path) == 200


@pytest.mark.slow
def test_the_commands_of_the_readme(tmp_path):
    patients(tmp_path)
    (commands,) = [text for text in blocks(ROOT / "README.md") if "dpal import" in text]
    typed(commands, tmp_path)
    assert predicted(tmp_path) == 200


def test_a_command_that_fails_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match="before"):
        typed("echo before\nfalse\necho after > went-on", tmp_path)
    assert not (tmp_path / "went-on").exists()
