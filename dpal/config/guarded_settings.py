"""Settings that decide who sees records or where they go: their marks, and how they are found.

A run that somebody starts through Prefect may use such a setting only within the list of the
data's owner (`dpal.config.owner_allow_list`). Which settings these are is said where they are
defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# Sections that hold a whole campaign: its settings keep their own names in there.
_WHOLE_CAMPAIGN = ("campaign", "config")

Mark = TypeVar("Mark")


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """Marks a setting that only the data's owner may widen.

    Attributes:
      place: whether it is a path or a URL, which is resolved before it is compared.
      free: values that show records to nobody new, and go without asking.
      usual: values that go as long as the owner has listed nothing else.
      key: what the owner's list calls it, where that is not its own dotted name.
    """

    place: bool = True
    free: tuple[object, ...] = ()
    usual: tuple[object, ...] = ()
    key: str | None = None


@dataclass(frozen=True)
class OnlyIf:
    """Marks a section that is read only where another setting has a value.

    Attributes:
      key: dotted name of that setting, beside the section.
      value: that it must have.
    """

    key: str
    value: object


@dataclass(frozen=True)
class GuardedSetting:
    """One guarded setting of a configuration.

    Attributes:
      key: dotted name, as the owner's list has it.
      value: what the configuration says.
      mark: how it is guarded.
    """

    key: str
    value: object
    mark: Guarded


def guarded_settings(section: BaseModel, prefix: str = "") -> Iterator[GuardedSetting]:
    """Yields every guarded setting that a configuration uses; one for each value of a list."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if mark := _mark(field.metadata, Guarded):
            for each in value if isinstance(value, list) else [value]:
                yield GuardedSetting(mark.key or f"{prefix}{name}", each, mark)
            continue
        condition = _mark(field.metadata, OnlyIf)
        if condition is None or _value_of(section, condition.key) == condition.value:
            inside = prefix if name in _WHOLE_CAMPAIGN else f"{prefix}{name}."
            for each in _sections_of(value):
                yield from guarded_settings(each, inside)


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields every field of a kind of configuration by its dotted name; sections are opened."""
    for name, field in model.model_fields.items():
        sections = list(_sections_in(field.annotation))
        for section in sections:
            yield from fields_of(section, prefix if name in _WHOLE_CAMPAIGN else f"{prefix}{name}.")
        if not sections:
            yield f"{prefix}{name}", field


def guarded_keys(*models: type[BaseModel]) -> dict[str, Guarded]:
    """The names of all guarded settings of some kinds of configurations, with their marks."""
    pairs = (pair for model in models for pair in fields_of(model))
    marks = ((key, _mark(field.metadata, Guarded)) for key, field in pairs)
    return {mark.key or key: mark for key, mark in marks if mark is not None}


def unmarked_paths(model: type[BaseModel]) -> list[str]:
    """The names of settings that are paths, and that nobody has marked as guarded."""
    return [
        key
        for key, field in fields_of(model)
        if _is_path(field.annotation) and _mark(field.metadata, Guarded) is None
    ]


def _is_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_is_path, get_args(annotation)))


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)


def _sections_of(value: object) -> Iterator[BaseModel]:
    """A section, or those in a list or a mapping; nothing of any other value."""
    if isinstance(value, BaseModel):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _sections_of(each)


def _mark(metadata: list[object], kind: type[Mark]) -> Mark | None:
    return next((entry for entry in metadata if isinstance(entry, kind)), None)


def _value_of(section: BaseModel, key: str) -> object:
    value: object = section
    for name in key.split("."):
        value = getattr(value, name)
    return value
