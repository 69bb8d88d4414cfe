"""Phases of a plan as JSON that says what each part of them is, and back again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args

from dpal.accounting.events import Event, from_record, to_record
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import LabelCap, ThresholdStart
from dpal.planning.selection_steps import SelectionStep

# What a file may name: nothing else is ever built from one.
_PARTS = {
    part.__name__: part
    for part in (Phase, TrainingPhase, *get_args(SelectionStep), ThresholdStart, LabelCap)
}
_PART, _EVENT, _VALUE = "part", "event", "value"


def write_phases(phases: Sequence[Phase]) -> list[Any]:
    """Phases as JSON values, from which `read_phases` makes equal ones.

    Raises:
      ParameterError: a part of one is unknown, so that nobody could read it.
    """
    return [_write(phase) for phase in phases]


def read_phases(written: Sequence[Any]) -> tuple[Phase, ...]:
    """Reads what `write_phases` wrote.

    Raises:
      ParameterError: it names something else, or fields that such a part has not.
    """
    phases = tuple(_read(record) for record in written)
    if not all(isinstance(phase, Phase) for phase in phases):
        raise ParameterError("what was read is no list of phases")
    return phases


def _write(value: Any) -> Any:
    if isinstance(value, Event):
        return {_EVENT: to_record(value)}
    name = type(value).__name__
    if is_dataclass(value) or isinstance(value, Enum):
        if _PARTS.get(name) is not type(value):
            raise ParameterError(f"{name} is no part of a phase")
        if isinstance(value, Enum):
            return {_PART: name, _VALUE: value.value}
        return {
            _PART: name,
            **{field.name: _write(getattr(value, field.name)) for field in fields(value)},
        }
    return value


def _read(written: Any) -> Any:
    if not isinstance(written, Mapping):
        return written
    if _EVENT in written:
        return from_record(written[_EVENT])
    name = str(written.get(_PART))
    if name not in _PARTS:
        raise ParameterError(f"{name!r} is no part of a phase")
    arguments = {key: _read(value) for key, value in written.items() if key != _PART}
    try:
        part: Any = _PARTS[name]
        return part(arguments[_VALUE]) if issubclass(part, Enum) else part(**arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise ParameterError(f"what was read of {name} does not fit it") from error
