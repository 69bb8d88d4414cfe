"""One byte string for one value, and the digests that commit to it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from dpal.errors import ParameterError


def plain(value: object) -> Any:
    """Turns frozen values into dictionaries, lists and scalars.

    Raises:
      ParameterError: a value has no canonical form (a float that is not finite, say).
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"{value!r} has no canonical form")
    if value is None or isinstance(value, str | int | float):
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
