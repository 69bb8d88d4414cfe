"""What must hold for every task and flow there is, also for the ones not written yet."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil

import pytest
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE

import dpal.runs
import flows
import tasks
from tasks import boundary

MODULES = [
    module.name
    for package in (tasks, dpal.runs)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


def defined_in(module):
    """Names that a module makes itself, by a function or by an assignment."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def members(package, kind):
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        here = importlib.import_module(module.name)
        for name in defined_in(here):
            if isinstance(value := getattr(here, name, None), kind):
                found[f"{module.name}.{name}"] = value
    return found


TASKS, FLOWS = members(tasks, Task), members(flows, Flow)
RELEASING = {name for name, task in TASKS.items() if "secure()" in inspect.getsource(task.fn)} | {
    name
    for name, task in TASKS.items()
    if ".settle(" in inspect.getsource(inspect.getmodule(task.fn))
    and task.name in ("select_records", "train_model")
}


# Votes are released by whichever task asks, and by `dpal vote`, which is no flow.
ASKED_BY = {
    "dpal.runs.vote_account": ("tasks.student.release_labels", "tasks.labeling.ask_labeler")
}


def test_there_are_tasks_to_look_at():
    assert set(ASKED_BY) <= set(MODULES)
    assert len(TASKS) >= 10
    assert {"tasks.selection.select_records", "tasks.training.train_model"} <= RELEASING


@pytest.mark.parametrize("name", sorted(TASKS))
def test_no_task_caches_its_results(name):
    """A cached release would replay its noise; a stored result could hold records."""
    assert TASKS[name].cache_policy is NO_CACHE
    assert TASKS[name].persist_result is False  # None would leave it to Prefect's settings


@pytest.mark.parametrize("name", sorted({**TASKS, **FLOWS}))
def test_every_task_and_flow_is_made_at_the_boundary(name):
    """What they raise is public there, and nothing that they print is a log."""
    one = {**TASKS, **FLOWS}[name]
    assert one.fn.__code__.co_filename == inspect.getsourcefile(boundary)
    assert one.log_prints is False


@pytest.mark.parametrize("name", sorted(RELEASING))
def test_no_releasing_task_is_retried(name):
    assert TASKS[name].retries == 0


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_settles_a_release_has_a_task_without_retries(module):
    """Found by what the code does, so that a new releasing module cannot slip through."""
    source = inspect.getsource(importlib.import_module(module))
    if module in ASKED_BY:
        assert all(TASKS[name].retries == 0 for name in ASKED_BY[module])
    elif ".settle(" in source:
        mine = [task for name, task in TASKS.items() if name.startswith(f"{module}.")]
        releasing = [task for task in mine if f"{module}.{task.fn.__name__}" in RELEASING]
        assert releasing
        assert all(task.retries == 0 for task in releasing)


def test_no_flow_is_retried():
    for flow in FLOWS.values():
        assert flow.retries == 0
        assert flow.persist_result is False
