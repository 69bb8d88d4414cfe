"""Which variants of a long test stand in the default suite; all of them run with the slow tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick_and_slow(quick: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Parameters of a test, all but the quick ones marked slow.

    Args:
      quick: a few of them, which differ from each other the most.
      every: all of them.

    Raises:
      ValueError: a quick one is none of them.
    """
    values = list(every)
    if strange := [value for value in quick if value not in values]:
        raise ValueError(f"no parameter of this test: {strange}")
    return [value if value in quick else _slow(value) for value in values]


def _slow(value: Any) -> Any:
    """A parameter, or a tuple of several, of a test that is slow."""
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.slow)
