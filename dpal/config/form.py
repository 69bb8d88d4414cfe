"""How settings look as a form: choices with names, and sections that stay folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BeforeValidator


def choice(*labels: str) -> Callable[[dict[str, Any]], None]:
    """Names the ways in which a field may be given, in the order of its type.

    Args:
      labels: one for each; the last is that of null, where the field may be left open.

    Returns:
      What pydantic calls with the field's schema (`json_schema_extra`).
    """

    def name_them(schema: dict[str, Any]) -> None:
        for way, label in zip(schema["anyOf"], labels, strict=True):
            way["title"] = label

    return name_them


def fold(schema: dict[str, Any]) -> None:
    """Shows a section of defaults as one line, "Usual", until a person opens it."""
    section = schema.pop("$ref")
    schema["anyOf"] = [{"type": "null", "title": "Usual"}, {"$ref": section}]
    schema["default"] = None


def _open(value: object) -> object:
    return {} if value is None else value


# A section that stands folded is given as null: all of its defaults.
FOLDED = BeforeValidator(_open)
