"""What a test reaches: of a small project of known imports, and of this one."""

from __future__ import annotations

import ast

import pytest

from tests.chosen.__main__ import FOLDERS, NEVER, ROOT
from tests.chosen.reach import Reach

FILES = {
    "dpal/__init__.py": "from dpal.api import run",
    "dpal/api.py": "",
    "dpal/deep.py": "",
    "dpal/middle.py": "def later():\n    from dpal.deep import thing",
    "dpal/runs/__init__.py": "",
    "dpal/runs/kinds.py": "STEPS = 'dpal.deep.thing'",
    "flows/cli/main.py": "from flows.cli import watch, plan",
    "flows/cli/plan.py": "import dpal.middle",
    "flows/cli/watch.py": "import dpal.runs.kinds",
    "flows/configs/digits.yaml": "",
    "tests/conftest.py": "import dpal.api",
    "tests/flows/conftest.py": "import dpal.runs",
    "tests/flows/helper.py": "import dpal.middle",
    "tests/flows/test_helped.py": "from tests.flows import helper",
    "tests/flows/test_command.py": "def test_it(dpal):\n    dpal('watch', 'a/digits.yaml')",
    "tests/flows/test_replaced.py": "def test_it(patch):\n    patch('dpal.middle.later', None)",
}


@pytest.fixture
def reach(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Reach(tmp_path)


def test_imports_of_imports_are_reached_also_those_inside_of_functions(reach):
    steps = reach.steps_to("tests/flows/test_helped.py")
    assert steps["tests/flows/helper.py"] == 1
    assert steps["dpal/middle.py"] == 2
    assert steps["dpal/deep.py"] == 3
    assert not {"dpal/__init__.py", "dpal/api.py", "dpal/runs/kinds.py"} & steps.keys()


def test_fixtures_of_its_folders_are_reached_and_what_the_root_of_them_imports_is_not(reach):
    steps = reach.steps_to("tests/flows/test_helped.py")
    assert steps["tests/flows/conftest.py"] == steps["tests/conftest.py"] == 1
    assert steps["dpal/runs/__init__.py"] == 2
    assert "dpal/api.py" not in steps


def test_a_command_that_is_started_by_its_name_is_reached_before_the_others(reach):
    steps = reach.steps_to("tests/flows/test_command.py")
    assert steps["flows/cli/watch.py"] == 1 < steps["flows/cli/plan.py"]
    assert steps["dpal/runs/kinds.py"] == 2
    assert steps["flows/configs/digits.yaml"] == 1


def test_a_dotted_name_in_a_string_counts_as_an_import(reach):
    assert reach.steps_to("tests/flows/test_replaced.py")["dpal/middle.py"] == 1
    assert reach.steps_to("tests/flows/test_command.py")["dpal/deep.py"] == 3


def test_modules_of_this_project_are_reached_by_their_tests():
    steps = Reach(ROOT).steps_to("tests/flows/test_watch_steps.py")
    assert steps["dpal/data/inbox/state.py"] == 1
    assert steps["dpal/ledger/ledger_store.py"] > 1


def slow_tests():
    """Slow tests that may be chosen, as (name, syntax tree)."""
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            module = " ".join(
                ast.unparse(node.value)
                for node in tree.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
            )
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    marks = " ".join([module, *map(ast.unparse, node.decorator_list)])
                    if "mark.slow" in marks and not any(f"mark.{name}" in marks for name in NEVER):
                        yield f"{path.relative_to(ROOT)}::{node.name}", node


def measures_time(test: ast.stmt) -> bool:
    """Whether a test compares a clock, or waits less than half a minute for somebody's end."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and "monotonic" in ast.unparse(node):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "gone":
            return True
        if (
            isinstance(node, ast.keyword)
            and node.arg == "timeout"
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, int | float)
            and node.value.value < 30
        ):
            return True
    return False


def test_nothing_that_measures_time_may_be_chosen():
    found = dict(slow_tests())
    assert len(found) > 60
    assert [name for name, test in found.items() if measures_time(test)] == []


def test_what_measures_time_is_noticed():
    late = "def test_it():\n    assert time.monotonic() - begun < 10"
    ends = "def test_it():\n    process.communicate(timeout=5)"
    patient = "def test_it():\n    process.communicate(timeout=300)"
    for text, noticed in ((late, True), (ends, True), (patient, False)):
        (test,) = ast.parse(text).body
        assert measures_time(test) is noticed
