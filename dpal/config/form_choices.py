"""How settings look as a form: choices with names, and sections that stay folded."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

Settings = TypeVar("Settings")


def choice(*labels: str) -> Any:
    """Names the ways in which a field may be given, in the order of its type.

    Args:
      labels: one for each; the last is that of null, where the field may be left open.

    Returns:
      What stands beside the type, in `Annotated`.
    """

    def name_them(schema: dict[str, Any]) -> None:
        for way, label in zip(schema["anyOf"], labels, strict=True):
            way["title"] = label

    return Field(json_schema_extra=name_them)


def _fold(schema: dict[str, Any]) -> None:
    """Shows a section of defaults as one line, "Usual", until a person opens it."""
    section = schema.pop("$ref")
    schema["anyOf"] = [{"type": "null", "title": "Usual"}, {"$ref": section}]
    schema["default"] = None


def _open(value: object) -> object:
    return {} if value is None else value


# A section that stands folded is given as null: all of its defaults.
Folded = Annotated[Settings, BeforeValidator(_open), Field(json_schema_extra=_fold)]
