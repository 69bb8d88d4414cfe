"""One public name, one definition: whoever reads a name knows which thing is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import dpal

ROOT = Path(dpal.__file__).parent.parent
_LIKENESS = "a function of `Likeness` (dpal/data/likeness): every kind of content has its own"
# Names that several modules define, because whoever calls them asks every module for that name.
SHARED = {
    "plan": "the public API; the task of that name, which Prefect shows",
    "prepare": "the use case; the task of that name, which Prefect shows",
    "certify": "the use case; the task of that name, which Prefect shows",
    "describe": _LIKENESS,
    "contents": _LIKENESS,
    "find": _LIKENESS,
    "upgrade": "what Alembic calls in each migration",
    "create_app": "what uvicorn and MLflow are told to call, by module",
    "main": "where a program begins",
}


@cache
def defined_twice(root):
    """Public functions and classes at the top of two modules or more, with those modules."""
    defined = defaultdict(set)
    for room in ("dpal", "tasks", "flows"):
        for path in (root / room).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    defined[node.name].add(str(path.relative_to(root)))
    return {
        name: sorted(modules)
        for name, modules in defined.items()
        if len(modules) > 1 and not name.startswith("_")
    }


@pytest.mark.slow
def test_a_public_name_is_defined_once():
    doubles = defined_twice(ROOT)
    assert {name: doubles[name] for name in doubles.keys() - SHARED.keys()} == {}


@pytest.mark.slow
def test_what_may_stand_twice_does():
    """An exception that nothing needs any more is taken off the list."""
    assert SHARED.keys() - defined_twice(ROOT).keys() == set()


@pytest.mark.parametrize(
    ("first", "second", "double"),
    [
        ("def scan(): ...", "class Other: ...", False),
        ("def scan(): ...", "async def scan(): ...", True),
        ("def _scan(): ...", "def _scan(): ...", False),
        ("def scan(): ...", "class Scan:\n    def scan(self): ...", False),
    ],
)
def test_a_double_is_noticed(tmp_path, first, second, double):
    for path, text in (("dpal/first.py", first), ("flows/cli/second.py", second)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    expected = {"scan": ["dpal/first.py", "flows/cli/second.py"]} if double else {}
    assert defined_twice(tmp_path) == expected
