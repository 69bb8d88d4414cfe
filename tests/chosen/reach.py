"""Which files a test can reach: imports of imports, as they stand in the sources."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOMS = ("dpal", "tasks", "flows", "tests")
_DOTTED = re.compile(rf"(?:{'|'.join(ROOMS)})(?:\.\w+)+")
# A test that has one of these names starts commands, and says by words which ones.
_STARTS_COMMANDS = ("call", "command", "commands", "dpal")
_COMMANDS = "flows/cli"
_FOR_ALL = "tests/conftest.py"  # its fixtures are everybody's; few tests use all of what it imports


class Reach:
    """The files of a project and what each of them names, directly.

    A file names another one by an import, wherever it stands, or by its dotted name as a string
    (entry points, modules imported when they are needed, what a test replaces). A test that starts
    `dpal` names the command line, and the module of each command that it has as a word. A package
    is its `__init__.py`; importing a module of it counts as that module alone. What
    tests/conftest.py imports for whoever asks does not count.
    """

    def __init__(self, root: Path) -> None:
        """Looks at nothing yet.

        Args:
          root: of the project, with the folders dpal, tasks, flows and tests.
        """
        self._root = root
        self._named = cache(lambda file: frozenset(self._read(file)))

    def steps_to(self, test: str) -> dict[str, int]:
        """How many imports lie between a test and each file that it can reach.

        Args:
          test: path below the root, such as tests/flows/test_watch.py.

        Returns:
          Steps by path: 0 for the test itself, 1 for what it names, and so on.
        """
        found, waiting = {test: 0}, deque([test])
        while waiting:
            file = waiting.popleft()
            for named in self._named(file):
                if named not in found:
                    found[named] = found[file] + 1
                    waiting.append(named)
        return found

    def _read(self, file: str) -> Iterator[str]:
        if not file.endswith(".py") or file == _FOR_ALL:
            return
        tree = ast.parse((self._root / file).read_text(encoding="utf-8"))
        for name in _names(tree):
            yield from self._files_of(name)
        if file.startswith("tests/"):
            yield from self._beside(file, tree)

    def _files_of(self, name: str) -> Iterator[str]:
        """The module of a dotted name, which may go on with what is defined in it."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            place = "/".join(parts[:end])
            for file in (f"{place}.py", f"{place}/__init__.py"):
                if parts[0] in ROOMS and (self._root / file).is_file():
                    yield file
                    return

    def _beside(self, file: str, tree: ast.Module) -> Iterator[str]:
        """What a test has without importing it: fixtures of its folders, commands, settings."""
        for folder in Path(file).parents:
            if (self._root / folder / "conftest.py").is_file() and file != f"{folder}/conftest.py":
                yield f"{folder}/conftest.py"
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        words = set(_strings(tree))
        if used & set(_STARTS_COMMANDS) and (self._root / _COMMANDS / "main.py").is_file():
            yield f"{_COMMANDS}/main.py"
            for word in words:
                if word.isidentifier() and (self._root / _COMMANDS / f"{word}.py").is_file():
                    yield f"{_COMMANDS}/{word}.py"
        for settings in (self._root / "flows" / "configs").glob("*.yaml"):
            if any(settings.name in word for word in words):
                yield str(settings.relative_to(self._root))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from (text for text in _strings(tree) if _DOTTED.fullmatch(text))


def _strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
