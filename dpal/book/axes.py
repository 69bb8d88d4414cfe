"""Axes of a book's grid: what may be varied, and which settings a value stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpal.book.methods import METHODS

Axis = list[Any] | dict[str, dict[str, Any] | None]

METHOD, LABELS, FIGURE = "method", "labels", "figure"
# Short names of settings that most tables vary.
SHORT = {
    "strategy": "strategy",
    "acquisition": "acquisition",
    "mode": "privacy.selection",
    "epsilon": "privacy.epsilon",
}
_OTHERS = ("set", METHOD, LABELS, FIGURE)


def require_axis(axis: str, values: Axis) -> None:
    """Requires an axis that means something.

    Raises:
      ValueError: it is unknown, has no value, or names an unknown method.
    """
    if not values:
        raise ValueError(f"axis {axis!r} of the grid has no value; give it one, or leave it out")
    if axis == "seed":
        raise ValueError("seed is no axis of the grid; list the seeds under seeds")
    known = axis in SHORT or axis in _OTHERS or "." in axis
    if not known and isinstance(values, list):
        raise ValueError(
            f"axis {axis!r} of the grid is not known; use {', '.join([*SHORT, *_OTHERS])}, a "
            "setting such as schedule.batch_size, or give each value a name and its settings"
        )
    if isinstance(values, dict):
        methods = [given.get(METHOD) for given in values.values() if given]
    else:
        methods = values if axis == METHOD else []
    for method in methods:
        if method is not None and method not in METHODS:
            raise ValueError(f"method {method!r} is not known; use {', '.join(METHODS)}")


def values_of(axis: str, values: Axis) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each value's name and the settings that it stands for, by dotted key."""
    if isinstance(values, dict):
        for name, given in values.items():
            yield str(name), {SHORT.get(key, key): value for key, value in (given or {}).items()}
        return
    for value in values:
        yield str(value), {SHORT.get(axis, axis): value}
