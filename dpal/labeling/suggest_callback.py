"""Labels that people see suggested: whoever makes them is handed the ids of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpal.labels import Label

Suggest = Callable[[Sequence[str]], Mapping[str, Label]]


def no_suggestions(ids: Sequence[str]) -> Mapping[str, Label]:
    """Suggests nothing."""
    return {}
