"""Values of a --sweep, as a person writes them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError

_MOST_VALUES = 100


def sweep_values(text: str) -> tuple[str, list[Any]]:
    """The same for whatever settings.

    Raises:
      ConfigError: it is neither, or has too many values.
    """
    key, _, given = (part.strip() for part in text.partition("="))
    if not key or not given:
        raise ConfigError(
            "--sweep takes KEY=START:STOP:STEP or KEY=a,b,c, such as privacy.epsilon=3,5,8, "
            f"not {text!r}"
        )
    return key, _stepped(key, given) if ":" in given else _named(key, given)


def _stepped(key: str, given: str) -> list[int | float]:
    try:
        start, stop, step = (Decimal(part) for part in given.split(":"))
        count = int((stop - start) / step) + 1
    except (InvalidOperation, ZeroDivisionError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"--sweep {key}: {given!r} is no START:STOP:STEP of numbers, such as 0:4:0.5"
        ) from error
    if (stop - start) / step < 0:
        raise ConfigError(f"--sweep {key}: steps of {step} never lead from {start} to {stop}")
    # Decimals, so that 0.1 + 0.2 is 0.3 here.
    _require_few(key, count)
    exact = (start + index * step for index in range(count))
    return [int(value) if value == int(value) else float(value) for value in exact]


def _named(key: str, given: str) -> list[Any]:
    try:
        values = read_yaml(f"[{given}]")
    except yaml.YAMLError as error:
        raise ConfigError(f"--sweep {key}: {given!r} is not a list YAML can read") from error
    if not values:
        raise ConfigError(f"--sweep {key} has no values; give some, such as privacy.epsilon=3,5,8")
    _require_few(key, len(values))
    return list(values)


def _require_few(key: str, count: int) -> None:
    if count > _MOST_VALUES:
        raise ConfigError(
            f"--sweep {key} has {count:,} values and at most {_MOST_VALUES} are planned; take "
            "larger steps"
        )
