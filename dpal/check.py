"""Validators that state what must hold, so that NaN fails them too.

Values come as keyword arguments and are named in the message:
`check.positive(noise_multiplier=sigma)`.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from dpal.errors import ParameterError

_LONGEST = 40  # characters of a value in a message


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        got = repr(value)
        got = got if len(got) <= _LONGEST else f"{got[:_LONGEST]}..."
        raise ParameterError(f"{name} must be {rule}, got {got}").about(name)


def _is_finite(value: float) -> bool:
    """Whether it is, and is no whole number beyond all others."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def positive(**values: float) -> None:
    """Requires finite values above zero."""
    for name, value in values.items():
        _require(value > 0 and _is_finite(value), name, value, "a finite number above 0")


def at_least(bound: float, **values: float) -> None:
    """Requires finite values of at least `bound`."""
    for name, value in values.items():
        _require(value >= bound and _is_finite(value), name, value, f"a finite number >= {bound:g}")


def inside(low: float, high: float, **values: float) -> None:
    """Requires values strictly between `low` and `high`."""
    for name, value in values.items():
        _require(low < value < high, name, value, f"strictly between {low:g} and {high:g}")


def within(low: float, high: float, **values: float) -> None:
    """Requires values between `low` and `high`, bounds included."""
    for name, value in values.items():
        _require(low <= value <= high, name, value, f"between {low:g} and {high:g}")


def one_of(allowed: Collection[str], **values: str) -> None:
    """Requires values out of a closed set of names."""
    for name, value in values.items():
        _require(value in allowed, name, value, "one of " + ", ".join(sorted(allowed)))
