"""Programs that are killed as soon as a file of a given name is whole."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.forked import Forks

_VOTING = """
import json, dpal
from dpal.config.pate import parse_pate
dpal.run(parse_pate(json.load(open({config!r}))))
"""

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


def kill_voting(name: str, settings: Mapping[str, Any], forked: Forks) -> None:
    """Runs private voting in another process, and kills it once a file of this name is whole."""
    config = Path("killed.json")
    config.write_text(json.dumps(settings), encoding="utf-8")
    program = killed_as_written(name, _VOTING.format(config=str(config)))
    dead = forked.run(program)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
