"""Names of classes or labels in a file's metadata."""

from __future__ import annotations

import json

import pyarrow as pa

from dpal.errors import ConfigError, DataError

KEY = b"class_names"


def class_names_in(schema: pa.Schema, named: str, *, least: int = 1) -> tuple[str, ...]:
    """Names in class order; none where the file gives none.

    Args:
      schema: of the file.
      named: what to call the file.
      least: how many there must be.

    Raises:
      DataError: they are no JSON list of so many names, or one cannot be written down.
    """
    stored = (schema.metadata or {}).get(KEY)
    if not stored:
        return ()
    try:
        names = json.loads(stored)
        if not isinstance(names, list) or len(names) < least:
            raise ValueError("no list of names")
        texts = tuple(str(name) for name in names)
        for text in texts:
            text.encode()  # half of a pair of surrogates would fail wherever it is shown
    except (ValueError, RecursionError) as error:
        raise DataError.before_release(
            f"class_names in the metadata of {named} is no JSON list of names; write it so"
        ) from error
    return texts


def label_number(asked: str | int, names: tuple[str, ...], labels: int, *, key: str) -> int:
    """Which label settings mean: by its name, or by its number.

    Args:
      asked: what they say.
      names: of the labels; empty where the data has none.
      labels: how many there are.
      key: what said so, as a person writes it.

    Raises:
      ConfigError: there is no such label.

    >>> label_number("flu", ("sick", "flu"), 2, key="voting.gate")
    1
    """
    if asked in names:
        return names.index(str(asked))
    number = int(asked) if str(asked).isdecimal() else labels
    if number < labels:
        return number
    allowed = ", ".join(names) or f"numbers from 0 to {labels - 1}"
    raise ConfigError.before_release(f"{key} names labels, and {asked!r} is none of {allowed}")
