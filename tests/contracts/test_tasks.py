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
        if not any(isinstance(value, kind) for value in vars(here).values()):
            continue
        for name in defined_in(here):
            if isinstance(value := getattr(here, name, None), kind):
                found[f"{module.name}.{name}"] = value
    return found


TASKS, FLOWS = members(tasks, Task), members(flows, Flow)


def calls_of(module):
    """Functions and methods of a use case's module: their source, and what they call.

    A method of a kind's use cases, or of a labeler, is called by its name alone: of which one is
    found out when it runs.
    """
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    names = {node.name: f"{module}.{node.name}" for node in tree.body
             if isinstance(node, ast.FunctionDef)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(
            ("dpal.runs.", "tasks.")
        ):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}"
                      for alias in node.names}  # fmt: skip
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield names[node.name], ast.unparse(node), called_in(node, names)
        elif isinstance(node, ast.ClassDef) and (
            "UseCases" in ast.unparse(node) or module.startswith("dpal.runs.labelers.")
        ):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield f"UseCases.{part.name}", ast.unparse(part), called_in(part, names)


def called_in(function, names):
    """Whatever of our own a function may call."""
    for part in ast.walk(function):
        if isinstance(part, ast.Attribute):
            owner = names.get(part.value.id) if isinstance(part.value, ast.Name) else None
            yield f"{owner}.{part.attr}" if owner else f"UseCases.{part.attr}"
        elif isinstance(part, ast.Name) and part.id in names:
            yield names[part.id]


def releasing_functions():
    """Use cases that draw noise, or call one that does: found by what the code does."""
    functions = [
        (name, source, set(calls)) for module in MODULES for name, source, calls in calls_of(module)
    ]
    found = {name for name, source, _ in functions if any(sign in source for sign in DRAWS)}
    while more := {name for name, _, calls in functions if calls & found} - found:
        found |= more
    return found


MODULES = [
    module.name
    for package in (tasks, dpal.runs)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
DRAWS = (".release_once(", ".start_over(", "secure()")


@pytest.fixture(scope="module")
def releasing():
    """Tasks of which each draws noise, by name."""
    drawing = releasing_functions()
    return {
        name
        for name, task in TASKS.items()
        if f"{inspect.unwrap(task.fn).__module__}.{inspect.unwrap(task.fn).__name__}" in drawing
    }


def test_there_are_tasks_to_look_at(releasing):
    assert len(TASKS) >= 30
    assert {
        "tasks.campaign.select_records", "tasks.campaign.train_model", "tasks.campaign.start_over",
        "tasks.campaign.ask_labeler", "tasks.pate.release_labels", "tasks.audit.run_audit",
        "tasks.generic_steps.advance",
        "tasks.pate.judge_private_knn", "tasks.improvement.release_support",
        "tasks.campaign.measure",
    } <= releasing  # fmt: skip
    assert "tasks.campaign.close_phase" not in releasing


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


def test_no_releasing_task_is_retried(releasing):
    assert {name: TASKS[name].retries for name in releasing} == dict.fromkeys(releasing, 0)


def test_no_flow_is_retried():
    for flow in FLOWS.values():
        assert flow.retries == 0
        assert flow.persist_result is False
