"""Executes the notebooks anew, each in a folder with the sample data.

python -m docs.run_notebooks [NAME ...] keeps what they print in them. It needs nbclient and
ipykernel, which come with the extra `dev`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = Path(__file__).resolve().parent / "notebooks"
_SECONDS = 600  # for a cell, on a busy machine
_STYLE = re.compile("\x1b" r"\[[0-9;?]*[A-Za-z]")  # such as bold letters


def execute(path: Path, folder: Path) -> Any:
    """Executes a notebook as a person would who opens it in a folder.

    Args:
      path: of the notebook; it is not changed.
      folder: where it works; gets the sample data.

    Returns:
      The notebook with what its cells print.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell failed, or a command that it typed did.
    """
    data = folder / "data"
    data.mkdir()
    for file in (ROOT / "data").iterdir():
        (data / file.name).symlink_to(file)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        kernel_name="python3",
        record_timing=False,
        # A command that a cell types and that fails is no failure of the cell otherwise.
        extra_arguments=["--InteractiveShell.system_raise_on_error=True"],
        coalesce_streams=True,  # of a progress bar, what stands there in the end
        resources={"metadata": {"path": str(folder)}},
    )
    # `!dpal` is the one of this environment, and nothing is anchored in the home of who runs this.
    client.execute(
        env={
            **os.environ,
            "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / ".state"),
            "COLUMNS": "100",
        }
    )
    _clean(notebook, folder)
    return notebook


def printed(notebook: Any) -> str:
    """All that a notebook's cells printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(output["text"] for output in outputs if "text" in output)


def _clean(notebook: Any, folder: Path) -> None:
    """Takes styles, and names of this machine's folders, out of what was printed."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text" in output:
                text = _STYLE.sub("", output["text"]).replace("\r\n", "\n")
                for place in (folder, Path(sys.prefix) / "bin"):
                    text = text.replace(f"{place}/", "")
                output["text"] = text


def main() -> None:
    """Executes all, or those that are named, and keeps what they print."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if sys.argv[1:] and not any(name in path.name for name in sys.argv[1:]):
            continue
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory(prefix="dpal-notebook-") as folder:
            notebook = execute(path, Path(folder).resolve())
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
