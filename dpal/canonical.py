"""One byte string for one value, and the digests that commit to it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dpal.errors import ParameterError

# Metadata of a field that says where something lies on this machine, not what it is.
PLACE = MappingProxyType({"place": True})
# Of a field that earlier versions had not: while it has its default it is not written, so that
# digests of what they wrote stay.
LATER = MappingProxyType({"later": True})
_PLAIN = frozenset({str, int, bool})


def written_as(name: str) -> MappingProxyType[str, str]:
    """Metadata of a field that is written under an earlier name than it has in code."""
    return MappingProxyType({"written": name})


def written_name(field: Field[Any]) -> str:
    """The name under which a field is written."""
    return str(field.metadata.get("written", field.name))


def written_fields(value: Any) -> dict[str, Any]:
    """What a frozen value says, under the names by which it is written; places are not in."""
    return {
        written_name(field): getattr(value, field.name)
        for field in fields(value)
        if "place" not in field.metadata
        and not ("later" in field.metadata and getattr(value, field.name) == field.default)
    }


def plain(value: object) -> Any:
    """Turns frozen values into dictionaries, lists and scalars; fields that are places are not in.

    Raises:
      ParameterError: a value has no canonical form (a float that is not finite, say).
    """
    if value is None or type(value) in _PLAIN:  # most of what there is
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in written_fields(value).items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"{value!r} has no canonical form")
    if isinstance(value, str | int | float):
        return value
    raise ParameterError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: object) -> str:
    """Returns JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: object) -> str:
    """Returns the SHA-256 of the canonical JSON of a value, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def place_digest(place: Path) -> str:
    """Returns the SHA-256 of a file, or of a folder's files and their names.

    Hidden files are left out: versioning and downloads leave notes of their own there.

    Raises:
      ParameterError: there is nothing at the place.
    """
    if place.is_file():
        return file_digest(place)
    inside = {path.relative_to(place): path for path in sorted(place.rglob("*")) if path.is_file()}
    shown = {
        name.as_posix(): file_digest(path)
        for name, path in inside.items()
        if not any(part.startswith(".") for part in name.parts)
    }
    if not shown:
        raise ParameterError(f"{place} is no file, and no folder with files in it")
    return digest(shown)
