"""What a person reads whose settings are wrong."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import BaseModel, ValidationError

from dpal.errors import ConfigError


def settings_refusal(error: ValidationError, settings: type[BaseModel]) -> ConfigError:
    """Says in one sentence what is wrong with settings, and what would be right."""
    first = error.errors()[0]
    path, fault = [str(part) for part in first["loc"]], first["type"]
    where, given = ".".join(path), first.get("input")
    near: Sequence[str] = []
    if fault == "extra_forbidden":
        keys = _keys(settings, path[:-1])
        beside = difflib.get_close_matches(path[-1], keys, n=1)
        near = [".".join([*path[:-1], name]) for name in beside] or _anywhere(settings, path[-1])
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(keys)}"
        said = f"{where} is not a setting; {hint}"
    elif fault == "missing":
        said = f"{where} is missing; add it to the file or pass --set {where}=..."
    elif fault in ("enum", "literal_error"):
        fault = "enum"  # one of a closed set of names, however the set is written
        allowed = str(first["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        near = difflib.get_close_matches(str(given), allowed, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(allowed)}"
        said = f"{where} cannot be {given!r}; {hint}"
    elif fault == "string_pattern_mismatch":
        rules = {
            "name": "may hold lower-case letters, digits, '_' and '-' only",
            "runtime.device": "is no device; use cpu, cuda or cuda:0",
        }
        rule = rules.get(where, f"is not of the form {first['ctx']['pattern']}")
        said = f"{where} {given!r} {rule}"
    elif fault == "value_error":
        said = str(first["ctx"]["error"])
    else:
        said = f"{where} is {given!r} but {first['msg'].removeprefix('Input ')}"
    return ConfigError(said).about(where, fault, near[0] if near else "")


def _keys(settings: type[BaseModel], path: Sequence[str]) -> list[str]:
    model = settings
    for name in path:
        field = model.model_fields[name].annotation
        if not (isinstance(field, type) and issubclass(field, BaseModel)):
            return []
        model = field
    return list(model.model_fields)


def _anywhere(settings: type[BaseModel], name: str) -> list[str]:
    """The nearest setting in any section, with its full path; the shallowest of that name."""
    full = _paths(settings)
    near = difflib.get_close_matches(name, full, n=1)
    return [full[near[0]]] if near else []


def _paths(settings: type[BaseModel], above: str = "") -> dict[str, str]:
    """Full path of every setting and section by its last name."""
    paths = {name: f"{above}{name}" for name in settings.model_fields}
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            paths = _paths(field.annotation, f"{above}{name}.") | paths
    return paths
