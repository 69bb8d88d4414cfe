"""Writes the generated part of docs/architecture.md: rooms, their layers and what each is for."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from docs.drawing import Drawing

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


def layers_drawing() -> Drawing:
    """The layers from the highest to the lowest; each may import what is below it."""
    shown = [
        "flows: cli, ops",
        "tasks: tracking, training_pool",
        *(", ".join(room.removeprefix("dpal.") for room in rooms) for rooms in layers()),
    ]
    drawing = Drawing(
        width=640, height=44 * len(shown) + 24, title="Layers: each may import what is below it."
    )
    for number, words in enumerate(shown):
        top = 16 + 44 * number
        drawing.labeled_box(70, top, 500, 30, words)
        if number:
            drawing.arrow((320, top - 14), (320, top))
    return drawing


def generated() -> str:
    """The picture of the layers, and a table of every room."""
    above = ["flows.cli", "flows.ops", "flows", "tasks", "tasks.tracking", "tasks.training_pool"]
    lines = ["![The layers, from flows down to errors](images/layers.svg)", ""]
    lines += ["| room | what is in it |", "|---|---|"]
    for room in [*above, *(room for rooms in layers() for room in rooms)]:
        lines.append(f"| `{room.replace('.', '/')}` | {first_line(room)} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with its generated part as it should be."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + generated() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
