"""Writes the generated part of docs/architecture.md: rooms, their layers and what each is for."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- generated: make architecture -->\n", "<!-- end of what is generated -->\n"
INSIDE = "one direction inside dpal"


def layers() -> list[list[str]]:
    """The rooms of dpal from the highest to the lowest, as import-linter enforces them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    found = next(contract for contract in contracts if contract["name"] == INSIDE)
    return [[room.strip() for room in layer.split("|")] for layer in found["layers"]]


def first_line(module: str) -> str:
    """What a module or package says that it is."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n")[0]


def generated() -> str:
    """The picture of the layers, and a table of every room."""
    above = ["flows.cli", "flows.ops", "flows", "tasks", "tasks.tracking", "tasks.training_pool"]
    lines = ["```mermaid", "flowchart TD", '  flows["flows: cli, ops"] --> tasks']
    names = ["tasks", *(f"layer{number}" for number in range(len(layers())))]
    for number, rooms in enumerate(layers()):
        shown = ", ".join(room.removeprefix("dpal.") for room in rooms)
        lines.append(f'  {names[number + 1]}["{shown}"]')
        lines.append(f"  {names[number]} --> {names[number + 1]}")
    lines += ["```", "", "| room | what is in it |", "|---|---|"]
    for room in [*above, *(room for rooms in layers() for room in rooms)]:
        lines.append(f"| `{room.replace('.', '/')}` | {first_line(room)} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with its generated part as it should be."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + generated() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
