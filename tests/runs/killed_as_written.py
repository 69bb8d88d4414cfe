"""Programs that are killed as soon as a file of a given name is whole."""

from __future__ import annotations

_KILLED = """
import os, signal
from pathlib import Path
real = Path.replace
def dying(path, target):
    real(path, target)
    if Path(target).name == {name!r}:
        os.kill(os.getpid(), signal.SIGKILL)
Path.replace = dying
"""


def killed_as_written(name: str, program: str) -> str:
    """A program that ends so.

    Args:
      name: of the file; it is there, and nothing comes after it.
      program: what runs until then.
    """
    return _KILLED.format(name=name) + program
