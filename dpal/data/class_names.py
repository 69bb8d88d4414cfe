"""Names of classes or labels in a file's metadata."""

from __future__ import annotations

import json

import pyarrow as pa

from dpal.errors import DataError

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
