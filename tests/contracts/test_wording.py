"""How much of our wording the tests repeat: a better sentence should cost a line of one file.

A literal of a test is bound to our wording where four consecutive words of it stand in the same
order in a text of the code. A test asks for the class, the code and the fields of an error, for
numbers, names and cells of an output, or for the one word that tells a refusal from its
neighbours. Sentences stand in tests/golden/messages.txt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain

import pytest

from tests.contracts.test_errors import ROOT

# The count may fall and never rises: after rewriting a test lower it to what the failure counts.
MOST = 150

CONSECUTIVE = 4
# Words with nothing but spaces and light punctuation between them. Numbers and names of settings
# end a run: they are what a test should ask for.
RUN = re.compile(r"[a-z][a-z'-]*(?:[,;:]?\s+[a-z][a-z'-]*)*", re.IGNORECASE)
WORD = re.compile(r"[a-z][a-z'-]*", re.IGNORECASE)

# These hold the wording itself, or show it to people.
WORDED = {
    "tests/contracts/test_messages.py": "holds every error to the golden file of messages",
    "tests/contracts/test_errors.py": "holds how an error says what it keeps to itself",
    "tests/contracts/test_wording.py": "holds the count to examples",
    "tests/certificate/edits.py": "names ninety edits; no text of ours is compared with a name",
}

Phrase = tuple[str, ...]


def texts(source: str, *, of_tests: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Line and constant parts of every literal; what an f-string fills in parts them.

    Docstrings are left out, and in tests also what they raise, and say when an assertion fails.
    """
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):  # from the outside in
        inner = list(ast.iter_child_nodes(node))
        if id(node) in left_out:
            left_out.update(map(id, inner))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        elif of_tests and isinstance(node, ast.Raise):
            left_out.update(map(id, inner))
        elif of_tests and isinstance(node, ast.Assert) and node.msg is not None:
            left_out.add(id(node.msg))
        elif isinstance(node, ast.JoinedStr):
            constants = [part for part in node.values if isinstance(part, ast.Constant)]
            left_out.update(map(id, constants))
            yield node.lineno, [str(part.value) for part in constants]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, [node.value]


def phrases(text: str) -> Iterator[Phrase]:
    """All consecutive words of a text, three at a time."""
    for run in RUN.findall(text):
        words = [word.lower() for word in WORD.findall(run)]
        yield from zip(*(words[start:] for start in range(CONSECUTIVE)), strict=False)


def said(*sources: str) -> set[Phrase]:
    """What texts of the code say."""
    parts = (part for source in sources for _, found in texts(source) for part in found)
    return set(chain.from_iterable(map(phrases, parts)))


def bound(source: str, wording: set[Phrase]) -> list[int]:
    """Lines of the literals of a test that repeat the wording of the code."""
    return [
        line
        for line, parts in texts(source, of_tests=True)
        if any(phrase in wording for part in parts for phrase in phrases(part))
    ]


@pytest.mark.slow
def test_tests_repeat_little_of_our_wording():
    code = [path for place in ("dpal", "tasks", "flows") for path in (ROOT / place).rglob("*.py")]
    wording = said(*(path.read_text(encoding="utf-8") for path in code))
    found = {
        str(path.relative_to(ROOT)): bound(path.read_text(encoding="utf-8"), wording)
        for path in (ROOT / "tests").rglob("*.py")
    }
    counted = {name: lines for name, lines in found.items() if lines and name not in WORDED}
    count = sum(map(len, counted.values()))
    most = sorted(counted.items(), key=lambda one: (-len(one[1]), one[0]))
    listed = "\n".join(f"{name}: lines {', '.join(map(str, lines))}" for name, lines in most)
    assert count <= MOST, f"{count} literals repeat our wording, at most {MOST} may:\n{listed}"
    assert found.keys() >= WORDED.keys()


@pytest.mark.parametrize(
    "test",
    [
        'with raises(DataError, match="row 7 has still no label"): ...',
        'assert "HAS STILL NO LABEL" in str(error)',
        "assert said == f'row {row} has still no label; fill it in'",
        'CASES = [("label", 3, "has still no label")]',
        "assert 'has still no ' 'label' in said",
        "match = r'\\d has still no label .* in'",
        "expected(\n    'has still no\\n label')",
    ],
)
def test_the_search_finds_repeated_wording(test):
    assert bound(test, said("raise DataError(f'row {row} has still no label; fill it in')"))


@pytest.mark.parametrize(
    "test",
    [
        'with raises(DataError, match="row 7 .*label"): ...',
        '"""A row has still no label."""',
        "assert found, 'a row has still no label'",
        "raise AssertionError('a row has still no label')",
        'assert "row 3 has 0 labels" in said',
    ],
)
def test_the_search_leaves_alone_what_tells_and_what_explains(test):
    assert not bound(test, said("raise DataError(f'row {row} has still no label; fill it in')"))


def test_docstrings_of_the_code_are_no_wording():
    assert said('"""A row has still no label."""\nx = 1') == set()
