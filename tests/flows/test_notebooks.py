"""The notebooks are what they say: they run, and what stands in them is what a run printed."""

from __future__ import annotations

import pytest

nbformat = pytest.importorskip("nbformat", reason="NO NOTEBOOKS: pip install nbformat")
pytest.importorskip("nbclient", reason="NO NOTEBOOKS: pip install nbclient")
pytest.importorskip("ipykernel", reason="NO NOTEBOOKS: pip install ipykernel")

from nbclient.exceptions import CellExecutionError  # noqa: E402

from docs.run_notebooks import NOTEBOOKS, execute, printed  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def answers(notebook):
    """Of each cell with code: whether it was executed, and whether it printed anything."""
    return [
        (cell.execution_count is not None, bool(cell.outputs))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_some():
    assert len(FILES) >= 4


@every_notebook
def test_it_stands_there_executed_and_says_nothing_of_a_machine(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(executed for executed, _ in answers(notebook))
    text = path.read_text(encoding="utf-8")
    assert not [place for place in (str(ROOT), "/tmp/", "/home/", "/root/") if place in text]
    assert "\x1b" not in printed(notebook)
    assert path.stat().st_size < 150_000


@every_notebook
@pytest.mark.slow
def test_it_runs(path, tmp_path):
    kept = nbformat.read(path, as_version=4)
    again = execute(path, tmp_path)
    assert answers(again) == answers(kept)
    assert "Traceback" not in printed(again)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["dpal plan", "head", "nobodys-program"])
def test_a_command_that_fails_is_no_success(tmp_path, program):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(f"print('fine')\n!{program} no.yaml")]
    )
    path = tmp_path / "refused.ipynb"
    nbformat.write(notebook, path)
    with pytest.raises(CellExecutionError, match=f"Command '{program} no.yaml' returned non-zero"):
        execute(path, tmp_path)
