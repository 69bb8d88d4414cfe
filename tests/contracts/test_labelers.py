"""Nobody asks which labeler a run has: what it is stands in the labeler's own file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

import dpal
from dpal.labeling.registered_labelers import LABELERS

ROOT = Path(dpal.__file__).parent.parent
OWN = ROOT / "dpal" / "runs" / "labelers"
ABOUT_LABELERS = ("labeler", "waiting.kind", "job.kind", "asked.kind")


def named(node):
    """Labelers that an expression names: by itself, in a collection, or as a class's attribute."""
    texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return {text for text in texts if isinstance(text, str)} & set(LABELERS)


def comparisons(source):
    """Where source asks whether a labeler has a certain name: by ==, is, in, match or a dict."""
    values: Sequence[ast.AST]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            about, values = ast.unparse(node), [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            about, values = ast.unparse(node.subject), [case.pattern for case in node.cases]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            about, values = ast.unparse(node.slice), [key for key in node.value.keys if key]
        else:
            continue
        if any(word in about for word in ABOUT_LABELERS) and any(map(named, values)):
            yield ast.unparse(node)


MODULES = [
    path
    for room in ("dpal", "tasks", "flows")
    for path in sorted((ROOT / room).rglob("*.py"))
    if OWN not in path.parents
]


def test_nobody_compares():
    assert len(MODULES) > 300
    found = {
        f"{path.relative_to(ROOT)}: {place}"
        for path in MODULES
        if any(word in (text := path.read_text(encoding="utf-8")) for word in ABOUT_LABELERS)
        for place in comparisons(text)
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "if config.labeler.kind == 'oracle': pass",
        "if asked.kind is not 'file': pass",
        "if job.kind in ('label_studio', 'teachers'): pass",
        "place = {'oracle': 'the pool', 'file': 'a file'}[labeler.kind]",
        "match config.labeler.kind:\n  case 'form': pass",
    ],
)
def test_a_comparison_would_be_found(source):
    assert list(comparisons(source))
