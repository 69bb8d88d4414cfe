"""A place of data in settings: a path, or a URL of object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from dpal.files.stored_objects import Place, StoredObject, place_of


def _place(value: object) -> Place:
    if isinstance(value, str | Path | StoredObject):
        return place_of(value)
    raise ValueError("a path or a URL is needed")


def _written(value: object) -> str | list[str]:
    """As JSON has it. Of a place or several, pydantic hands the list to what writes a place."""
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)


# In forms it is a path, as it always was.
DataPlace = Annotated[
    Place,
    PlainValidator(_place),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"format": "path", "type": "string"}),
]
