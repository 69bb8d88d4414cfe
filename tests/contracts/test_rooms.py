"""What is in a room is what the room is for."""

from __future__ import annotations

import ast
from pathlib import Path

import dpal

ROOT = Path(dpal.__file__).parent.parent
SERVERS = ("prefect", "mlflow")
# Neither defines a task nor talks to a server itself: why it is in `tasks/` all the same.
BESIDE = {
    "tasks/generic_page.py": "writes a page by tasks/campaign_page.py",
    "tasks/training_pool/worker_device.py": "reads a worker's environment, as dpal/ may not",
    "tasks/lineage_events.py": "speaks OpenLineage, for tasks/lineage.py",
    "tasks/restore.py": "asks DVC by tasks/version_with_dvc.py",
    "tasks/version_with_dvc.py": "calls DVC",
    "tasks/web_guard.py": "stands before MLflow's server and Prefect's",
    "tasks/tracking/classic_pages.py": "stands before MLflow's page",
    "tasks/tracking/mlflow_ledger.py": "what MLflow is told of a ledger",
    "tasks/tracking/server_app.py": "MLflow's server, guarded",
}


def imported(path):
    """Names of the modules that a file imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_tasks_are_about_prefect_mlflow_or_dvc():
    """A use case that needs none of them is in dpal/runs, where a notebook finds it."""
    found = set()
    for path in (ROOT / "tasks").rglob("*.py"):
        modules = list(imported(path))
        talks = any(name.split(".")[0] in SERVERS or name == "tasks.boundary" for name in modules)
        if not talks and path.name != "__init__.py":
            found.add(str(path.relative_to(ROOT)))
    assert found - BESIDE.keys() == set()


def test_flows_hold_flows_commands_and_the_stack():
    """Directly in flows/ is nothing but what defines a flow."""
    beside = [
        path.name
        for path in (ROOT / "flows").glob("*.py")
        if "tasks.boundary" not in imported(path) and path.name != "__init__.py"
    ]
    assert beside == []
